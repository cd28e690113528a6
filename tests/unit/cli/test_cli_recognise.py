"""What a KServe model says of its inputs, and which of them takes the text."""

import pytest

from servebench.cli.recognise import text_input

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
