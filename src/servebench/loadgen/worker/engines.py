"""Know which engine drives a run's load on a worker: its schedule, a person's tokens, or closed users."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from servebench.core.records import Answer, Ask
from servebench.loadgen.by_hand import refuse_by_hand
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.closed_users import ClosedUsers
from servebench.loadgen.worker.conversations import Conversations, History
from servebench.loadgen.worker.dispatch import PlanDispatcher
from servebench.loadgen.worker.permit import Permit, SeqPool
from servebench.loadgen.worker.requester import Requester
from servebench.loadgen.worker.token_dispatch import TokenDispatcher
from servebench.workload.arrivals import unit_gaps
from servebench.workload.draw import Drawer
from servebench.workload.model import Arrivals, Conversation, Workload
from servebench.workload.prompts import PromptSet
from servebench.workload.schedule import Schedule

GAPS_PER_DRAW = 1024


class Engine(Protocol):
    """What hands over a worker's requests. `run` blocks its greenlet until nothing more is to be sent."""

    def run(self) -> None:
        """Send the load."""
        ...

    def wake(self) -> None:
        """Look again at what may have changed; any greenlet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What the engines are made from; `rate_per_s` is what this worker's tokens offer now."""

    workload: Workload
    schedule: Schedule | None
    prompts: PromptSet
    worker_id: str
    incarnation: int
    clock: RunClock
    permit: Permit
    seqs: SeqPool
    requester: Requester
    rate_per_s: Callable[[], float]
    next_due: NextDue
    on_failure: Callable[[BaseException], None]

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers of this worker alone, for what no schedule fixes."""
        return np.random.default_rng(np.random.SeedSequence(self.workload.seed, spawn_key=(self.incarnation,)))


def make_engine(parts: EngineParts) -> Engine:
    """Return the engine that the workload asks for.

    Raises InputError for a workload that cannot be driven by hand.
    """
    if parts.schedule is not None:
        return _planned(parts, parts.schedule)
    if parts.workload.closed is not None:
        return _closed(parts)
    return _by_hand(parts)


def _planned(parts: EngineParts, schedule: Schedule) -> Engine:
    conversation = parts.workload.prompts.conversation
    turns = Conversations(
        requester=parts.requester,
        clock=parts.clock,
        permit=parts.permit,
        history=_keeps_history(conversation),
        on_failure=parts.on_failure,
    )
    return PlanDispatcher(
        schedule=schedule,
        me=parts.worker_id,
        clock=parts.clock,
        permit=parts.permit,
        render=parts.requester.render,
        launch=turns.launch,
        next_due=parts.next_due,
    )


def _closed(parts: EngineParts) -> Engine:
    closed, requester = parts.workload.closed, parts.requester
    if closed is None:
        msg = "no closed load in this workload"
        raise ValueError(msg)
    if closed.duration_ns is not None:
        parts.permit.stop_ns = min(parts.permit.stop_ns, closed.duration_ns)

    def converse() -> Callable[[Ask], Answer]:
        history = History(requester=requester, kept=_keeps_history(parts.workload.prompts.conversation))

        def perform(ask: Ask) -> Answer:
            answer = requester.perform(ask, requester.render(ask, history.said)).answer
            history.heard(ask, answer)
            return answer

        return perform

    return ClosedUsers(
        me=parts.worker_id,
        closed=closed,
        drawer=Drawer(parts.workload, parts.prompts),
        rng=parts.rng,
        seqs=parts.seqs,
        clock=parts.clock,
        permit=parts.permit,
        talk=parts.workload.prompts.conversation,
        converse=converse,
        on_failure=parts.on_failure,
    )


def _keeps_history(talk: Conversation | None) -> bool:
    return talk is not None and talk.history == "answers"


def _by_hand(parts: EngineParts) -> Engine:
    refuse_by_hand(parts.workload)
    return TokenDispatcher(
        drawer=Drawer(parts.workload, parts.prompts),
        unit_gaps=endless_gaps(parts.workload.arrivals, parts.rng),
        seqs=parts.seqs,
        clock=parts.clock,
        permit=parts.permit,
        rate_per_s=parts.rate_per_s,
        render=parts.requester.render,
        launch=parts.requester.launch,
        next_due=parts.next_due,
    )


def endless_gaps(law: Arrivals, rng: np.random.Generator) -> Iterator[float]:
    """Yield gaps with mean one, without end."""
    while True:
        yield from unit_gaps(law, GAPS_PER_DRAW, rng).tolist()


def mean_gaps_ns(schedule: Schedule | None) -> dict[str, float]:
    """Return the mean gap between the arrivals of the whole run, by phase; empty without schedule."""
    phases = schedule.phases if schedule is not None else ()
    return {phase.name: (phase.end_ns - phase.start_ns) / phase.planned for phase in phases if phase.planned}
