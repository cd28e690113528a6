"""Know how one planned request becomes one row: render, perform, record, tell Locust."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import gevent
from gevent.event import Event

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, Ask, Message, RequestRecord, SendStamps
from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.transport.deadlines import ENDLESS, Patience
from servebench.loadgen.transport.retrying import Course
from servebench.loadgen.worker.accepting import AnswerChecker
from servebench.loadgen.worker.counting import AnswerCounter
from servebench.loadgen.worker.live import LiveCounters
from servebench.loadgen.worker.performers import Performer
from servebench.loadgen.worker.permit import Permit
from servebench.loadgen.worker.recorder import Recorder
from servebench.wire.endpoint import Endpoint
from servebench.workload.model import Requests
from servebench.workload.prompts import PromptSet
from servebench.workload.seeds import LEAVING, chosen

LATE_AT_LEAST_NS = NS_PER_MS
LATE_SHARE_OF_GAP = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """What every request of a run shares; `tag` is the run's 8 hex digits in X-Request-Id."""

    endpoint: Endpoint
    model: str | None
    requests: Requests
    prompts: PromptSet
    tag: str
    target: str
    mean_gap_ns: Mapping[str, float]
    """Mean gap between arrivals of the whole run, by phase; a phase that is not named has no late limit but 1 ms."""
    seed: int = 0


class Requester:
    """Sends the requests of one run on one worker and records each of them."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        parts: RequestParts,
        clock: RunClock,
        permit: Permit,
        client: Performer,
        recorder: Recorder,
        live: LiveCounters,
        counter: AnswerCounter,
        checker: AnswerChecker | None = None,
        tell_locust: Callable[[RequestRecord, int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._parts, self._clock, self._permit, self._client = parts, clock, permit, client
        self._recorder, self._live, self._counter, self._checker = recorder, live, counter, checker
        self._tell_locust, self._on_failure = tell_locust, on_failure
        self.inflight = 0
        self._busy = 0
        self._retries = 0
        self._halted = Event()
        self._idle = Event()
        self._idle.set()

    def messages(self, ask: Ask) -> tuple[Message, ...]:
        """Return what a request says, without the history before it."""
        return self._parts.prompts.messages(ask.prompt_id, ask.input_tokens)

    def render(self, ask: Ask, history: Sequence[Message] = ()) -> bytes:
        """Return the JSON body; for planned requests called before they are due."""
        parts, params = self._parts, self._parts.requests.params
        if parts.requests.lengths == "exact" and ask.max_tokens is not None and parts.endpoint.pin is not None:
            params = {**parts.endpoint.pin(ask.max_tokens), **params}
        return parts.endpoint.body(
            model=parts.model,
            messages=(*history, *self.messages(ask)),
            max_tokens=ask.max_tokens,
            stream=parts.requests.stream,
            params=params,
        )

    def launch(self, ask: Ask, body: bytes) -> None:
        """Hand a request to its own greenlet; called by a dispatcher at the intended time. Does not block."""
        dispatched_ns, late = self._begin(ask)
        gevent.spawn(self._run, ask, body, dispatched_ns, late)

    def perform(self, ask: Ask, body: bytes) -> RequestRecord:
        """Send a request and record it in the calling greenlet, which waits for the answer."""
        dispatched_ns, late = self._begin(ask)
        with self._ending():
            return self._perform(ask, body, dispatched_ns, late=late)

    def leave_out(self, ask: Ask, outcome: Outcome, error_class: str) -> None:
        """Record a planned request that is not sent."""
        now_ns = self._clock.to_monotonic_ns(self._clock.now_ns())
        answer = Answer(outcome=outcome, error_class=error_class, end_ns=now_ns)
        self._keep(self._record(ask, SendStamps(), answer, late=False))

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count as work that the end of the run waits for, also while nothing is in flight."""
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            self._rest()

    def wait_idle(self, timeout_s: float | None) -> bool:
        """Wait until nothing is in flight or to come; False on time-out. Blocks the calling greenlet only."""
        return bool(self._idle.wait(timeout_s))

    def cancel_all(self) -> int:
        """End what is in flight now, as cancelled, and repeat nothing any more; return how many."""
        self._halted.set()
        return self._client.cancel_all()

    def _begin(self, ask: Ask) -> tuple[int, bool]:
        """Note that a request is handed over; return when, on the monotonic clock, and whether that is late."""
        now_ns = self._clock.now_ns()
        late = False
        if ask.intended_ns is not None:
            lag_ns = now_ns - ask.intended_ns
            late = lag_ns > max(LATE_AT_LEAST_NS, LATE_SHARE_OF_GAP * self._parts.mean_gap_ns.get(ask.phase, 0.0))
            self._live.dispatch_lag.add(lag_ns)
        self._live.began(late=late, measured=ask.measured, now_ns=now_ns)
        self.inflight += 1
        self._idle.clear()
        return self._clock.to_monotonic_ns(now_ns), late

    @contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.inflight -= 1
            self._rest()

    def _rest(self) -> None:
        if not self.inflight and not self._busy:
            self._idle.set()

    def _run(self, ask: Ask, body: bytes, dispatched_ns: int, late: bool) -> None:
        with self._ending():
            try:
                self._perform(ask, body, dispatched_ns, late=late)
            except Exception as error:  # noqa: BLE001 - top of a greenlet: the harness failed, the run ends
                self._on_failure(error)

    def _perform(self, ask: Ask, body: bytes, dispatched_ns: int, *, late: bool) -> RequestRecord:
        limit = self._parts.requests.max_inflight
        if limit is not None and self.inflight > limit:
            answer = Answer(outcome=Outcome.SHED, error_class="max_inflight", end_ns=dispatched_ns)
            return self._keep(self._record(ask, SendStamps(dispatched_ns=dispatched_ns), answer, late=late))
        return self._keep(self._attempts(ask, body, dispatched_ns, late=late))

    def _attempts(self, ask: Ask, body: bytes, dispatched_ns: int, *, late: bool) -> RequestRecord:
        """Send until an attempt is the last, and return its row; those before it are kept at once.

        The dispatcher handed over the first only, so that no pause looks like its lag.
        """
        requests = self._parts.requests
        course = Course(requests.retries, redirects=requests.redirects, policy=requests.retrying)
        patience = self._patience(ask)
        while True:
            number, first = course.attempt, course.attempt == 0
            request_id = self._request_id(ask, number)
            done = self._client.perform(body, request_id, dispatched_ns if first else None, course.path, patience)
            record = RequestRecord(
                ask=ask,
                attempt=number,
                request_id=request_id,
                stamps=done.stamps,
                answer=done.answer,
                late=late and first,
                target=self._parts.target,
                reconnects=done.reconnects,
                conn_reused=done.conn_reused,
                request_bytes=done.request_bytes,
            )
            pause_s = course.pause_after_s(done, in_budget=self._in_budget())
            if pause_s is None or self._halted.is_set():
                return record
            self._recorder.add(record)
            self._retries += done.redirected_to is None
            if done.redirected_to is None and not self._rest_before_retry(pause_s):
                now_ns = self._clock.to_monotonic_ns(self._clock.now_ns())
                answer = Answer(outcome=Outcome.CANCELLED, error_class="run_stopped", end_ns=now_ns)
                return self._record(ask, SendStamps(), answer, late=False, attempt=course.attempt)

    def _patience(self, ask: Ask) -> Patience:
        abandon, parts = self._parts.requests.abandon, self._parts
        if abandon is None or not chosen(parts.seed, LEAVING, ask.seq, abandon.share):
            return ENDLESS
        return Patience(abandon.after_ns, abandon.token_events)

    def _in_budget(self) -> bool:
        """Whether one more retry stays within the share of this worker's requests that the workload allows."""
        budget = self._parts.requests.retrying.budget
        return budget is None or self._retries + 1 <= budget * self._live.dispatched

    def _rest_before_retry(self, pause_s: float) -> bool:
        """Wait; False when the run's sending ends before the pause does. A redirect belongs to what was sent."""
        due_ns = self._clock.now_ns() + round(pause_s * NS_PER_S)
        if due_ns < self._permit.stop_ns:
            gevent.wait((self._halted, self._permit.stopping), pause_s, count=1)
        if due_ns >= self._permit.stop_ns:
            return False
        return not self._halted.wait(max(0, due_ns - self._clock.now_ns()) / NS_PER_S)

    def _record(self, ask: Ask, stamps: SendStamps, answer: Answer, *, late: bool, attempt: int = 0) -> RequestRecord:
        """Return the row of a request that was not sent."""
        return RequestRecord(
            ask=ask,
            attempt=attempt,
            request_id=self._request_id(ask, attempt),
            stamps=stamps,
            answer=answer,
            late=late,
            target=self._parts.target,
            reconnects=0,
            conn_reused=None,
            request_bytes=0,
        )

    def _keep(self, record: RequestRecord) -> RequestRecord:
        if self._counter.wants(record.answer) or self._is_checked(record):
            gevent.spawn(self._look_at, record)
        else:
            self._recorder.add(record)
        self._live.ended(record)
        self._tell_locust(record, self._clock.epoch_monotonic_ns)
        return record

    def _is_checked(self, record: RequestRecord) -> bool:
        checker = self._checker
        return checker is not None and checker.wants(record.answer, self._prompt_checks(record))

    def _prompt_checks(self, record: RequestRecord) -> bytes:
        return self._parts.prompts.checks(record.ask.prompt_id)

    def _look_at(self, record: RequestRecord) -> None:
        """Record a request after its tokens were counted and its answer was checked.

        A greenlet of its own, for which the end of the run waits; neither conversations nor users do.
        """
        try:
            with self.busy():
                if self._counter.wants(record.answer):
                    record = self._counter.counted(record)
                if self._checker is not None and self._is_checked(record):
                    record = self._checker.checked(record, self._prompt_checks(record))
                self._recorder.add(record)
        except Exception as error:  # noqa: BLE001 - top of a greenlet: the harness failed, the run ends
            self._on_failure(error)

    def _request_id(self, ask: Ask, attempt: int) -> str:
        return f"{self._parts.tag}-{ask.seq}-{attempt}"
