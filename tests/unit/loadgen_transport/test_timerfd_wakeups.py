"""Sleeping until an absolute time. No test says how late a wake-up may be: that is the machine's affair."""

import time
from collections.abc import Iterator

import gevent
import pytest

from servebench.loadgen.worker.timerfd import TimerFd

MS = 1_000_000


@pytest.fixture
def timer() -> Iterator[TimerFd]:
    made = TimerFd()
    yield made
    made.close()


@pytest.mark.parametrize("after_ns", [1, 200_000, 3 * MS, 21 * MS])
def test_the_sleeper_never_wakes_before_its_time(timer: TimerFd, after_ns: int) -> None:
    at_ns = time.monotonic_ns() + after_ns
    timer.sleep_until(at_ns)
    assert time.monotonic_ns() >= at_ns


@pytest.mark.parametrize("at_ns", [-5, 0, 1])
def test_a_time_in_the_past_returns_and_lets_others_run(timer: TimerFd, at_ns: int) -> None:
    ran: list[str] = []
    gevent.spawn(ran.append, "other")
    timer.sleep_until(at_ns)
    assert ran == ["other"]


def test_another_greenlet_wakes_the_sleeper_early(timer: TimerFd) -> None:
    far = time.monotonic_ns() + 3600 * 1000 * MS
    gevent.spawn(timer.arm, 1)
    timer.sleep_until(far)
    assert time.monotonic_ns() < far


def test_another_greenlet_moves_the_sleep_to_a_later_time(timer: TimerFd) -> None:
    later = time.monotonic_ns() + 40 * MS
    gevent.spawn(timer.arm, later)
    timer.sleep_until(time.monotonic_ns() + 20 * MS)
    assert time.monotonic_ns() >= later


def test_sleeps_follow_each_other_on_one_timer(timer: TimerFd) -> None:
    start = time.monotonic_ns()
    for step in range(1, 20):
        timer.sleep_until(start + step * MS)
        assert time.monotonic_ns() >= start + step * MS


def test_closing_twice_changes_nothing(timer: TimerFd) -> None:
    timer.close()
    timer.close()
