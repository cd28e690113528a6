"""Know when the next request is due while a person sets the rate."""

from collections.abc import Callable, Iterator

from servebench.core.records import Ask
from servebench.core.units import NS_PER_S
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.permit import Permit, SeqPool
from servebench.loadgen.worker.timerfd import TimerFd
from servebench.workload.draw import Drawer
from servebench.workload.phase_names import MANUAL

HOUR_NS = 3600 * NS_PER_S

Launch = Callable[[Ask, bytes], None]
Render = Callable[[Ask], bytes]


class TokenDispatcher:
    """Offers `rate_per_s()` requests per second, following it while it changes. `run` is the dispatcher greenlet.

    The gap law is applied in rescaled time: unit gaps are used up at the current rate, so an edit acts at once and
    Poisson arrivals stay Poisson.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        drawer: Drawer,
        unit_gaps: Iterator[float],
        seqs: SeqPool,
        clock: RunClock,
        permit: Permit,
        rate_per_s: Callable[[], float],
        render: Render,
        launch: Launch,
        next_due: NextDue,
    ) -> None:
        self._drawer, self._unit_gaps, self._seqs = drawer, unit_gaps, seqs
        self._clock, self._permit = clock, permit
        self._rate_per_s = rate_per_s
        self._render, self._launch = render, launch
        self._timer = TimerFd(next_due)
        self._ended = False
        self.step = 0

    def wake(self) -> None:
        """Integrate what has passed and go on at the new rate; any greenlet."""
        if not self._ended:
            self._timer.arm(1)

    def run(self) -> None:
        """Dispatch until the run stops; returns then."""
        need, last_ns = next(self._unit_gaps), max(0, self._clock.now_ns())
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
                if due_ns > self._permit.valid_until_ns:
                    # Nothing is offered without a lease, and nothing is made up for: the gap begins anew.
                    self._permit.await_lease(self._clock.epoch_monotonic_ns)
                    last_ns = max(last_ns, self._clock.now_ns())
                    continue
                last_ns, need = due_ns, next(self._unit_gaps)
                if due_ns < self._permit.stop_ns:
                    self._hand_over(prepared, due_ns)
                    prepared = self._prepare()
        finally:
            self._ended = True
            self._timer.close()

    def _prepare(self) -> tuple[Ask, bytes] | None:
        """Render the next request ahead of its time; None when the run stops."""
        seq = self._seqs.take(ahead=32 + int(self._rate_per_s() / 2))
        if seq is None:
            return None
        ask = self._drawer.ask(seq, phase=MANUAL, step=self.step)
        return ask, self._render(ask)

    def _hand_over(self, prepared: tuple[Ask, bytes] | None, due_ns: int) -> None:
        if prepared is not None:
            ask, body = prepared
            self._launch(ask._replace(intended_ns=due_ns, step=self.step), body)
