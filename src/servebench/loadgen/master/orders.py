"""Know what one run is asked to do, and why and when its sending ends."""

from dataclasses import dataclass

from servebench.loadgen.messages import Prepare


@dataclass(slots=True)
class StopOrder:
    """Why and when sending ends. `drain_ns` None = as long as the requests' own deadlines allow."""

    cause: str
    drain_ns: int
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the run is to do. `schedule_hash` and `duration_ns` are None for runs without schedule.

    `total`: requests of closed load in all, None until its duration ends.
    """

    prepare: Prepare
    schedule_hash: str | None
    duration_ns: int | None
    drain_ns: int
    total: int | None = None
