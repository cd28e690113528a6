"""Which servers are recognised, what a KServe model says of its inputs, and which of them takes the text."""

from pathlib import Path

import pytest

from servebench.cli.recognise import by_answer, server_name, text_input
from servebench.telemetry.rules import DIALECTS

OPERATOR = Path(__file__).parents[3] / "docs" / "operator.md"

PROMPT = {"name": "prompt", "datatype": "BYTES", "shape": [-1, 1]}
TEXT = {"name": "text_input", "datatype": "BYTES", "shape": [1]}
NUMBER = {"name": "max_tokens", "datatype": "INT32", "shape": [1]}


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ({"inputs": [NUMBER, PROMPT]}, "prompt"),
        ({"inputs": [PROMPT, TEXT]}, None),
        ({"inputs": [NUMBER]}, None),
        ({"inputs": []}, None),
        ({"inputs": [{"name": 3, "datatype": "BYTES"}, "prompt", {"datatype": "BYTES"}]}, None),
        ({"inputs": {"name": "prompt"}}, None),
        (["prompt"], None),
        (None, None),
    ],
)
def test_the_input_of_text_is_told_only_where_it_is_not_the_usual_one(page: object, expected: str | None) -> None:
    assert text_input(page, "text_input") == expected


def test_the_operator_page_names_every_server_that_is_recognised() -> None:
    by_metrics = {server_name(headers={}, owners=(), dialect=one.name) for one in DIALECTS}
    by_owner = server_name(headers={}, owners=("library",), dialect=None)
    known = (by_metrics | {by_owner, by_answer("m", "m@main")}) - {None}
    said = OPERATOR.read_text(encoding="utf-8").partition("It names the\nserver (")[2].partition(")")[0]
    assert {name.strip("`") for name in said.split(", ")} == known
