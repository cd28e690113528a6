"""Know what the master plans before a run: the schedule, and what its prompts mean to the server's cache."""

from typing import NamedTuple

from servebench.core.errors import InputError
from servebench.workload.model import Closed, Workload
from servebench.workload.prompts import PromptSet, salt_of
from servebench.workload.reuse import reuse_by_phase
from servebench.workload.schedule import Schedule, plan


class Planned(NamedTuple):
    """A schedule, and the share of each phase's prompt tokens that the run has sent before (empty: not asked for)."""

    schedule: Schedule
    reuse: dict[str, float]


def planned(workload: Workload) -> Planned:
    """Return the schedule of a workload, and its reuse where the workload claims a state of the cache.

    Raises InputError where nothing would be sent, and what `plan` raises.
    """
    prompts = PromptSet.load(workload.prompts)
    schedule = plan(workload, prompts)
    if not len(schedule):
        msg = f"workload {workload.name} plans no request: raise a rate or a duration"
        raise InputError(msg)
    if workload.target.cache == "undeclared":
        return Planned(schedule, {})
    shares = reuse_by_phase(schedule, prompts)
    return Planned(schedule, {name: share for name, share in shares.items() if share is not None})


def measured_requests(schedule: Schedule | None, closed: Closed | None) -> int | None:
    """Return how many measured requests a run has at most; None where only its end decides."""
    if schedule is not None:
        return sum(phase.planned for phase in schedule.phases if phase.measured)
    return None if closed is None else closed.requests


def cache_notes(workload: Workload, run_id: str) -> dict[str, str]:
    """Return what is observed of the cache's preparation: the text before every prompt of a cold run."""
    return {"cache_salt": salt_of(run_id).strip()} if workload.target.cache == "cold" else {}
