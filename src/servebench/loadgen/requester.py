"""Know how one planned request becomes one row: render, perform, record, tell Locust."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import gevent
from gevent.event import Event

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, Ask, RequestRecord, SendStamps
from servebench.core.units import NS_PER_MS
from servebench.loadgen.client import Client
from servebench.loadgen.live import LiveCounters
from servebench.loadgen.recorder import Recorder
from servebench.loadgen.runclock import RunClock
from servebench.wire.endpoint import Endpoint
from servebench.workload.model import Requests
from servebench.workload.prompts import PromptSet

LATE_AT_LEAST_NS = NS_PER_MS
LATE_SHARE_OF_GAP = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """What every request of a run shares. `tag` is the run's 8 hex digits in X-Request-Id; `salt` nothing yet."""

    endpoint: Endpoint
    model: str | None
    requests: Requests
    prompts: PromptSet
    tag: str
    target: str
    mean_gap_ns: Mapping[str, float]
    """Mean gap between arrivals of the whole run, by phase; a phase that is not named has no late limit but 1 ms."""


class Requester:
    """Sends the requests of one run on one worker and records each of them."""

    def __init__(  # noqa: PLR0913 - the parts of one requester, all of them its collaborators
        self,
        *,
        parts: RequestParts,
        clock: RunClock,
        client: Client,
        recorder: Recorder,
        live: LiveCounters,
        tell_locust: Callable[[RequestRecord, int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._parts, self._clock, self._client = parts, clock, client
        self._recorder, self._live = recorder, live
        self._tell_locust, self._on_failure = tell_locust, on_failure
        self.inflight = 0
        self._idle = Event()
        self._idle.set()

    def render(self, ask: Ask) -> bytes:
        """Return the JSON body; called by the dispatcher before the request is due."""
        parts = self._parts
        return parts.endpoint.body(
            model=parts.model,
            messages=parts.prompts.messages(ask.prompt_id, ask.input_tokens),
            max_tokens=ask.max_tokens,
            stream=parts.requests.stream,
            params=parts.requests.params,
        )

    def launch(self, ask: Ask, body: bytes) -> None:
        """Hand a request to its own greenlet; called by the dispatcher at the intended time. Does not block."""
        now_ns = self._clock.now_ns()
        lag_ns = now_ns - ask.intended_ns if ask.intended_ns is not None else 0
        late = lag_ns > max(LATE_AT_LEAST_NS, LATE_SHARE_OF_GAP * self._parts.mean_gap_ns.get(ask.phase, 0.0))
        self._live.began(lag_ns, late=late)
        self.inflight += 1
        self._idle.clear()
        gevent.spawn(self._run, ask, body, self._clock.to_monotonic_ns(now_ns), late)

    def wait_idle(self, timeout_s: float | None) -> bool:
        """Wait until no request is in flight; False on time-out. Blocks the calling greenlet only."""
        return bool(self._idle.wait(timeout_s))

    def cancel_all(self) -> int:
        """End what is in flight now, as cancelled; return how many."""
        return self._client.cancel_all()

    def _run(self, ask: Ask, body: bytes, dispatched_ns: int, late: bool) -> None:
        try:
            record = self._perform(ask, body, dispatched_ns, late=late)
            self._recorder.add(record)
            self._live.ended(record)
            self._tell_locust(record, self._clock.epoch_monotonic_ns)
        except Exception as error:  # noqa: BLE001 - top of a greenlet: the harness failed, the run ends
            self._on_failure(error)
        finally:
            self.inflight -= 1
            if not self.inflight:
                self._idle.set()

    def _perform(self, ask: Ask, body: bytes, dispatched_ns: int, *, late: bool) -> RequestRecord:
        request_id = f"{self._parts.tag}-{ask.seq}-0"
        limit = self._parts.requests.max_inflight
        if limit is not None and self.inflight > limit:
            answer = Answer(outcome=Outcome.SHED, error_class="max_inflight", end_ns=dispatched_ns)
            return self._record(ask, request_id, SendStamps(dispatched_ns=dispatched_ns), answer, late=late)
        done = self._client.perform(body, request_id, dispatched_ns)
        return RequestRecord(
            ask=ask,
            attempt=0,
            request_id=request_id,
            stamps=done.stamps,
            answer=done.answer,
            late=late,
            target=self._parts.target,
            reconnects=done.reconnects,
            conn_reused=done.conn_reused,
            request_bytes=done.request_bytes,
        )

    def _record(self, ask: Ask, request_id: str, stamps: SendStamps, answer: Answer, *, late: bool) -> RequestRecord:
        return RequestRecord(
            ask=ask,
            attempt=0,
            request_id=request_id,
            stamps=stamps,
            answer=answer,
            late=late,
            target=self._parts.target,
            reconnects=0,
            conn_reused=None,
            request_bytes=0,
        )
