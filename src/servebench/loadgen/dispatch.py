"""Know when each request of this worker is due, and hand it over then: the two arrival engines.

Open loop: a dispatcher sleeps until an absolute time (timerfd), hands the request to its own greenlet and never waits
for an answer. What a request needs (its body) is made before its time comes.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from gevent.event import Event

from servebench.core.records import Ask
from servebench.core.units import NS_PER_S
from servebench.loadgen.membership import DECIDE_AHEAD_NS, Change, owned
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.timerfd import TimerFd
from servebench.workload.draw import Drawer
from servebench.workload.schedule import Schedule

log = logging.getLogger(__name__)

HOUR_NS = 3600 * NS_PER_S
NEVER_NS = 2**62

Render = Callable[[Ask], bytes]
Launch = Callable[[Ask, bytes], None]


@dataclass(slots=True)
class Permit:
    """What this worker may do now: its table, its lease, and where the run stops. Changed by message handlers."""

    changes: tuple[Change, ...] = ()
    valid_until_ns: int = -NEVER_NS
    stop_ns: int = NEVER_NS
    changed: Event = field(default_factory=Event)

    def signal(self) -> None:
        """Wake whoever waits for a change."""
        waited_for, self.changed = self.changed, Event()
        waited_for.set()


class PlanDispatcher:
    """Runs this worker's share of the schedule. `run` is the dispatcher greenlet; handlers call `wake`."""

    def __init__(
        self,
        schedule: Schedule,
        me: str,
        clock: RunClock,
        permit: Permit,
        render: Render,
        launch: Launch,
    ) -> None:
        self._schedule, self._me, self._clock, self._permit = schedule, me, clock, permit
        self._render, self._launch = render, launch
        self._timer = TimerFd()
        self._ended = False

    def wake(self) -> None:
        """Look at the permit again now; any greenlet."""
        self._permit.signal()
        if not self._ended:
            self._timer.arm(1)

    def run(self) -> None:
        """Dispatch until the schedule or the run ends; returns then."""
        times, permit, cursor = self._schedule.intended_ns, self._permit, 0
        try:
            while cursor < len(times) and times[cursor] < permit.stop_ns:
                soon = self._clock.now_ns() + DECIDE_AHEAD_NS
                end = int(np.searchsorted(times, min(soon, permit.valid_until_ns, permit.stop_ns - 1), side="right"))
                if end > cursor:
                    for seq in self._mine(cursor, end):
                        self._dispatch(seq)
                    cursor = end
                elif times[cursor] > soon:
                    self._sleep_until(int(times[cursor]) - DECIDE_AHEAD_NS)
                else:
                    permit.changed.wait(0.2)  # only the lease is missing
        finally:
            self._ended = True
            self._timer.close()

    def _mine(self, first: int, end: int) -> list[int]:
        seqs = np.arange(first, end, dtype=np.int64)
        mine = owned(self._permit.changes, self._me, seqs, self._schedule.intended_ns[first:end])
        return [int(seq) for seq in seqs[mine]]

    def _dispatch(self, seq: int) -> None:
        ask = self._schedule.ask(seq)
        intended_ns = int(self._schedule.intended_ns[seq])
        body = self._render(ask)
        while self._clock.now_ns() < intended_ns < self._permit.stop_ns:
            self._sleep_until(intended_ns)
        if intended_ns < self._permit.stop_ns:
            self._launch(ask, body)

    def _sleep_until(self, run_ns: int) -> None:
        self._timer.sleep_until(self._clock.to_monotonic_ns(run_ns))


class TokenDispatcher:
    """Offers `rate_per_s()` requests per second, following it while it changes. For load that a person steers.

    The gap law is applied in rescaled time: unit gaps are used up at the current rate, so an edit acts at once and
    Poisson arrivals stay Poisson. Seqs come in leased blocks (`need_blocks` asks for more).
    """

    def __init__(  # noqa: PLR0913 - the parts of one dispatcher, all of them its collaborators
        self,
        *,
        drawer: Drawer,
        poisson: bool,
        rng: np.random.Generator,
        clock: RunClock,
        permit: Permit,
        rate_per_s: Callable[[], float],
        need_blocks: Callable[[int], None],
        render: Render,
        launch: Launch,
    ) -> None:
        self._drawer, self._poisson, self._rng = drawer, poisson, rng
        self._clock, self._permit = clock, permit
        self._rate_per_s, self._need_blocks = rate_per_s, need_blocks
        self._render, self._launch = render, launch
        self._timer = TimerFd()
        self._ended = False
        self._seqs: deque[int] = deque()
        self._asked_for = 0
        self.step = 0

    def wake(self) -> None:
        """Integrate what has passed and go on at the new rate; any greenlet."""
        self._permit.signal()
        if not self._ended:
            self._timer.arm(1)

    def add_block(self, first: int, count: int) -> None:
        """Take leased seqs; called by the message handler."""
        self._seqs.extend(range(first, first + count))
        self._asked_for = max(0, self._asked_for - 1)
        self.wake()

    def run(self) -> None:
        """Dispatch until the run stops; returns then."""
        need, last_ns = self._unit_gap(), max(0, self._clock.now_ns())
        prepared = self._prepare()
        try:
            while last_ns < self._permit.stop_ns:
                rate_per_ns = self._rate_per_s() / NS_PER_S
                due_ns = last_ns + int(need / rate_per_ns) if rate_per_ns > 0 else last_ns + HOUR_NS
                self._timer.sleep_until(self._clock.to_monotonic_ns(min(due_ns, self._permit.stop_ns)))
                now_ns = max(last_ns, self._clock.now_ns())
                if rate_per_ns <= 0 or now_ns < due_ns:
                    need -= rate_per_ns * (now_ns - last_ns)
                    last_ns = now_ns
                    continue
                last_ns, need = due_ns, self._unit_gap()
                if due_ns < self._permit.stop_ns and due_ns <= self._permit.valid_until_ns:
                    self._hand_over(prepared, due_ns)
                    prepared = self._prepare()
        finally:
            self._ended = True
            self._timer.close()

    def _unit_gap(self) -> float:
        return float(self._rng.standard_exponential()) if self._poisson else 1.0

    def _prepare(self) -> tuple[Ask, bytes] | None:
        """Render the next request ahead of its time; None while no seq is leased or the run stops."""
        wanted = 1 + int(self._rate_per_s() / 64)
        if len(self._seqs) < 32 * wanted and not self._asked_for:
            self._asked_for = wanted
            self._need_blocks(wanted)
        while not self._seqs and self._permit.stop_ns == NEVER_NS:
            self._permit.changed.wait(0.2)
        if not self._seqs:
            return None
        ask = self._drawer.ask(self._seqs.popleft(), phase="manual", step=self.step, measured=True, intended_ns=None)
        return ask, self._render(ask)

    def _hand_over(self, prepared: tuple[Ask, bytes] | None, due_ns: int) -> None:
        if prepared is None:
            return
        ask, body = prepared
        self._launch(ask._replace(intended_ns=due_ns, step=self.step), body)
