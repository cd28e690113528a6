"""Know how the tasks of a user's locustfile make the answers of a run, one task for each planned request.

The run decides when and how often; the file decides what an answer is. Locust's own pacing (`wait_time`, the number of
users) has no say: a request takes a user object that is idle, or makes another one.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import numpy as np
from gevent.event import Event

from servebench.core.errors import HarnessError, InputError
from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, SendStamps
from servebench.core.units import NS_PER_S
from servebench.loadgen.planned import PLANNED, Planned, seq_of
from servebench.loadgen.span_recorder import SpanRecorder
from servebench.loadgen.transport.deadlines import ENDLESS, Patience, deadline_words
from servebench.loadgen.transport.exchange import Exchange
from servebench.loadgen.transport.stamps import ReadClock
from servebench.shards.parts import PartIdentity
from servebench.wire.outcome import End, Ruling
from servebench.workload.model import Timeouts
from servebench.workload.seeds import TASKS, generator

log = logging.getLogger(__name__)

User = Any
"""A user object of Locust, which has no types."""
Task = Callable[[User], object]


STOP_LIMIT_S = 5.0
"""What a user object does as it stops is not waited for longer: the rows are on disk, a report is due."""


class Choice(NamedTuple):
    """One task of a locustfile; `share` of all answers are made by it."""

    user: type[User]
    task: Task
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """A user's locustfile as this process has loaded it; `sha256` is of the file alone, not of what it imports."""

    path: Path
    sha256: str
    environment: Any
    choices: tuple[Choice, ...]


def user_code(path: Path, environment: Any, users: list[type[User]]) -> UserCode:  # noqa: ANN401 - Locust is untyped
    """Return what a file offers; `users` are its user classes.

    Raises InputError where it cannot be read, has no task, or one that is no function.
    """
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg) from error
    weight = sum(user.weight for user in users)
    found = [Choice(user, task, user.weight / weight / len(user.tasks)) for user in users for task in user.tasks]
    if not found:
        msg = f"{path} has no user class with a task: class Asker(FastHttpUser), and @task over a method of it"
        raise InputError(msg)
    for user, task, _ in found:
        if isinstance(task, type):
            msg = f"{path}: {user.__name__} has the task set {task.__name__}; each answer is one task: use methods"
            raise InputError(msg)
    return UserCode(path=path, sha256=digest, environment=environment, choices=tuple(found))


@dataclass(slots=True, eq=False)
class _Attempt:
    """One task on its way; monotonic ns, None = did not happen."""

    halted: Event = field(default_factory=Event)
    sent_ns: int | None = None
    end_ns: int | None = None
    text: str | None = None
    error: BaseException | None = None


class Pipeline:
    """Performs requests by a locustfile's tasks, for as many greenlets as call; used like the transport."""

    def __init__(self, code: UserCode, timeouts: Timeouts, *, seed: int, url: str) -> None:
        self._code, self._timeouts, self._seed = code, timeouts, seed
        self._bounds = np.cumsum([choice.share for choice in code.choices])
        self._idle: dict[type[User], list[User]] = {choice.user: [] for choice in code.choices}
        self._running: dict[_Attempt, None] = {}
        self._reads = ReadClock()
        self._spans: SpanRecorder | None = None
        for user in self._idle:
            user.host = url

    @property
    def counters(self) -> ReadClock:
        """No reads: the file's own clients do not tell."""
        return self._reads

    def record_into(self, folder: Path, identity: PartIdentity) -> SpanRecorder:
        """Keep the steps of answers in a folder from now on; call it before `perform`."""
        folder.mkdir(exist_ok=True)
        self._spans = SpanRecorder(folder, identity)
        return self._spans

    def perform(
        self,
        body: bytes,
        request_id: str,
        dispatched_ns: int | None,
        path: str | None = None,
        patience: Patience = ENDLESS,
    ) -> Exchange:
        """Run one task and block the calling greenlet until it ended or was given up; `path` has no meaning here.

        What the task raises becomes the outcome. What is given up is told so by GreenletExit and no longer waited for.
        Raises HarnessError before `record_into`.
        """
        del path
        if self._spans is None:
            msg = "a pipeline was asked before it had a folder"
            raise HarnessError(msg)
        attempt, limits = _Attempt(), [(self._timeouts.total_ns, End.TIMEOUT_TOTAL)]
        if patience.after_ns is not None:
            limits.append((patience.after_ns, End.ABANDONED))
        limit_ns, end = min(limits)
        task = gevent.Greenlet(self._make, attempt, Planned(request_id, body, self._spans))
        self._running[attempt] = None
        try:
            task.start()
            gevent.wait((task, attempt.halted), limit_ns / NS_PER_S, count=1)
        finally:
            self._running.pop(attempt)
        if attempt.end_ns is not None:
            ruling = Ruling(Outcome.OK) if attempt.error is None else ruling_of(attempt.error)
        else:
            attempt.end_ns = time.monotonic_ns()
            ruling = self._given_up(End.CANCELLED if attempt.halted.is_set() else end)
            task.kill(block=False)
        return _exchange(attempt, dispatched_ns, ruling)

    def cancel_all(self) -> int:
        """Give every task up that is going on and return how many; any greenlet, does not block."""
        for attempt in self._running:
            attempt.halted.set()
        return len(self._running)

    def close(self) -> None:
        """Tell the user objects that they stop, and wait 5 s at most; what that raises is logged."""
        stopping = [gevent.spawn(_stop_user, user) for users in self._idle.values() for user in users]
        gevent.joinall(stopping, timeout=STOP_LIMIT_S)
        gevent.killall(stopping, block=False)
        self._idle = {user: [] for user in self._idle}

    def _make(self, attempt: _Attempt, planned: Planned) -> None:
        """Run the task; in a greenlet of its own, whose context says which request it answers."""
        choice = self._choose(planned.request_id)
        PLANNED.set(planned)
        user: User = None
        try:
            user = self._take(choice.user)
            attempt.sent_ns = time.monotonic_ns()
            made = choice.task(user)
            attempt.end_ns = time.monotonic_ns()
            attempt.text = made if isinstance(made, str) else None
        except (Exception, gevent.Timeout) as error:  # noqa: BLE001 - the user's code: whatever it is, it is the outcome
            attempt.end_ns, attempt.error = time.monotonic_ns(), error
        if user is not None:  # one whose task was killed is not used again: its connection is in an unknown state
            self._idle[choice.user].append(user)

    def _take(self, user_class: type[User]) -> User:
        idle = self._idle[user_class]
        if idle:
            return idle.pop()
        user = user_class(self._code.environment)
        user.on_start()
        return user

    def _choose(self, request_id: str) -> Choice:
        """Return which task makes an answer, the same on every worker and for every attempt."""
        choices = self._code.choices
        if len(choices) == 1:
            return choices[0]
        drawn = generator(self._seed, TASKS, seq_of(request_id)).random()
        return choices[min(int(np.searchsorted(self._bounds, drawn, side="right")), len(choices) - 1)]

    def _given_up(self, end: End) -> Ruling:
        outcome = Outcome.TIMEOUT if end is End.TIMEOUT_TOTAL else Outcome.CANCELLED
        return Ruling(outcome, end.value, deadline_words(end, self._timeouts))


def _stop_user(user: User) -> None:
    try:
        user.on_stop()
    except (Exception, gevent.Timeout):
        log.exception("on_stop of %s", type(user).__name__)


def ruling_of(error: BaseException) -> Ruling:
    """Return the outcome of an answer whose task raised: its class is the name of what was raised."""
    outcome = Outcome.STREAM_ERROR
    if isinstance(error, ConnectionError):
        outcome = Outcome.CONNECT_ERROR
    elif isinstance(error, TimeoutError | gevent.Timeout):
        outcome = Outcome.TIMEOUT
    return Ruling(outcome, type(error).__name__, str(error) or None)


def _exchange(attempt: _Attempt, dispatched_ns: int | None, ruling: Ruling) -> Exchange:
    end_ns = time.monotonic_ns() if attempt.end_ns is None else attempt.end_ns
    return Exchange(
        stamps=SendStamps(dispatched_ns=dispatched_ns, sent_ns=attempt.sent_ns, send_end_ns=attempt.sent_ns),
        answer=Answer(
            outcome=ruling.outcome,
            error_class=ruling.error_class,
            error_message=ruling.message,
            end_ns=end_ns,
            streamed=False,
            text=attempt.text,
        ),
        reconnects=0,
        conn_reused=None,
        request_bytes=0,
    )
