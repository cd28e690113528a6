"""Know what a run on a worker takes from the process it runs in."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from servebench.core.records import RequestRecord
from servebench.inquiry.secrets import Secrets
from servebench.loadgen.hub_ticker import HubTicker
from servebench.loadgen.worker.clock_sync import ClockSync
from servebench.loadgen.worker.counting import AnswerCounter
from servebench.loadgen.worker.pipeline import UserCode


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """What a session needs of the process it runs in."""

    worker_id: str
    worker: str
    boot_id: str
    offset_ns: int
    sync: ClockSync | None
    """None = this process shares the master's clock."""
    out: Path
    url: str
    secrets: Secrets
    send: Callable[[msgspec.Struct], None]
    tell_locust: Callable[[RequestRecord, int], None]
    token_rate_per_s: Callable[[], float]
    """Offered rate of this worker's tokens now."""
    counter: AnswerCounter
    code: UserCode | None = None
    """The user's locustfile; None where this process was given none."""
    ticker: HubTicker
    """Runs since the process began, so that the run knows the hub's idle level."""


def run_tag(run_id: str) -> str:
    """Return the 8 hex digits that stand for a run in X-Request-Id."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]
