"""Which deadline of a request runs when. Times are small numbers: connect 5, first token 60, idle 30, total 600."""

import pytest

from servebench.core.units import NS_PER_S
from servebench.loadgen.transport.deadlines import (
    LINGER_NS,
    NEVER,
    Alarm,
    Patience,
    Progress,
    deadline_words,
    next_deadline,
)
from servebench.wire.outcome import End
from servebench.workload.model import Timeouts

TIMEOUTS = Timeouts(connect_ns=5, first_token_ns=60, idle_ns=30, total_ns=600)


def progress(
    *,
    connecting: int | None = None,
    sent: int | None = None,
    last_read: int | None = None,
    token_due: bool = True,
    done: int | None = None,
) -> Progress:
    return Progress(connecting, sent, last_read, token_due, done)


@pytest.mark.parametrize(
    ("stage", "due", "end"),
    [
        pytest.param(progress(), NEVER, End.TIMEOUT_TOTAL, id="nothing has begun"),
        pytest.param(progress(connecting=100), 105, End.TIMEOUT_CONNECT, id="connecting"),
        pytest.param(progress(sent=100), 160, End.TIMEOUT_FIRST_TOKEN, id="sent"),
        pytest.param(progress(sent=100, last_read=101), 160, End.TIMEOUT_FIRST_TOKEN, id="head but no token"),
        pytest.param(progress(sent=100, last_read=150, token_due=False), 180, End.TIMEOUT_IDLE, id="streaming"),
        pytest.param(progress(sent=100, last_read=690, token_due=False), 700, End.TIMEOUT_TOTAL, id="streaming long"),
        pytest.param(progress(sent=100, token_due=False), 700, End.TIMEOUT_TOTAL, id="no stream, no byte yet"),
        pytest.param(progress(sent=100, connecting=130), 135, End.TIMEOUT_CONNECT, id="reconnecting"),
        pytest.param(progress(sent=100, connecting=158), 160, End.TIMEOUT_FIRST_TOKEN, id="reconnecting late"),
    ],
)
def test_the_earliest_running_deadline_counts(stage: Progress, due: int, end: End) -> None:
    assert next_deadline(stage, TIMEOUTS) == (due, end)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (End.TIMEOUT_CONNECT, "no connection within 2s (requests.timeouts.connect)"),
        (End.TIMEOUT_FIRST_TOKEN, "no token came within 1m (requests.timeouts.first_token)"),
        (End.TIMEOUT_IDLE, "nothing came for 250ms (requests.timeouts.idle)"),
        (End.TIMEOUT_TOTAL, "not over after 10m (requests.timeouts.total)"),
        (End.EOF, None),
        (End.CANCELLED, None),
    ],
)
def test_a_passed_deadline_is_told_with_its_length_and_where_it_is_set(end: End, words: str | None) -> None:
    limits = Timeouts(
        connect_ns=2 * NS_PER_S, first_token_ns=60 * NS_PER_S, idle_ns=250_000_000, total_ns=600 * NS_PER_S
    )
    assert deadline_words(end, limits) == words


def test_an_answer_that_is_over_lingers_for_the_end_of_its_message() -> None:
    long = Timeouts(connect_ns=10**12, first_token_ns=10**12, idle_ns=10**12, total_ns=10**12)
    stage = progress(sent=100, last_read=190, token_due=False, done=150)
    assert next_deadline(stage, long) == (150 + LINGER_NS, End.COMPLETE)


@pytest.mark.parametrize(
    ("stage", "due", "end"),
    [
        pytest.param(progress(connecting=100), 105, End.TIMEOUT_CONNECT, id="patience runs from sending"),
        pytest.param(progress(sent=100), 140, End.ABANDONED, id="before the first token"),
        pytest.param(progress(sent=100, last_read=135, token_due=False), 140, End.ABANDONED, id="in the stream"),
        pytest.param(progress(sent=100, last_read=105, token_due=False), 135, End.TIMEOUT_IDLE, id="idle is earlier"),
    ],
)
def test_a_user_leaves_when_his_patience_is_the_earliest_to_end(stage: Progress, due: int, end: End) -> None:
    assert next_deadline(stage, TIMEOUTS, Patience(40, None)) == (due, end)


def test_the_alarm_goes_off_at_the_earliest_time_that_was_asked_for() -> None:
    alarm = Alarm()
    assert alarm.at_ns == NEVER
    for due, expected in ((700, 700), (900, 700), (NEVER, 700), (650, 650)):
        alarm.set(due)
        assert alarm.at_ns == expected
