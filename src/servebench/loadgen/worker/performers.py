"""Know who makes the answers of a run: the transport, or the tasks of a user's locustfile."""

from typing import Protocol

from servebench.core.errors import InputError
from servebench.core.target import parse_target
from servebench.inquiry.way import approach_to
from servebench.loadgen.messages import Prepare
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.transport.client import Client
from servebench.loadgen.transport.deadlines import ENDLESS, Patience
from servebench.loadgen.transport.exchange import Exchange
from servebench.loadgen.transport.stamps import ReadClock
from servebench.loadgen.worker.pipeline import Pipeline, UserCode
from servebench.loadgen.worker.setup import WorkerSetup
from servebench.wire.endpoint import Endpoint
from servebench.workload.model import Requests, Workload


class Performer(Protocol):
    """Makes answers, for as many greenlets as call."""

    @property
    def counters(self) -> ReadClock:
        """How reads went."""
        ...

    def perform(
        self,
        body: bytes,
        request_id: str,
        dispatched_ns: int | None,
        path: str | None = None,
        patience: Patience = ENDLESS,
    ) -> Exchange:
        """Make one answer; blocks the calling greenlet."""
        ...

    def cancel_all(self) -> int:
        """End what is in flight as cancelled and return how many."""
        ...

    def close(self) -> None:
        """Let go of connections and users."""
        ...


def make_performer(
    order: Prepare, setup: WorkerSetup, workload: Workload, endpoint: Endpoint, next_due: NextDue
) -> Client | Pipeline:
    """Return what makes the answers that a run asks for.

    Raises InputError where the run wants a locustfile that this worker lacks, or has another version of.
    """
    requests, target = workload.requests, parse_target(setup.url)
    if order.locustfile is not None:
        code = _same_code(order.locustfile, setup.code, requests)
        return Pipeline(code, requests.timeouts, seed=workload.seed, url=setup.url)
    way = approach_to(target, endpoint, setup.secrets, headers=requests.headers, proxy=requests.proxy)
    return Client(
        way.target,
        endpoint,
        requests.timeouts,
        headers=way.headers,
        stream=requests.stream and endpoint.streams,
        proxy=way.proxy,
        next_due=next_due,
        keep_text=True,  # for histories, and to count tokens where the server does not; costs nothing measurable
    )


def _same_code(wanted: str, code: UserCode | None, requests: Requests) -> UserCode:
    if code is None:
        msg = "this run's answers are made by a locustfile, which this worker lacks; start it with --locustfile FILE"
        raise InputError(msg)
    if code.sha256 != wanted:
        msg = f"{code.path} on this worker is not the file that the master has; copy the same one to every node"
        raise InputError(msg)
    if requests.abandon is not None and requests.abandon.token_events is not None:
        msg = "requests.abandon.tokens: the tokens of a locustfile's answers are not seen; use after: alone"
        raise InputError(msg)
    return code
