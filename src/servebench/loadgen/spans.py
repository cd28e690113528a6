"""Know how a user's own locustfile times an answer that is made of several steps.

    spans = Spans("runs/rag")
    with spans.answer("question") as answer:
        with answer.span("retrieval"):
            passages = search(question)
        with answer.span("model") as model:
            with model.span("first call"):
                ...

One row per step and per answer goes to `runs/rag/spans/part-*.parquet`; `servebench spans runs/rag` shows where the
time went. Steps may run side by side, in other greenlets: each `span` says whose step it is.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servebench.core.errors import HarnessError, InputError
from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.loadgen.part_writer import MAX_PENDING, PartWriter
from servebench.loadgen.runclock import boot_id
from servebench.shards.folder import worker_name
from servebench.shards.parts import PartIdentity, WrittenPart, write_table_part
from servebench.shards.span_schema import WHOLE, SpanRow, span_table

ROWS_PER_PART = 2_000
MAX_ROWS = 32_767
"""Rows that one part takes."""
MAX_AGE_NS = 5 * NS_PER_S


class Step:
    """A step that is going on, or the answer itself; `span` begins a step of it."""

    __slots__ = ("_answer", "number")

    def __init__(self, answer: "_Answer", number: int) -> None:
        self._answer, self.number = answer, number

    @contextmanager
    def span(self, name: str) -> Iterator["Step"]:
        """Time a step; what it raises is noted by its class and goes on."""
        with self._answer.timed(name, self.number) as step:
            yield step


class _Answer:
    """One answer: numbers its steps and collects their rows until it ends."""

    def __init__(self, name: str, answer_id: int) -> None:
        self.rows: list[SpanRow] = []
        self._name, self._id = name, answer_id
        self._numbers = 0

    @contextmanager
    def timed(self, name: str, parent: int | None) -> Iterator[Step]:
        number = self._numbers
        self._numbers += 1
        error: str | None = None
        start_ns = time.monotonic_ns()
        try:
            yield Step(self, number)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            end_ns = time.monotonic_ns()
            self.rows.append(SpanRow(self._id, number, parent, self._name, name, start_ns, end_ns, error))


class Spans:
    """Records answers and their steps in a folder; one for each process, one folder for each run.

    `fire`: Locust's `environment.events.request.fire`; then its statistics and page show each answer too. Rows are
    written by a thread of its own, at the latest 5 s after the answer ended as long as others follow. Raises InputError
    where the folder cannot be made.
    """

    def __init__(self, folder: str | Path, *, fire: Callable[..., Any] | None = None) -> None:
        self._folder = Path(folder) / "spans"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"cannot make {self._folder}: {error.strerror}; give a writable folder"
            raise InputError(msg) from error
        now_ns = time.monotonic_ns()
        self._identity = PartIdentity(
            run_id=Path(folder).name or "spans",
            worker=worker_name(0, secrets.token_hex(4)),
            epoch_monotonic_ns=now_ns,
            epoch_unix_ns=time.time_ns() - (time.monotonic_ns() - now_ns),
            boot_id=boot_id(),
        )
        self._fire = fire
        self._rows: list[SpanRow] = []
        self._first_ns = now_ns
        self._answers = self._number = 0
        self._writer = PartWriter(MAX_PENDING)
        self._process = os.getpid()

    @contextmanager
    def answer(self, name: str) -> Iterator[Step]:
        """Time one answer; what it raises is noted by its class and goes on. Steps must end before it does."""
        self._answers += 1
        answer = _Answer(name, self._answers)
        raised: BaseException | None = None
        try:
            with answer.timed(name, None) as step:
                yield step
        except BaseException as error:
            raised = error
            raise
        finally:
            self._keep(answer)
            self._tell(answer.rows[-1], raised)

    def close(self) -> None:
        """Write what is left; blocks the calling greenlet until it is on disk. Raises HarnessError for lost rows."""
        self._flush()
        self._writer.close()
        if self._writer.failure is not None:
            raise self._writer.failure

    def _keep(self, answer: _Answer) -> None:
        if not self._rows:
            self._first_ns = answer.rows[-1].end_ns
        if len(self._rows) + len(answer.rows) > MAX_ROWS:
            self._flush()
        self._rows += answer.rows[-MAX_ROWS:]
        if len(self._rows) >= ROWS_PER_PART or answer.rows[-1].end_ns - self._first_ns >= MAX_AGE_NS:
            self._flush()

    def _tell(self, whole: SpanRow, raised: BaseException | None) -> None:
        if self._fire is not None:
            spent_ms = (whole.end_ns - whole.start_ns) / NS_PER_MS
            failed = raised if isinstance(raised, Exception) else None
            self._fire(
                request_type="ANSWER",
                name=whole.answer,
                response_time=spent_ms,
                response_length=0,
                exception=failed,
                context={},
            )

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer.full:
            self._writer.fail(HarnessError(f"{MAX_PENDING} parts wait for {self._folder}: its disk is too slow"))
            return
        rows, number, identity, folder = self._rows, self._number, self._identity, self._folder
        self._rows, self._number = [], number + 1

        def write() -> WrittenPart:
            table = span_table(
                rows,
                run_id=identity.run_id,
                worker=identity.worker,
                epoch_monotonic_ns=identity.epoch_monotonic_ns,
            )
            return write_table_part(folder, number, table, identity)

        self._writer.submit(write)


__all__ = ["WHOLE", "Spans", "Step"]
