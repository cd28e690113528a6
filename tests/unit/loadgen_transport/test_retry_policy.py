"""Which attempts are followed by another, after how long, and where that goes."""

import pytest

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, SendStamps
from servebench.loadgen.transport.exchange import Exchange
from servebench.loadgen.transport.retrying import MAX_REDIRECTS, Course, pause_s
from servebench.workload.model import Retrying


def answer(outcome: Outcome, status: int | None = None, retry_after_s: float | None = None) -> Answer:
    return Answer(outcome=outcome, http_status=status, retry_after_s=retry_after_s, end_ns=1)


def exchange(given: Answer, redirected_to: str | None = None) -> Exchange:
    return Exchange(
        stamps=SendStamps(),
        answer=given,
        reconnects=0,
        conn_reused=None,
        request_bytes=0,
        redirected_to=redirected_to,
    )


BUSY = answer(Outcome.HTTP_ERROR, 503)
MOVED = exchange(answer(Outcome.HTTP_ERROR, 307), "/there")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_a_busy_or_broken_server_is_asked_again(status: int) -> None:
    assert pause_s(answer(Outcome.HTTP_ERROR, status), 1) == 0.5


def test_a_connection_that_did_not_come_up_is_tried_again() -> None:
    assert pause_s(answer(Outcome.CONNECT_ERROR), 1) == 0.5


@pytest.mark.parametrize(
    "given",
    [
        answer(Outcome.OK, 200),
        answer(Outcome.HTTP_ERROR, 400),
        answer(Outcome.HTTP_ERROR, 401),
        answer(Outcome.HTTP_ERROR, 404),
        answer(Outcome.STREAM_ERROR, 200),
        answer(Outcome.TRUNCATED, 200),
        answer(Outcome.TIMEOUT),
        answer(Outcome.CANCELLED),
    ],
    ids=lambda given: f"{given.outcome}-{given.http_status}",
)
def test_an_answer_that_had_begun_or_will_not_change_is_not(given: Answer) -> None:
    assert pause_s(given, 1) is None


def test_the_pause_doubles_up_to_a_minute() -> None:
    assert [pause_s(BUSY, retry) for retry in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


def test_the_servers_own_pause_is_kept_to_the_second() -> None:
    assert pause_s(answer(Outcome.HTTP_ERROR, 429, 7.0), 3) == 7.0
    assert pause_s(answer(Outcome.HTTP_ERROR, 429, 0.0), 3) == 0.0


def test_a_server_that_wants_more_than_a_minute_is_not_asked_again() -> None:
    assert pause_s(answer(Outcome.HTTP_ERROR, 429, 61.0), 1) is None


def test_no_more_attempts_follow_than_were_asked_for() -> None:
    course = Course(2, redirects=False)
    pauses = [course.pause_after_s(exchange(BUSY)) for _ in range(3)]
    assert pauses == [0.5, 1.0, None]
    assert course.attempt == 2


def test_a_redirect_is_followed_only_when_asked() -> None:
    course = Course(0, redirects=False)
    assert course.pause_after_s(MOVED) is None
    assert course.path is None


def test_a_followed_redirect_is_an_attempt_of_its_own_at_once() -> None:
    course = Course(0, redirects=True)
    assert course.pause_after_s(MOVED) == 0.0
    assert (course.attempt, course.path) == (1, "/there")


def test_a_circle_of_redirects_ends() -> None:
    course = Course(0, redirects=True)
    pauses = [course.pause_after_s(MOVED) for _ in range(MAX_REDIRECTS + 1)]
    assert pauses == [0.0] * MAX_REDIRECTS + [None]


def test_a_policy_names_the_statuses_and_the_pauses() -> None:
    policy = Retrying(statuses=(429,), pause_ns=100_000_000, longest_ns=300_000_000)
    limited = answer(Outcome.HTTP_ERROR, 429)
    assert [pause_s(limited, retry, policy) for retry in range(1, 5)] == [0.1, 0.2, 0.3, 0.3]
    assert pause_s(BUSY, 1, policy) is None
    assert pause_s(answer(Outcome.HTTP_ERROR, 429, retry_after_s=0.2), 1, policy) == 0.2
    assert pause_s(answer(Outcome.HTTP_ERROR, 429, retry_after_s=0.4), 1, policy) is None
    assert pause_s(answer(Outcome.CONNECT_ERROR), 1, policy) == 0.1


def test_out_of_budget_nothing_is_sent_again_but_a_redirect_is_followed() -> None:
    course = Course(5, redirects=True)
    assert course.pause_after_s(exchange(BUSY), in_budget=False) is None
    assert course.attempt == 0
    assert course.pause_after_s(MOVED, in_budget=False) == 0.0
    assert course.pause_after_s(exchange(BUSY)) == 0.5
