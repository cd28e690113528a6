"""Know how far this worker's monotonic clock is off the master's, from pings over Locust's own channel.

A worker pings 10 times a second for the first 10 s, then twice. A single answer is worth little under load; the one
with the least round trip of a few seconds is right within half of that. All are kept (`clock` parts): the fit comes
after the run.
"""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gevent
from gevent.event import Event

from servebench.core.errors import HarnessError
from servebench.core.units import NS_PER_S
from servebench.loadgen.part_writer import PartWriter
from servebench.shards.clock_schema import ClockRow, clock_table
from servebench.shards.parts import PartIdentity, WrittenPart, write_table_part

FAST_S, FAST_EVERY_S, SLOW_EVERY_S = 10.0, 0.1, 0.5
RECENT = 100
ENOUGH = 10
"""So many answers before an offset is given: 1 s at the first rate."""
ANSWER_LIMIT_S = 10.0
ROWS_PER_PART = 120


class ClockSample(NamedTuple):
    """One answered ping: asked and answered on this process's monotonic clock, in between the master's."""

    sent_ns: int
    master_ns: int
    received_ns: int


class ClockOffset(NamedTuple):
    """What to add to this process's monotonic clock to get the master's, right within +- `bound_ns`."""

    offset_ns: int
    bound_ns: int


SAME_CLOCK = ClockOffset(0, 0)


class ClockSync:
    """Pings for as long as the process lives, from `start` on. `on_sample` hear of every answer."""

    def __init__(self, ping: Callable[[int], None]) -> None:
        self.on_sample: list[Callable[[ClockSample], None]] = []
        self.recent: deque[ClockSample] = deque(maxlen=RECENT)
        self._ping = ping
        self._enough = Event()
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def start(self) -> None:
        """Begin to ping; once."""
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

    def on_pong(self, sample: ClockSample) -> None:
        """Take an answer; called by the message handler."""
        self.recent.append(sample)
        if len(self.recent) >= ENOUGH:
            self._enough.set()
        for listener in self.on_sample:
            listener(sample)

    def settle(self) -> ClockOffset:
        """Wait for enough answers and return the offset now; blocks the calling greenlet for 10 s at most.

        Raises HarnessError where the master answers none.
        """
        self._enough.wait(ANSWER_LIMIT_S)
        if not self.recent:
            msg = f"the master answered no clock ping in {ANSWER_LIMIT_S:g} s; is it of the same servebench version?"
            raise HarnessError(msg)
        return offset_of(self.recent)

    def _run(self) -> None:
        fast_until_ns = time.monotonic_ns() + round(FAST_S * NS_PER_S)
        while True:
            self._ping(time.monotonic_ns())
            gevent.sleep(FAST_EVERY_S if time.monotonic_ns() < fast_until_ns else SLOW_EVERY_S)


class ClockLog:
    """The `clock` parts of one worker in one run. The worker polls `failure` as it does the recorder's."""

    def __init__(self, folder: Path, identity: PartIdentity, master_epoch_ns: int, sync: ClockSync) -> None:
        self._folder, self._identity, self._master_epoch_ns = folder, identity, master_epoch_ns
        self._writer = PartWriter()
        self._number = 0
        self._sync = sync
        self._samples = list(sync.recent)
        sync.on_sample.append(self._add)

    @property
    def parts(self) -> tuple[WrittenPart, ...]:
        """Parts that have their name, in order."""
        return tuple(self._writer.parts)

    @property
    def failure(self) -> HarnessError | None:
        """First failed write; None while every sample is kept."""
        return self._writer.failure

    def close(self) -> tuple[WrittenPart, ...]:
        """Write what is left and return all parts; blocks the calling greenlet only."""
        if self._add in self._sync.on_sample:
            self._sync.on_sample.remove(self._add)
            self._flush()
            self._writer.close()
        return tuple(self._writer.parts)

    def _add(self, sample: ClockSample) -> None:
        self._samples.append(sample)
        if len(self._samples) >= ROWS_PER_PART:
            self._flush()

    def _flush(self) -> None:
        if not self._samples:
            return
        samples, number = self._samples, self._number
        self._samples, self._number = [], number + 1
        identity, epoch_ns = self._identity, self._master_epoch_ns
        rows = [
            ClockRow(
                sent_ns=sample.sent_ns - identity.epoch_monotonic_ns,
                master_ns=sample.master_ns - epoch_ns,
                received_ns=sample.received_ns - identity.epoch_monotonic_ns,
            )
            for sample in samples
        ]

        def write() -> WrittenPart:
            table = clock_table(rows, run_id=identity.run_id, worker=identity.worker)
            return write_table_part(self._folder, number, table, identity)

        self._writer.submit(write)


def offset_of(samples: "deque[ClockSample]") -> ClockOffset:
    """Return the offset that the sample with the least round trip tells."""
    best = min(samples, key=lambda sample: sample.received_ns - sample.sent_ns)
    bound_ns = (best.received_ns - best.sent_ns + 1) // 2
    return ClockOffset(best.master_ns - (best.sent_ns + best.received_ns) // 2, bound_ns)
