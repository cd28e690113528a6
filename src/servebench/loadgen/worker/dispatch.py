"""Know when each planned request of this worker is due, and hand it over then.

Open loop: a dispatcher sleeps until an absolute time (timerfd), hands the request to its own greenlet and never waits
for an answer. What a request needs (its body) is made before its time comes.
"""

from collections.abc import Callable, Sequence

import numpy as np

from servebench.core.records import Ask
from servebench.loadgen.membership import DECIDE_AHEAD_NS, owned
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.permit import Permit
from servebench.loadgen.worker.timerfd import TimerFd
from servebench.workload.schedule import Schedule

Render = Callable[[Ask], bytes]
LaunchTurns = Callable[[Sequence[Ask], bytes], None]
"""Takes a request and the later turns of its conversation, and the body of the first."""


class PlanDispatcher:
    """Runs this worker's share of the schedule. `run` is the dispatcher greenlet; handlers call `wake`."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        schedule: Schedule,
        me: str,
        clock: RunClock,
        permit: Permit,
        render: Render,
        launch: LaunchTurns,
        next_due: NextDue,
    ) -> None:
        self._schedule, self._me, self._clock, self._permit = schedule, me, clock, permit
        self._render, self._launch = render, launch
        self._timer = TimerFd(next_due)
        self._ended = False
        self.reached = 0
        """First seq that is not dealt with: each one before it was somebody else's, or is handed over."""

    def wake(self) -> None:
        """Look at the permit again now; any greenlet."""
        if not self._ended:
            self._timer.arm(1)

    def run(self) -> None:
        """Dispatch until the schedule or the run ends; returns then."""
        due, permit, cursor = self._schedule.due_ns, self._permit, 0
        try:
            while cursor < len(due) and due[cursor] < permit.stop_ns:
                soon = self._clock.now_ns() + DECIDE_AHEAD_NS
                end = int(np.searchsorted(due, min(soon, permit.valid_until_ns, permit.stop_ns - 1), side="right"))
                if end > cursor:
                    for seq in self._mine(cursor, end):
                        self.reached = seq
                        self._dispatch(seq)
                    self.reached = cursor = end
                elif due[cursor] > soon:
                    self._sleep_until(int(due[cursor]) - DECIDE_AHEAD_NS)
                else:
                    permit.changed.wait(0.2)  # only the lease is missing
        finally:
            self._ended = True
            self._timer.close()

    def _mine(self, first: int, end: int) -> list[int]:
        """Return the first turns in [first, end) that are this worker's; a conversation has one owner."""
        schedule = self._schedule
        mine = owned(self._permit.changes, self._me, schedule.session[first:end], schedule.due_ns[first:end])
        return [int(seq) for seq in first + np.flatnonzero(mine & (schedule.turn[first:end] == 0))]

    def _dispatch(self, seq: int) -> None:
        asks = [self._schedule.ask(seq)]
        while (later := seq + len(asks)) < len(self._schedule) and self._schedule.turn[later] > 0:
            asks.append(self._schedule.ask(later))
        due_ns = int(self._schedule.due_ns[seq])
        body = self._render(asks[0])
        while self._clock.now_ns() < due_ns < self._permit.stop_ns:
            self._sleep_until(due_ns)
        if due_ns < self._permit.stop_ns:
            self._launch(asks, body)

    def _sleep_until(self, run_ns: int) -> None:
        self._timer.sleep_until(self._clock.to_monotonic_ns(run_ns))
