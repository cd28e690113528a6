"""Know how a user's own locustfile times an answer that is made of several steps.

    spans = Spans("runs/rag")
    with spans.answer("question") as answer:
        with answer.span("retrieval"):
            passages = search(question)
        with answer.span("model") as model:
            with model.span("first call"):
                ...

One row per step and per answer goes to `spans/part-*.parquet`: of the run, where `servebench run --locustfile` drives
the file, else of the folder that was named. Steps may run side by side, in other greenlets: each `span` says whose step
it is.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servebench.core.errors import InputError
from servebench.core.units import NS_PER_MS
from servebench.loadgen.planned import planned
from servebench.loadgen.runclock import boot_id
from servebench.loadgen.span_recorder import SpanRecorder
from servebench.shards.folder import worker_name
from servebench.shards.parts import PartIdentity
from servebench.shards.span_schema import WHOLE, SpanRow


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

    def __init__(self, name: str, answer_id: int, request_id: str | None) -> None:
        self.rows: list[SpanRow] = []
        self._name, self._id, self._request_id = name, answer_id, request_id
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
            row = SpanRow(self._id, number, parent, self._name, name, start_ns, end_ns, error, self._request_id)
            self.rows.append(row)


class Spans:
    """Records answers and their steps; one for each process.

    `folder`: where they go under plain `locust`, one folder for each run; made with the first answer, and not used
    where `servebench run` drives the file. `fire`: Locust's `environment.events.request.fire`; then its statistics
    and page show each answer of plain `locust` too. Rows are written by a thread of its own, at the latest 5 s after
    the answer ended as long as others follow.
    """

    def __init__(self, folder: str | Path, *, fire: Callable[..., Any] | None = None) -> None:
        self._folder = Path(folder)
        self._fire = fire
        self._own: SpanRecorder | None = None

    @contextmanager
    def answer(self, name: str) -> Iterator[Step]:
        """Time one answer; what it raises is noted by its class and goes on. Steps must end before it does.

        Call it in the task's own greenlet. Raises InputError where the folder cannot be made.
        """
        asked = planned()
        recorder = self._recorder() if asked is None else asked.spans
        answer = _Answer(name, recorder.next_answer(), None if asked is None else asked.request_id)
        raised: BaseException | None = None
        try:
            with answer.timed(name, None) as step:
                yield step
        except BaseException as error:
            raised = error
            raise
        finally:
            recorder.add(answer.rows)
            if asked is None:
                self._tell(answer.rows[-1], raised)

    def close(self) -> None:
        """Write what is left; blocks the calling greenlet until it is on disk. Raises HarnessError for lost rows."""
        if self._own is None:
            return
        self._own.close()
        if self._own.failure is not None:
            raise self._own.failure

    def _recorder(self) -> SpanRecorder:
        if self._own is None:
            folder = self._folder / "spans"
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                msg = f"cannot make {folder}: {error.strerror}; give a writable folder"
                raise InputError(msg) from error
            self._own = SpanRecorder(folder, self._identity())
        return self._own

    def _identity(self) -> PartIdentity:
        now_ns = time.monotonic_ns()
        return PartIdentity(
            run_id=self._folder.name or "spans",
            worker=worker_name(0, secrets.token_hex(4)),
            epoch_monotonic_ns=now_ns,
            epoch_unix_ns=time.time_ns() - (time.monotonic_ns() - now_ns),
            boot_id=boot_id(),
        )

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


__all__ = ["WHOLE", "Spans", "Step", "planned"]
