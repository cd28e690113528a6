"""Locust's own statistics stay small in a long run, and its charts and rates still work."""

from types import SimpleNamespace
from typing import Any

import pytest
from locust.stats import RequestStats, update_stats_history

from servebench.loadgen.trim import MOST_POINTS, SECONDS_KEPT, trim

DAY_S = 86_400
START_S = 1_800_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock that Locust's statistics read."""
    made = SimpleNamespace(now=float(START_S))
    monkeypatch.setattr("locust.stats.time.time", lambda: made.now)
    return made


def test_a_day_of_seconds_leaves_an_hour_and_a_chart_of_the_whole_day(clock: SimpleNamespace) -> None:
    stats = RequestStats()
    runner: Any = SimpleNamespace(stats=stats, user_count=1)
    for second in range(DAY_S):
        clock.now = float(START_S + second)
        stats.log_request("POST", "steady", 12, 100)
        if second % 10 == 0:
            stats.log_error("POST", "steady", "timeout")
        if second % 5 == 0:
            update_stats_history(runner, str(second))
        if second % 60 == 0:
            trim(stats, int(clock.now))
    for entry in (stats.total, *stats.entries.values()):
        assert len(entry.num_reqs_per_sec) <= SECONDS_KEPT + 60
        assert len(entry.num_fail_per_sec) <= SECONDS_KEPT + 60
        assert entry.num_requests == DAY_S
    assert len(stats.history) <= MOST_POINTS + 12
    times = [int(point["time"]) for point in stats.history]
    assert times == sorted(times)
    assert times[0] < 120
    assert times[-1] >= DAY_S - 60
    assert stats.total.current_rps == pytest.approx(1.0, abs=0.11)


def test_a_short_run_is_left_as_it_is(clock: SimpleNamespace) -> None:
    stats = RequestStats()
    runner: Any = SimpleNamespace(stats=stats, user_count=1)
    for second in range(600):
        clock.now = float(START_S + second)
        stats.log_request("POST", "steady", 12, 100)
        update_stats_history(runner, str(second))
    trim(stats, int(clock.now))
    assert len(stats.history) == 600
    assert len(stats.total.num_reqs_per_sec) == 600
