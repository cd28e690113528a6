"""How many answers had the wanted length, and what is said where exact lengths were asked for."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.builders import RunSpec, S, row, steady, workload, write_run

from servebench.analysis.asked_lengths import AskedLengths, asked_lengths
from servebench.analysis.digest import digest
from servebench.analysis.merge import summary_json
from servebench.analysis.source import RunData, load_run
from servebench.workload.model import EndpointName, Requests


def run_of(folder: Path, got: list[int], *, exact: bool = True, endpoint: EndpointName = "openai-chat") -> RunData:
    rows = [row(k, sent_ns=k * S, tokens=n, phase="main", max_tokens=8) for k, n in enumerate(got)]
    rows.append(row(len(got), sent_ns=S, phase="main", outcome="http_error", max_tokens=8))
    made = workload([])
    made = msgspec.structs.replace(
        made,
        requests=Requests(lengths="exact" if exact else "max_only"),
        target=msgspec.structs.replace(made.target, endpoint=endpoint),
    )
    spec = RunSpec(rows=rows, phases=[steady("main", 0, 20)], manifest={"workload": msgspec.to_builtins(made)})
    return load_run(write_run(folder / "run", spec))


def found_of(run: RunData) -> AskedLengths:
    found = asked_lengths(run)
    assert found is not None
    return found


def test_answers_are_counted_against_their_limits_whatever_was_asked_for(tmp_path: Path) -> None:
    found = found_of(run_of(tmp_path, [8, 8, 4, 2], exact=False))
    assert (found.asked, found.met, found.typical) == (4, 2, 0.75)
    assert (found.mark, found.sentence) == (None, None)


def test_exact_lengths_that_were_met_are_a_sentence_and_no_mark(tmp_path: Path) -> None:
    run = run_of(tmp_path, [8] * 5)
    found = found_of(run)
    assert (found.mark, found.sentence) == (None, "All 5 answers had the wanted length.")
    assert json.loads(summary_json(digest(run)))["lengths"]["met"] == 5


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [("openai-chat", "min_tokens and ignore_eos"), ("ollama-chat", "could not be pinned: ollama-chat has no words")],
)
def test_exact_lengths_that_were_not_met_stand_beside_the_verdict(
    tmp_path: Path, endpoint: EndpointName, words: str
) -> None:
    run = run_of(tmp_path, [8, 8, 8, 2, 4], endpoint=endpoint)
    mark = found_of(run).mark
    assert mark is not None
    assert "3 of 5 answers had the wanted length" in mark
    assert words in mark
    verdict = digest(run).manifest.verdict
    assert verdict is not None
    assert mark in verdict.reasons
    assert verdict.valid


def test_a_run_whose_answers_had_no_limit_says_nothing(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S, phase="main") for k in range(4)]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("main", 0, 4)])))
    assert asked_lengths(run) is None
