"""Know which of Locust's own statistics grow without end, and keep them as large as its charts need.

In 24 h a few rows make 27 MB of per-second counts and 17 MB of history, and opening the web page sends all of it. What
is cut here is decoration: numbers of record are in the parts.
"""

import time
from typing import Any

import gevent

EVERY_S = 60.0
MOST_POINTS = 3000
"""Points of the chart; past that every second one goes, so that it still shows the whole run."""
SECONDS_KEPT = 3600
"""Locust looks back 20 s at most."""


def keep_trimming(stats: Any) -> None:  # noqa: ANN401 - Locust is untyped
    """Trim the statistics of a runner once a minute, for ever; the caller spawns it."""
    while True:
        gevent.sleep(EVERY_S)
        trim(stats, int(time.time()))


def trim(stats: Any, now_s: int) -> None:  # noqa: ANN401 - Locust is untyped
    """Thin the history and drop per-second counts older than an hour; `now_s` is wall-clock time, as Locust's keys."""
    while len(stats.history) > MOST_POINTS:
        # In place: Locust holds the list elsewhere too. The newest point stays.
        del stats.history[-2::-2]
    for entry in (stats.total, *stats.entries.values()):
        for counts in (entry.num_reqs_per_sec, entry.num_fail_per_sec):
            for second in [second for second in counts if second < now_s - SECONDS_KEPT]:
                del counts[second]
