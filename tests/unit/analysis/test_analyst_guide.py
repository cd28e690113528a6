"""The guide for analysts does what it says: its code, run in order, prints what stands under it."""

import contextlib
import io
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```\n\n```\n(.*?)```\n", re.DOTALL)


def test_the_code_of_the_guide_prints_what_stands_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "guides" / "analyst.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python") > 5
    monkeypatch.chdir(DOCS / "notebooks")
    space: dict[str, Any] = {}
    for code, expected in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(code, space)
        assert said.getvalue().rstrip() == expected.rstrip(), code


def test_the_install_command_of_the_guide_brings_what_its_code_imports() -> None:
    text = (DOCS / "guides" / "analyst.md").read_text(encoding="utf-8")
    (asked,) = re.findall(r"^pip install \. (.+)$", text, flags=re.MULTILINE)
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = {re.split(r"\W", wanted)[0] for wanted in project["dependencies"]} | set(asked.split())
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, flags=re.MULTILINE))
    assert imported - brought == {"servebench"}


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: str(path.relative_to(DOCS)))
def test_every_link_and_picture_of_a_page_leads_to_a_file(path: Path) -> None:
    bare = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", bare)
    gone = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert gone == []
