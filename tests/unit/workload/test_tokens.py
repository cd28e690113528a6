"""The estimate comes near to what a tokenizer counts; the counts are those of the o200k vocabulary."""

import json
from pathlib import Path

import pytest

from servebench.workload.builtin import read_data
from servebench.workload.tokens import estimate_tokens, token_weight, word_ends


def test_the_estimate_of_running_text_is_within_five_percent() -> None:
    text = read_data("builtin:shakespeare").decode()
    assert estimate_tokens(text) == pytest.approx(103_114, rel=0.05)


def test_the_estimate_of_the_questions_is_within_five_percent() -> None:
    rows = [json.loads(line) for line in read_data("builtin:mt-bench").decode().splitlines()]
    total = sum(estimate_tokens(turn) for row in rows for turn in row["turns"])
    assert total == pytest.approx(160 * 44, rel=0.05)


def test_code_digits_and_chinese_are_not_counted_as_words() -> None:
    assert estimate_tokens("0123456789") == 8
    assert estimate_tokens("你好世界") == 3
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 1


def test_the_estimate_adds_up_over_words() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    ends, weights = word_ends(text)
    for index in (0, len(ends) // 2, len(ends) - 1):
        assert weights[index] == pytest.approx(token_weight(text[: ends[index]]))
        assert text[ends[index] - 1].isalpha()
