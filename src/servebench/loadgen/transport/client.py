"""Know how requests are performed against one target, for as many greenlets as call."""

import time
from collections.abc import Mapping

import gevent

from servebench.core.errors import HarnessError
from servebench.core.target import Target, redirected_path
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.transport.deadlines import ENDLESS, NEVER, Patience
from servebench.loadgen.transport.exchange import Exchange
from servebench.loadgen.transport.flight import Flight, Lane
from servebench.loadgen.transport.parsing import ParseQueue
from servebench.loadgen.transport.pool import Pool
from servebench.loadgen.transport.reactor import MAX_BATCH, Reactor
from servebench.loadgen.transport.route import route_to
from servebench.loadgen.transport.stamps import ReadClock
from servebench.wire.approach import Approach
from servebench.wire.endpoint import Endpoint
from servebench.wire.request import Opening, request_head
from servebench.wire.timeline import Timeline
from servebench.workload.model import Timeouts

SWEEP_S = 0.02
"""How often deadlines are looked at; a timeout is at most this late."""


class Client:
    """The transport of one worker: one epoll, one pool, one sweep for all deadlines."""

    def __init__(  # noqa: PLR0913 - what there is to choose about one target
        self,
        target: Target,
        endpoint: Endpoint,
        timeouts: Timeouts,
        *,
        headers: Mapping[str, str],
        keep_text: bool = False,
        stream: bool = True,
        proxy: Target | None = None,
        next_due: NextDue | None = None,
    ) -> None:
        """Resolve the name of target or proxy, which may block; raises InputError for a name without address.

        Raises ValueError for headers that cannot be written.

        `headers` go out with every request, besides those that all requests carry. `stream` says what the
        bodies ask for. `next_due`: whose requests reading and parsing make room for; None = nobody's.
        """
        self._approach = Approach(target=target, proxy=proxy, headers=headers)
        route = route_to(self._approach)
        self._endpoint = endpoint
        self._keep_text = keep_text
        self._path = target.path(endpoint.path)
        self._head = request_head(stream=stream)
        self._opening = self._opening_of(self._path)
        self._reactor = Reactor(next_due)
        self._queue = ParseQueue(next_due)
        self._pool = Pool(self._reactor, route)
        self._lane = Lane(pool=self._pool, queue=self._queue, timeouts=timeouts, stream=stream)
        self._flights: dict[Flight, None] = {}
        self._sweeper = gevent.get_hub().loop.timer(SWEEP_S, SWEEP_S, ref=False)
        self._sweeper.start(self._sweep)
        self._closed = False

    @property
    def inflight(self) -> int:
        """Requests begun whose greenlet has not got its exchange yet."""
        return len(self._flights)

    def perform(
        self,
        body: bytes,
        request_id: str,
        dispatched_ns: int | None,
        path: str | None = None,
        patience: Patience = ENDLESS,
    ) -> Exchange:
        """Send one request and block the calling greenlet until its answer has ended and is parsed.

        `path` is where a redirect led, None = the endpoint's own. `patience`: when its user leaves the answer. Nothing
        that server or network do raises. Raises HarnessError when the client or this machine fails.
        """
        if self._closed:
            msg = "the transport is closed"
            raise HarnessError(msg)
        asked = self._path if path is None else path
        opening = self._opening if path is None else self._opening_of(path)
        request = opening.request(request_id, body)
        timeline = Timeline(self._endpoint, stream=self._lane.stream, keep_text=self._keep_text)
        flight = Flight(self._lane, request, timeline, patience)
        self._flights[flight] = None
        try:
            flight.start()
            flight.wait()
        finally:
            self._flights.pop(flight, None)
            flight.drop()
        location = timeline.location
        to = None if location is None else redirected_path(self._approach.target, asked, location)
        return flight.exchange(dispatched_ns, redirected_to=to)

    def cancel_all(self) -> int:
        """End every request in flight as cancelled and return how many; any greenlet, does not block.

        Connections close at once; what was read before is parsed first, so the exchanges follow in the next moments.
        """
        now = time.monotonic_ns()
        return sum(flight.cancel(now) for flight in list(self._flights))

    def _opening_of(self, path: str) -> Opening:
        return self._approach.opening(path, self._head)

    @property
    def counters(self) -> ReadClock:
        """How reads went, by `take()`."""
        return self._reactor.clock

    def close(self) -> None:
        """Close every connection and stop watching; does not block.

        A request still in flight fails with HarnessError: end it first, by `cancel_all`.
        """
        if self._closed:
            return
        self._closed = True
        for flight in list(self._flights):
            flight.on_fault(HarnessError("the transport was closed while a request was in flight"))
        self._sweeper.stop()
        self._sweeper.close()
        self._pool.close()
        self._queue.close()
        self._reactor.close()

    def _sweep(self) -> None:
        now, alarm = time.monotonic_ns(), self._lane.alarm
        if now < alarm.at_ns:
            return
        due = [flight for flight in self._flights if flight.due_ns <= now]
        alarm.at_ns = min((flight.due_ns for flight in self._flights), default=NEVER)
        if due:
            for _ in range(len(self._flights) // MAX_BATCH + 1):
                self._reactor.catch_up()  # after a stall of the loop, what arrived in time must count
        for flight in due:
            flight.check()
