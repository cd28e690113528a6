"""Know the workers of one run as the master sees them: who is prepared, heard from, done, closed or lost."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from servebench.loadgen.channel import Channel, StrayMessageError
from servebench.loadgen.messages import Closed, Hello, Ready, Status


@dataclass(slots=True)
class WorkerState:
    """One worker. `heard_ns` is its last message of any kind, on this process's monotonic clock.

    `changes` = how many entries of the membership table it says it has, `reached` the first seq that it had not dealt
    with when it last said.
    """

    hello: Hello
    ready: Ready | None = None
    status: Status | None = None
    closed: Closed | None = None
    lost: bool = False
    leaving: bool = False
    heard_ns: int = 0
    changes: int = 0
    reached: int = 0

    @property
    def live(self) -> bool:
        """Whether it is prepared and has not been lost."""
        return self.ready is not None and not self.lost

    @property
    def done(self) -> bool:
        """Whether it has nothing left to send or to wait for."""
        return self.closed is not None or (self.status is not None and self.status.done)


@dataclass(slots=True)
class Roster:
    """All workers that were ever told of the run, by their id. Changed by message handlers, read by the coordinator."""

    channel: Channel
    workers: dict[str, WorkerState] = field(default_factory=dict)

    def add(self, hello: Hello) -> None:
        """Take in a worker that has said hello."""
        self.workers[hello.worker_id] = WorkerState(hello)

    def heard(self, worker_id: str) -> WorkerState:
        """Note a message and return its sender. Raises StrayMessageError for one that was never told of the run."""
        state = self.workers.get(worker_id)
        if state is None:
            msg = f"worker {worker_id} is not part of this run"
            raise StrayMessageError(msg)
        state.heard_ns = time.monotonic_ns()
        return state

    def name(self, worker_id: str) -> str:
        """Return the name under which a worker records."""
        return self.workers[worker_id].hello.worker

    def live(self) -> list[tuple[str, WorkerState]]:
        """Return the prepared workers that are not lost."""
        return [(worker_id, state) for worker_id, state in self.workers.items() if state.live]

    def reachable(self) -> list[str]:
        """Return the ids of the prepared workers that neither leave nor have reported their end, lost or not."""
        prepared = ((i, state) for i, state in self.workers.items() if state.ready is not None)
        return [i for i, state in prepared if state.closed is None and not state.leaving]

    def all_ready(self) -> bool:
        """Whether there are workers and each of them is prepared, those that have gone left out."""
        present = [state for state in self.workers.values() if not state.lost]
        return bool(present) and all(state.ready is not None for state in present)

    def unready(self) -> list[str]:
        """Return the names of those that are not prepared."""
        return [state.hello.worker for state in self.workers.values() if state.ready is None]

    def silent(self, limit_ns: int) -> list[str]:
        """Return the live workers of whom nothing was heard for longer than a limit."""
        now_ns = time.monotonic_ns()
        return [worker_id for worker_id, state in self.live() if now_ns - state.heard_ns > limit_ns]

    def may_return(self, limit_ns: int) -> list[WorkerState]:
        """Return those that are lost and could still take a share, of whom something was heard within a limit."""
        now_ns = time.monotonic_ns()
        away = [state for state in (self.workers[worker_id] for worker_id in self.reachable()) if state.lost]
        return [state for state in away if now_ns - state.heard_ns <= limit_ns]

    def send(self, message: msgspec.Struct, worker_ids: Iterable[str] | None = None) -> None:
        """Send to some workers, or to all live ones."""
        for worker_id in [worker_id for worker_id, _ in self.live()] if worker_ids is None else worker_ids:
            self.channel.send(message, worker_id)
