"""docs/workloads.md names every key, word and preset, and its examples are workload files."""

import re
from pathlib import Path
from typing import Any

import pytest

from servebench.workload.builtin import DATA_FILES
from servebench.workload.load import parse_workload
from servebench.workload.schema import workload_json_schema

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)


def words_of(node: Any, found: set[str]) -> set[str]:  # noqa: ANN401 - any JSON
    """Return the keys of all mappings of a schema, and the words that a value may be."""
    if isinstance(node, dict):
        found |= {key for key in node.get("properties", {}) if isinstance(key, str)}
        found |= {word for word in [*node.get("enum", ()), node.get("const")] if isinstance(word, str)}
        for below in node.values():
            words_of(below, found)
    elif isinstance(node, list):
        for below in node:
            words_of(below, found)
    return found


def test_every_key_and_word_of_the_file_is_told() -> None:
    schema = workload_json_schema()
    endpoints = set(schema["$defs"]["TargetSpec"]["properties"]["endpoint"]["enum"])
    told = set(re.findall(r"[a-z0-9][a-z0-9_-]*", TEXT))
    assert sorted(words_of(schema, set()) - endpoints - told) == []


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split("\n")[0])
def test_an_example_is_a_workload_file(text: str) -> None:
    assert parse_workload(text, "docs/workloads.md", ROOT / "docs").name


def test_there_are_examples_and_every_shipped_name_is_told() -> None:
    assert len(EXAMPLES) >= 8
    prompts = {"shakespeare", "mt-bench", "self-instruct", "humaneval", "oasst"}
    for name, place in DATA_FILES.items():
        assert name in prompts or (f"`{name}`" if place.startswith("workloads/") else f"`builtin:{name}`") in TEXT
