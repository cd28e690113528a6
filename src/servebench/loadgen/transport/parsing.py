"""Know when answers are parsed: in slices between which the loop runs, so that a wave of endings stalls nothing.

Reads are kept as they come and parsed later. A turn takes at most about a millisecond, less when a request is due
before that (one read may exceed it), then sockets and timers have theirs: the next slice is a timer of zero, which the
loop serves once per iteration. A greenlet that only yielded would be resumed for up to 5 ms before the loop looks at
descriptors again.
"""

import time
from collections import deque
from typing import Protocol

import gevent

from servebench.core.units import NS_PER_MS
from servebench.loadgen.next_due import NextDue

SLICE_NS = NS_PER_MS


class Parseable(Protocol):
    """Something with unparsed reads."""

    def parse(self, until_ns: int) -> bool:
        """Parse until done (True) or until the time is past (False); must not raise, block or switch greenlets."""


class ParseQueue:
    """Work through what is queued, one slice per loop iteration. `add` and `close` may be called by any greenlet."""

    def __init__(self, next_due: NextDue | None = None) -> None:
        self._room_ns = (next_due or NextDue()).room_ns
        self._waiting: deque[Parseable] = deque()
        self._timer = gevent.get_hub().loop.timer(0)
        self._armed = False

    def add(self, item: Parseable) -> None:
        """Queue an item, which must not be queued already; does not block."""
        self._waiting.append(item)
        self._arm()

    def close(self) -> None:
        """Drop what waits; does not block."""
        self._waiting.clear()
        self._timer.stop()
        self._timer.close()

    def _turn(self) -> None:
        self._armed = False
        now_ns = time.monotonic_ns()
        until_ns = now_ns + min(SLICE_NS, self._room_ns(now_ns))
        waiting = self._waiting
        while waiting:
            item = waiting.popleft()
            if not item.parse(until_ns):
                waiting.append(item)  # behind the others: a huge answer must not hold up small ones
            if time.monotonic_ns() >= until_ns:
                break
        if waiting:
            self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._timer.stop()
            self._timer.start(self._turn)
