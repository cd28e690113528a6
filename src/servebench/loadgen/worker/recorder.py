"""Know how finished requests become parts while the load goes on."""

from pathlib import Path

from servebench.core.errors import HarnessError
from servebench.core.records import RequestRecord
from servebench.core.units import NS_PER_S
from servebench.loadgen.part_writer import MAX_PENDING, PartWriter
from servebench.shards.columns import MAX_ROWS, PartBuffer
from servebench.shards.parts import PartIdentity, WrittenPart, encode_part, write_part

MAX_CHUNKS = 2_000_000
"""Events after which a part is full whatever its rows: about 50 MB in memory, 6 MB on disk."""

HANG_S = 60
"""A disk that does not take one part for so long is taken for dead."""


class Recorder:
    """The rows of one worker in one run.

    A part is flushed when it has `max_rows` rows or MAX_CHUNKS events, or when its first row ended `max_age_s` ago and
    no other part is being written: a slow disk gets few large parts. The worker polls `failure`: not None means that
    rows are not being written and the run must stop with exit code 4.
    """

    def __init__(self, folder: Path, identity: PartIdentity, *, max_rows: int = 2000, max_age_s: float = 5.0) -> None:
        if not 0 < max_rows <= MAX_ROWS:
            msg = f"max_rows = {max_rows}: must be 1 to {MAX_ROWS}"
            raise ValueError(msg)
        self.rows = 0
        self.dropped = 0
        self._folder = folder
        self._identity = identity
        self._max_rows = max_rows
        self._max_age_ns = round(max_age_s * NS_PER_S)
        self._writer = PartWriter(MAX_PENDING)
        self._number = 0
        self._buffer = PartBuffer()
        self._first_end_ns = 0
        self._closed = False
        _warm_up(identity)

    @property
    def failure(self) -> HarnessError | None:
        """First failed write or overflow of the queue; None while every row is kept."""
        return self._writer.failure

    @property
    def parts(self) -> tuple[WrittenPart, ...]:
        """Parts that have their name, in order."""
        return tuple(self._writer.parts)

    @property
    def writing(self) -> bool:
        """Whether a part is on its way to the disk."""
        return self._writer.begun_ns is not None

    def add(self, record: RequestRecord) -> None:
        """Keep one row; called by request greenlets, never blocks or switches.

        After an overflow the open part still takes rows up to its hard limit; rows past that are counted in `dropped`.
        Raises HarnessError after `close`, ValueError for a record whose chunk arrays do not fit together.
        """
        if self._closed:
            msg = f"request {record.request_id} ended after its recorder was closed"
            raise HarnessError(msg)
        if len(self._buffer) >= MAX_ROWS:
            self.dropped += 1
            return
        if not len(self._buffer):
            self._first_end_ns = record.answer.end_ns
        self._buffer.add(record)
        self.rows += 1
        if len(self._buffer) >= self._max_rows or self._buffer.chunk_count >= MAX_CHUNKS:
            self._flush_unless_full()

    def tick(self, now_ns: int) -> None:
        """Flush by age; the worker calls it once a second with CLOCK_MONOTONIC. Never blocks."""
        begun_ns = self._writer.begun_ns
        if begun_ns is None:
            if len(self._buffer) and now_ns - self._first_end_ns >= self._max_age_ns:
                self._flush()
        elif now_ns - begun_ns > HANG_S * NS_PER_S:
            msg = f"{self._folder} took no part for {HANG_S} s; check that disk, or give another folder with --out"
            self._writer.fail(HarnessError(msg))

    def close(self) -> tuple[WrittenPart, ...]:
        """Flush what is left and return all parts; blocks the calling greenlet until they are on disk.

        A failure is not raised: see `failure`.
        """
        if not self._closed:
            self._closed = True
            self._flush()
            self._writer.close()
        return self.parts

    def _flush_unless_full(self) -> None:
        if not self._writer.full:
            self._flush()
            return
        self._writer.fail(
            HarnessError(
                f"{MAX_PENDING} parts wait for {self._folder}, whose disk is slower than the load; "
                "use more workers on other disks, or give a faster folder with --out"
            )
        )

    def _flush(self) -> None:
        if not len(self._buffer):
            return
        buffer, number = self._buffer, self._number
        self._buffer, self._number = PartBuffer(), number + 1
        self._writer.submit(lambda: write_part(self._folder, number, buffer, self._identity))


def _warm_up(identity: PartIdentity) -> None:
    """Pay Arrow's first-use costs now, tens of ms, and not in the first flush beside open streams."""
    table = PartBuffer().to_table(
        run_id=identity.run_id, worker=identity.worker, epoch_monotonic_ns=identity.epoch_monotonic_ns
    )
    encode_part(table, identity)
