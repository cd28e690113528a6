"""Know when a read arrived: the kernel's receive stamp on the monotonic clock, or that there is none to trust.

SO_TIMESTAMPNS stamps a segment when the kernel receives it, so a busy client adds nothing to a token's time. The stamp
is CLOCK_REALTIME. It is mapped with REALTIME minus MONOTONIC as sampled in the same epoll batch, and refused when it
says something impossible, which is how a step of the wall clock shows.
"""

import struct
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from servebench.core.units import NS_PER_S

SO_TIMESTAMPNS = 35
"""Linux option number; the socket module has no name for it before Python 3.13."""

STAMP_SPACE = 64
"""Bytes of ancillary data to ask for: one struct timespec and its header take 32."""

NO_DELAY = -1
"""The read delay of a read without kernel stamp."""

_MAX_DELAY_NS = 2**31 - 1  # chunk delays are int32
_MAX_KEPT = 1 << 16
_SAMPLE_NS = 2_000
_SAMPLE_TRIES = 5
_timespec = struct.Struct("qq").unpack

Ancillary = Sequence[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStats:
    """Reads since the last look.

    `rejected` had a kernel stamp that cannot be true, `missing` had none. Delays are from the kernel's stamp to the
    read, over the stamped reads; None where there was none.
    """

    reads: int
    kernel_stamped: int
    rejected: int
    missing: int
    bytes: int
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    delay_max_ns: int | None
    delay_sum_ns: int


class ReadClock:
    """Stamps reads and counts how it went; used by the reactor, in the hub."""

    __slots__ = (
        "_bytes",
        "_delays",
        "_keep",
        "_limit_ns",
        "_missing",
        "_monotonic_ns",
        "_offset_ns",
        "_polled_ns",
        "_realtime_ns",
        "_rejected",
        "_thinned",
    )

    def __init__(
        self, monotonic_ns: Callable[[], int] = time.monotonic_ns, realtime_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._realtime_ns = realtime_ns
        self._polled_ns = monotonic_ns()
        self._limit_ns = NS_PER_S
        self._offset_ns = 0
        self._delays = array("q")
        self._keep = self._delays.append
        self._thinned = self._rejected = self._missing = 0
        self._bytes = 0
        self.begin_batch()

    def begin_batch(self) -> int:
        """Sample the clocks, once per epoll batch and before its first read; return the monotonic one. Never blocks."""
        monotonic, realtime = self._monotonic_ns, self._realtime_ns
        before, real, after = monotonic(), realtime(), monotonic()
        tries = 1
        while after - before > _SAMPLE_NS and tries < _SAMPLE_TRIES:  # the thread was interrupted between the clocks
            before, real, after = monotonic(), realtime(), monotonic()
            tries += 1
        self._offset_ns = real - (before + after) // 2
        self._limit_ns = before - self._polled_ns + NS_PER_S
        self._polled_ns = before
        if len(self._delays) > _MAX_KEPT:
            kept = self._delays[::2]
            self._thinned += len(self._delays) - len(kept)
            self._keep_in(kept)
        return before

    def stamp(self, ancillary: Ancillary, size: int) -> tuple[int, int]:
        """Return (monotonic ns of arrival, read delay in ns) of a read of `size` bytes that just came back.

        Without a believable kernel stamp it is (now, NO_DELAY). Called in the hub; does not block.
        """
        now = self._monotonic_ns()
        self._bytes += size
        if not ancillary:
            self._missing += 1
            return now, NO_DELAY
        seconds, rest = _timespec(ancillary[0][2])  # nothing but SO_TIMESTAMPNS is enabled on these sockets
        delay = now - (seconds * NS_PER_S + rest - self._offset_ns)
        if 0 <= delay <= self._limit_ns:
            self._keep(delay)
            return now - delay, delay if delay <= _MAX_DELAY_NS else _MAX_DELAY_NS
        self._rejected += 1
        return now, NO_DELAY

    def take(self) -> ReadStats:
        """Return the counts since the last call and start new ones; any greenlet, does not block.

        Percentiles are exact up to 65,536 stamped reads, above that of every second (fourth, ...) read.
        """
        delays = np.frombuffer(self._delays, dtype=np.int64) if self._delays else np.empty(0, dtype=np.int64)
        p50, p99 = np.percentile(delays, (50, 99)) if delays.size else (None, None)
        kernel = delays.size + self._thinned
        stats = ReadStats(
            reads=kernel + self._rejected + self._missing,
            kernel_stamped=kernel,
            rejected=self._rejected,
            missing=self._missing,
            bytes=self._bytes,
            delay_p50_ns=None if p50 is None else round(p50),
            delay_p99_ns=None if p99 is None else round(p99),
            delay_max_ns=int(delays.max()) if delays.size else None,
            delay_sum_ns=int(delays.sum()),
        )
        self._clear()
        return stats

    def _keep_in(self, delays: "array[int]") -> None:
        self._delays = delays
        self._keep = delays.append

    def _clear(self) -> None:
        self._keep_in(array("q"))
        self._thinned = self._rejected = self._missing = 0
        self._bytes = 0
