"""Know how the tokens of one answer reach the client: streamed event by event, or whole at the end.

An answer is told of each token by the runner, writes it, notes the time in its truth draft, and calls `on_end` once,
when its last byte is written or when it was given up.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Protocol

from servebench.core.units import NS_PER_S
from servebench.sim.api import Generation, error_body
from servebench.sim.connection import Connection, HttpRequest, response_head
from servebench.sim.faults import FaultRule
from servebench.sim.frames import DONE, LAST_CHUNK, Frames, Usage, error_event
from servebench.sim.lengths import AnswerPlan
from servebench.sim.metrics_text import SimMetrics
from servebench.sim.truth import TruthDraft
from servebench.sim.vocabulary import WORDS, answer_words

_FAULT_MESSAGE = "fault on request: the engine gave up this answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One accepted request and all that is needed to answer it. `word_start`: where its words begin in WORDS."""

    seq: int
    asked: Generation
    plan: AnswerPlan
    fault: FaultRule | None
    request: HttpRequest
    connection: Connection
    draft: TruthDraft
    frames: Frames
    identity: str
    created_s: int
    word_start: int
    headers: dict[str, str]

    @property
    def usage(self) -> Usage:
        """Token counts so far."""
        return Usage(self.asked.prompt.tokens, self.draft.completion_tokens, self.draft.cached_tokens or 0)


class Answer(Protocol):
    """What the runner tells an answer."""

    def token(self, index: int) -> None:
        """Take the next token."""

    def abort(self) -> None:
        """Give up: the client left or the server stops."""


class StreamedAnswer:
    """Writes each token as one event the moment it is told of it."""

    def __init__(self, job: Job, metrics: SimMetrics, on_end: Callable[[Job], None]) -> None:
        self._job = job
        self._metrics = metrics
        self._on_end = on_end
        self._write = job.connection.write
        self._heads = job.frames.heads
        self._tails = job.frames.tails
        self._opening = job.frames.opening(job.identity, job.created_s)
        self._times = job.draft.t_send_ns
        self._previous_ns = 0
        self._last = job.plan.tokens - 1
        self._fault_at = -1 if job.fault is None else job.plan.tokens // 2
        self._held: list[int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # The first index that needs more than a plain write: one comparison per token instead of four.
        self._special = 0

    def open(self) -> None:
        """Send the response head, which does not wait for the first token."""
        job = self._job
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            **job.headers,
            "transfer-encoding": "chunked",
        }
        head = response_head(200, headers, keep_alive=job.request.keep_alive)
        job.draft.status = 200
        job.draft.t_head_ns = monotonic_ns()
        self._write(head)

    def token(self, index: int) -> None:
        """Send token `index`."""
        if index >= self._special:
            self._special_token(index)
        else:
            self._send(index, self._event(index))

    def abort(self) -> None:
        """Give up; nothing more is written."""
        self._job.draft.aborted = True
        self._end()

    def _event(self, index: int) -> bytes:
        word = (self._job.word_start + index) % len(WORDS)
        return self._heads[word] + self._opening + self._tails[word]

    def _send(self, index: int, data: bytes) -> None:
        now = monotonic_ns()
        self._times.append(now)
        self._write(data)
        if index:
            self._metrics.inter_token.observe(now - self._previous_ns)
        else:
            self._metrics.time_to_first_token.observe(now - self._job.draft.t_received_ns)
        self._previous_ns = now

    def _special_token(self, index: int) -> None:
        if self._held is not None:
            self._held.append(index)
        elif index == self._fault_at and self._job.fault is not None:
            self._strike(index, self._job.fault)
        else:
            self._send_special(index)

    def _send_special(self, index: int) -> None:
        job = self._job
        if index == 0 and job.asked.endpoint == "chat":
            data = job.frames.role(self._opening)
            job.draft.t_role_ns = monotonic_ns()
            self._write(data)
        ends = index == self._last
        if ends and job.plan.finish_reason == "length":
            word = answer_words(job.word_start + index, 1)[0]
            self._send(
                index,
                job.frames.last(self._opening, f" {word}", "length", usage_follows=job.asked.include_usage),
            )
        else:
            self._send(index, self._event(index))
        self._special = self._fault_at if index < self._fault_at else self._last
        if ends:
            self._complete()

    def _complete(self) -> None:
        job = self._job
        job.draft.completion_tokens = len(self._times)
        job.draft.finish_reason = job.plan.finish_reason
        if job.plan.finish_reason == "stop":
            self._write(job.frames.last(self._opening, "", "stop", usage_follows=job.asked.include_usage))
        if job.asked.include_usage:
            self._write(job.frames.usage(self._opening, job.usage))
        self._finish_body()

    def _finish_body(self) -> None:
        job = self._job
        job.draft.t_done_ns = monotonic_ns()
        self._write(DONE)
        self._write(LAST_CHUNK)
        self._end()
        job.connection.done(keep_alive=job.request.keep_alive)

    def _strike(self, index: int, fault: FaultRule) -> None:
        if fault.kind == "stall":
            self._held = [index]
            self._special = 0
            self._timer = asyncio.get_running_loop().call_later(fault.stall_ns / NS_PER_S, self._resume)
        elif fault.kind == "cut":
            self._end()
            self._job.connection.done(keep_alive=False)
        else:
            self._write(error_event(error_body(500, _FAULT_MESSAGE, kind="InternalServerError")))
            self._finish_body()

    def _resume(self) -> None:
        held, self._held = self._held or [], None
        self._fault_at = -1
        for index in held:
            self._send_special(index)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._job.draft.completion_tokens = len(self._times)
        self._on_end(self._job)


class WholeAnswer:
    """Collects the answer and sends it as one JSON body."""

    def __init__(self, job: Job, metrics: SimMetrics, on_end: Callable[[Job], None]) -> None:
        self._job = job
        self._metrics = metrics
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None

    def token(self, index: int) -> None:
        """Count token `index`; after the last one, answer."""
        job = self._job
        job.draft.completion_tokens = index + 1
        if index == 0:
            self._metrics.time_to_first_token.observe(monotonic_ns() - job.draft.t_received_ns)
        if index + 1 < job.plan.tokens:
            return
        fault = job.fault
        if fault is None:
            self._respond()
        elif fault.kind == "stall":
            self._timer = asyncio.get_running_loop().call_later(fault.stall_ns / NS_PER_S, self._respond)
        elif fault.kind == "cut":
            self._end()
            job.connection.done(keep_alive=False)
        else:
            self._send(500, error_body(500, _FAULT_MESSAGE, kind="InternalServerError"))

    def abort(self) -> None:
        """Give up; nothing is written."""
        self._job.draft.aborted = True
        self._end()

    def _respond(self) -> None:
        job = self._job
        job.draft.finish_reason = job.plan.finish_reason
        text = "".join(f" {word}" for word in answer_words(job.word_start, job.plan.tokens))
        self._send(200, job.frames.whole(job.identity, job.created_s, text, job.plan.finish_reason, job.usage))

    def _send(self, status: int, body: bytes) -> None:
        job = self._job
        job.draft.status = status
        job.draft.t_head_ns = job.draft.t_done_ns = monotonic_ns()
        self._end()
        job.connection.respond(job.request, status, body, {"content-type": "application/json", **job.headers})

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._on_end(self._job)
