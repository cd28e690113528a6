"""Know how the steps of answers become parts of `spans` while the load goes on."""

import time
from collections.abc import Sequence
from pathlib import Path

from servebench.core.errors import HarnessError
from servebench.core.units import NS_PER_S
from servebench.loadgen.part_writer import MAX_PENDING, PartWriter
from servebench.shards.parts import PartIdentity, WrittenPart, write_table_part
from servebench.shards.span_schema import SpanRow, span_table

ROWS_PER_PART = 2_000
MAX_ROWS = 32_767
"""Rows that one part takes."""
MAX_AGE_NS = 5 * NS_PER_S


class SpanRecorder:
    """The steps of one process in one folder, written by a thread of its own.

    `failure` is why rows are not being written, None while all is well. Rows that come after `close` belong to answers
    that were given up, and are dropped.
    """

    def __init__(self, folder: Path, identity: PartIdentity) -> None:
        self._folder, self._identity = folder, identity
        self._rows: list[SpanRow] = []
        self._first_ns = self._answers = self._number = 0
        self._writer = PartWriter(MAX_PENDING)
        self._closed = False

    @property
    def failure(self) -> HarnessError | None:
        """First failed write or overflow of the queue."""
        return self._writer.failure

    @property
    def parts(self) -> tuple[WrittenPart, ...]:
        """Parts that have their name, in order."""
        return tuple(self._writer.parts)

    def next_answer(self) -> int:
        """Return the number of another answer of this process, from 1."""
        self._answers += 1
        return self._answers

    def add(self, rows: Sequence[SpanRow]) -> None:
        """Keep the rows of one answer, the answer itself last; never blocks or switches."""
        if self._closed:
            return
        if not self._rows:
            self._first_ns = rows[-1].end_ns
        if len(self._rows) + len(rows) > MAX_ROWS:
            self._flush()
        self._rows += rows[-MAX_ROWS:]
        if len(self._rows) >= ROWS_PER_PART:
            self._flush()
        else:
            self.tick(rows[-1].end_ns)

    def tick(self, now_ns: int) -> None:
        """Write what has waited for 5 s (CLOCK_MONOTONIC). Never blocks."""
        if self._rows and now_ns - self._first_ns >= MAX_AGE_NS:
            self._flush()

    def close(self) -> None:
        """Write what is left; blocks the calling greenlet until it is on disk.

        A failure is not raised: see `failure`.
        """
        if not self._closed:
            self._closed = True
            self._flush()
            self._writer.close()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer.full:
            self._writer.fail(HarnessError(f"{MAX_PENDING} parts wait for {self._folder}: its disk is too slow"))
            return
        rows, number, identity, folder = self._rows, self._number, self._identity, self._folder
        self._rows, self._number, self._first_ns = [], number + 1, time.monotonic_ns()

        def write() -> WrittenPart:
            table = span_table(
                rows,
                run_id=identity.run_id,
                worker=identity.worker,
                epoch_monotonic_ns=identity.epoch_monotonic_ns,
            )
            return write_table_part(folder, number, table, identity)

        self._writer.submit(write)
