"""Answers are checked beside the load; no check can hold the worker up, lose a row or stop the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from tests.record_builders import EPOCH_NS, answer, record

from servebench.core.errors import InputError
from servebench.core.outcomes import CountedSource, Outcome, TokenSource
from servebench.core.records import RequestRecord
from servebench.loadgen.worker.accepting import MAX_ENDS, AnswerChecker
from servebench.workload.checks import checks_json, read_check

LIMIT_S = 60

OWN = """
import os, signal, time

def good(answer):
    if answer.text == "end":
        os._exit(3)
    if answer.text == "hold":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(600)
    if answer.text == "slow":
        time.sleep(600)
    return answer.text.startswith("good")
"""


@contextmanager
def checker_of(*items: dict[str, Any], folder: Path) -> Iterator[AnswerChecker]:
    checker = AnswerChecker([read_check(item, folder) for item in items], of_prompts=True)
    checker.open()
    try:
        yield checker
    finally:
        checker.close()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def rows(checker: AnswerChecker, texts: list[str], prompt_checks: bytes = b"") -> list[RequestRecord]:
    """Check answers of these texts at once, as a worker's requests do."""
    greenlets = [
        gevent.spawn(checker.checked, record(seq, answer=answer(text=text)), prompt_checks)
        for seq, text in enumerate(texts)
    ]
    assert len(gevent.joinall(greenlets, timeout=LIMIT_S)) == len(texts)
    return [greenlet.get() for greenlet in greenlets]


def test_verdict_reason_and_time_are_put_into_the_row(tmp_path: Path) -> None:
    with checker_of({"contains": "Paris"}, folder=tmp_path) as checker:
        good, bad = rows(checker, ["in Paris", "in Rome"])
    assert (good.accepted, good.accept_reason) == (True, None)
    assert (bad.accepted, bad.accept_reason) == (False, "contains: text 1 of 1 is missing")
    for row in (good, bad):
        assert row.validated_ns is not None
        assert row.validated_ns > row.answer.end_ns == EPOCH_NS + 9_000


def test_only_whole_answers_of_which_something_is_asked_are_checked(tmp_path: Path) -> None:
    with checker_of(folder=tmp_path) as checker:
        own = checks_json((read_check({"exact": "7"}, tmp_path),))
        assert not checker.wants(answer(text="7"), b"")
        assert checker.wants(answer(text="7"), own)
        assert not checker.wants(answer(text="7", outcome=Outcome.TRUNCATED), own)
        assert [row.accepted for row in rows(checker, ["7", "8"], own)] == [True, False]


def test_an_answer_without_text_is_left_open(tmp_path: Path) -> None:
    with checker_of({"json": "strict"}, folder=tmp_path) as checker:
        found = checker.checked(record(0, answer=answer(text=None)), b"")
    assert (found.accepted, found.validated_ns) == (None, None)
    assert found.accept_reason == "not checked: the answer is no text, or too long to be kept"


@pytest.mark.parametrize(
    ("source", "counted", "accepted"),
    [(TokenSource.USAGE, None, True), (TokenSource.EVENTS, 3, False), (TokenSource.EVENTS, None, None)],
)
def test_a_length_in_tokens_is_by_usage_or_our_own_count_and_never_by_events(
    tmp_path: Path, source: TokenSource, counted: int | None, accepted: bool | None
) -> None:
    with checker_of({"tokens": {"max": 2}}, folder=tmp_path) as checker:
        given = answer(text="a b", output_tokens=2, token_source=source)
        counted_by = None if counted is None else CountedSource.O200K
        found = checker.checked(record(0, answer=given, output_tokens_counted=counted, counted_source=counted_by), b"")
    assert found.accepted is accepted


def test_a_process_that_ends_is_replaced_and_only_the_answer_it_was_at_is_left_open(own: Path) -> None:
    with checker_of({"python": "own:good"}, folder=own) as checker:
        found = rows(checker, ["good 1", "end", "good 2", "bad"])
    assert [row.accepted for row in found] == [True, None, True, False]
    assert found[1].accept_reason == "not checked: the checking process ended with code 3"


def test_a_check_that_no_timer_reaches_is_ended_from_outside(own: Path) -> None:
    with checker_of({"python": "own:good"}, {"time_limit": "20ms"}, folder=own) as checker:
        found = rows(checker, ["hold", "good"])
    assert [row.accepted for row in found] == [None, True]
    assert found[0].accept_reason == "not checked: the checking process was ended by signal 9"


def test_after_too_many_ends_no_answer_is_checked_any_more_and_the_rows_say_so(own: Path) -> None:
    with checker_of({"python": "own:good"}, folder=own) as checker:
        found = rows(checker, ["end"] * (MAX_ENDS + 1) + ["good", "good"])
        late = rows(checker, ["good"])
    assert [row.accepted for row in found + late] == [None] * (MAX_ENDS + 4)
    assert (
        late[0].accept_reason == f"not checked: the checking process ended {MAX_ENDS + 1} times; it ended with code 3"
    )


def test_the_hub_goes_on_while_a_pattern_backtracks_without_end(tmp_path: Path) -> None:
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while True:
            gevent.sleep(0.005)
            ticks += 1

    with checker_of({"regex": "^(a|aa)+$"}, {"time_limit": "300ms"}, folder=tmp_path) as checker:
        ticker = gevent.spawn(tick)
        (found,) = rows(checker, ["a" * 60 + "!"])
        ticker.kill()
    assert found.accept_reason == "not checked: took longer than 300ms"
    assert ticks >= 10


def test_what_waits_at_the_end_is_left_open(own: Path) -> None:
    with checker_of({"python": "own:good"}, {"time_limit": "600s"}, folder=own) as checker:
        waiting = gevent.spawn(checker.checked, record(0, answer=answer(text="slow")), b"")
        gevent.sleep(0.05)
        checker.close()
        found = waiting.get(timeout=LIMIT_S)
        after = checker.checked(record(0, answer=answer(text="good")), b"")
    assert found.accept_reason == after.accept_reason == "not checked: the run ended before"


def test_answers_beyond_the_memory_for_them_are_left_open(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servebench.loadgen.worker.accepting.MAX_WAITING_BYTES", 300)
    with checker_of({"python": "own:good"}, {"time_limit": "100ms"}, folder=own) as checker:
        found = rows(checker, ["slow", "good" * 100, "good"])
    assert [row.accepted for row in found] == [None, None, True]
    assert found[1].accept_reason == "not checked: the checks are slower than the answers come"


def test_checks_that_cannot_be_applied_end_the_preparation(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def good(answer): return True\nraise ValueError('no weights')\n")
    checker = AnswerChecker([read_check({"python": "own:good"}, tmp_path)], of_prompts=False)
    with pytest.raises(InputError, match="ValueError: no weights"):
        checker.open()
