"""Know how late the hub of a process is: whatever it does for others waits as long."""

import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

import gevent

from servebench.core.units import NS_PER_MS, NS_PER_S

TICK_NS = 10 * NS_PER_MS
KEPT_TICKS = 1000
"""Newest ticks that are kept while nobody takes them: 10 s."""


class HubTicker:
    """A greenlet that wants to run every 10 ms and notes how late it does.

    A missed tick is made up for at once with its own lateness, so a stall of 100 ms is ten late ticks, as it would be
    ten late tokens. Start it with the process: what it sees before a run is that run's idle level.
    """

    def __init__(self) -> None:
        self._lags = array("q")
        self._pauses = 0
        self._counts_from_ns = 0
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def start(self) -> None:
        """Begin to tick; once."""
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End the ticking."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count no tick that is due within the block, which gets ready for a run and may stall the hub for it.

        Such a stall harms no request of that run, and is not the level of an idle hub either. A run that drains beside
        it misses these ticks too.
        """
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self._counts_from_ns = time.monotonic_ns()

    def take(self) -> "array[int]":
        """Return the latenesses in ns since the last call, oldest first; while nobody calls, the last 10-20 s."""
        lags, self._lags = self._lags, array("q")
        return lags

    def _run(self) -> None:
        due_ns = time.monotonic_ns()
        while True:
            due_ns += TICK_NS
            gevent.sleep(max(0, due_ns - time.monotonic_ns()) / NS_PER_S)
            now_ns = time.monotonic_ns()
            if self._pauses or due_ns < self._counts_from_ns:
                due_ns = now_ns
                continue
            self._lags.append(max(0, now_ns - due_ns))
            if len(self._lags) >= 2 * KEPT_TICKS:
                del self._lags[:KEPT_TICKS]
