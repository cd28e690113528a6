"""Prompt files give their prompts unchanged, or faults with lines; long prompts have the wanted length."""

from collections import Counter
from pathlib import Path

import pytest

from servebench.core.errors import InputError, SpecError
from servebench.core.records import Message
from servebench.workload.builtin import read_data
from servebench.workload.model import Prompts, PromptSource
from servebench.workload.prompt_files import read_talks
from servebench.workload.prompts import PromptSet
from servebench.workload.tokens import estimate_tokens

BOTH = Prompts(
    sources=(
        PromptSource(kind="mt-bench", path="builtin:mt-bench"),
        PromptSource(kind="self-instruct", path="builtin:self-instruct"),
    )
)


def read_prompts(source: PromptSource) -> list[str]:
    """Return the first turns of a file."""
    return [talk.turns[0] for talk in read_talks(source, Counter())]


def prompts_in(folder: Path, data: bytes) -> list[str]:
    path = folder / "prompts.jsonl"
    path.write_bytes(data)
    return read_prompts(PromptSource(kind="jsonl", path=str(path)))


def faults_in(folder: Path, data: bytes) -> list[tuple[int | None, str, str]]:
    with pytest.raises(SpecError) as caught:
        prompts_in(folder, data)
    return [(fault.line, fault.place, fault.message) for fault in caught.value.faults]


def test_the_shipped_sets_hold_80_and_250_prompts() -> None:
    prompts = PromptSet.load(BOTH)
    assert len(prompts) == 330
    assert prompts.text(0).startswith("Compose an engaging travel blog post about a recent trip to Hawaii")
    assert prompts.text(80).startswith("The sentence you are given might be too wordy")
    assert "\n\nIf you have any questions about my rate" in prompts.text(80)


def test_byte_order_mark_blank_lines_and_line_ends_are_no_prompts(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"prompt": "one"}\r\n\r\n{"prompt": "two"}  \r\n   \r\n{"prompt": "three"}'
    assert prompts_in(tmp_path, data) == ["one", "two", "three"]


def test_blank_prompts_are_kept_as_they_are(tmp_path: Path) -> None:
    assert prompts_in(tmp_path, b'{"prompt": "   "}\n{"prompt": "\\n"}\n{"prompt": "x"}\n') == ["   ", "\n", "x"]


def test_empty_and_missing_prompts_are_faults_with_lines(tmp_path: Path) -> None:
    faults = faults_in(tmp_path, b'{"prompt": ""}\n{"prompt": "x"}\n{"text": "y"}\n{"prompt": 3}\n[1]\n')
    assert [(line, place) for line, place, _ in faults] == [(1, "prompt"), (3, "prompt"), (4, "prompt"), (5, "row")]
    assert "the row has text" in faults[1][2]


def test_bytes_that_are_not_utf_8_are_told_by_line_and_offset(tmp_path: Path) -> None:
    data = b'{"prompt": "first"}\n{"prompt": "cut \xe6x"}\n{"prompt": "caf\xe9"}\n{"prompt": "last"}\n'
    faults = faults_in(tmp_path, data)
    assert [line for line, _, _ in faults] == [2, 3]
    assert f"offset {data.index(bytes([0xE6]))} " in faults[0][2]
    assert f"offset {data.index(bytes([0xE9]))} " in faults[1][2]


def test_a_json_array_and_two_objects_on_a_line_are_named(tmp_path: Path) -> None:
    assert "one JSON array" in faults_in(tmp_path, b'[\n {"prompt": "a"},\n {"prompt": "b"}\n]\n')[0][2]
    assert "Extra data" in faults_in(tmp_path, b'{"prompt": "a"} {"prompt": "b"}\n')[0][2]


def test_a_git_lfs_pointer_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="git lfs pull"):
        prompts_in(tmp_path, b"version https://git-lfs.github.com/spec/v1\noid sha256:4b\nsize 41\n")


@pytest.mark.parametrize("data", [b"", b"\n  \n"])
def test_a_file_without_prompts_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match="holds no prompt"):
        prompts_in(tmp_path, data)


def test_a_missing_file_is_refused_with_its_path() -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl: No such file"):
        read_prompts(PromptSource(kind="jsonl", path="/nowhere.jsonl"))


def test_a_prompt_without_wanted_length_is_sent_whole() -> None:
    prompts = PromptSet.of(["Ünïcode\n prompt "], "some words of filler")
    assert prompts.messages(0, None) == (Message("user", "Ünïcode\n prompt "),)
    assert prompts.messages(0, 1) == (Message("user", "Ünïcode\n prompt "),)


def test_a_long_prompt_is_filler_of_whole_words_and_then_the_prompt() -> None:
    prompts = PromptSet.load(BOTH)
    filler = read_data("builtin:shakespeare").decode()
    (message,) = prompts.messages(5, 300)
    front, prompt = message.content.split("\n\n", 1)
    assert prompt == prompts.text(5)
    assert message.role == "user"
    at = filler.index(front)
    assert not filler[at - 1 : at].isalpha()
    assert not filler[at + len(front)].isalpha()


@pytest.mark.parametrize("wanted", [400, 1_000, 1_500, 7_437, 100_000, 250_000])
def test_the_estimate_of_a_long_prompt_is_the_wanted_count(wanted: int) -> None:
    prompts = PromptSet.load(BOTH)
    for prompt_id in (0, 79, 80, 329):
        (message,) = prompts.messages(prompt_id, wanted)
        assert abs(estimate_tokens(message.content) - wanted) <= 3


def test_long_prompts_are_cut_at_the_nearest_word_and_so_not_longer_on_average() -> None:
    prompts = PromptSet.load(BOTH)
    over = [estimate_tokens(prompts.messages(3, wanted)[0].content) - wanted for wanted in range(400, 800)]
    assert abs(sum(over)) / len(over) < 0.2


def test_prompts_of_one_length_begin_differently() -> None:
    prompts = PromptSet.load(BOTH)
    beginnings = {prompts.messages(prompt_id, 1_000)[0].content[:40] for prompt_id in range(330)}
    assert len(beginnings) >= 325


def test_lengths_of_one_prompt_begin_differently() -> None:
    prompts = PromptSet.load(BOTH)
    beginnings = {prompts.messages(7, wanted)[0].content[:40] for wanted in range(500, 600)}
    assert len(beginnings) >= 98


def test_the_same_request_gives_the_same_text() -> None:
    first, second = PromptSet.load(BOTH), PromptSet.load(BOTH)
    assert first.messages(17, 1_234) == second.messages(17, 1_234)
    assert first.sha256 == second.sha256


def test_the_digest_tells_prompts_cut_at_other_places_apart() -> None:
    assert PromptSet.of(["ab", "c"], "word").sha256 != PromptSet.of(["a", "bc"], "word").sha256
