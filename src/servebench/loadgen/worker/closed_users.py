"""Know closed load: virtual users who each send the next request some time after the answer to the one before."""

from collections.abc import Callable

import gevent
import numpy as np
from gevent.event import Event

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, Ask
from servebench.core.units import NS_PER_MS
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.permit import Permit, SeqPool
from servebench.workload.draw import Drawer
from servebench.workload.model import Closed
from servebench.workload.phase_names import CLOSED, CLOSED_WARMUP

BACK_OFF_NS = 300 * NS_PER_MS
"""Pause of a user after a failed connection: a server that is down must not be asked thousands of times a second."""


class ClosedUsers:
    """The users of one worker. `run` is their master greenlet; `set_users` may be called at any time by the handler.

    `perform` sends a request and returns its answer; what it raises goes to `on_failure`, and this worker's load ends.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        closed: Closed,
        drawer: Drawer,
        rng: np.random.Generator,
        seqs: SeqPool,
        clock: RunClock,
        permit: Permit,
        perform: Callable[[Ask], Answer],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._closed, self._drawer, self._rng, self._seqs = closed, drawer, rng, seqs
        self._clock, self._permit = clock, permit
        self._perform, self._on_failure = perform, on_failure
        self._wanted = 0
        self._users = 0
        self._retired = 0
        self._changed = Event()
        self._ended = False

    def wake(self) -> None:
        """Look at the permit again; any greenlet."""
        self._changed.set()

    def set_users(self, count: int) -> None:
        """Have this many users from now on: new ones begin at once, surplus ones end after their request."""
        self._wanted = count
        self._changed.set()

    def run(self) -> None:
        """Keep the users going until the requests are used up or the run stops; returns when the last one ended."""
        self._permit.sleep_until(0, self._clock.epoch_monotonic_ns)
        while not (self._over() and self._users == 0):
            while self._users + self._retired < self._places() and not self._over():
                self._users += 1
                gevent.spawn(self._user)
            self._changed.wait(0.2)
            self._changed.clear()

    def _over(self) -> bool:
        return self._ended or self._seqs.used_up or self._clock.now_ns() >= self._permit.stop_ns

    def _places(self) -> int:
        """Return how many users to have: one more than none while seqs that only this worker can send are in store."""
        return max(self._wanted, 1) if self._closed.total is not None and len(self._seqs) else self._wanted

    def _user(self) -> None:
        try:
            self._requests()
        except Exception as error:  # noqa: BLE001 - top of a greenlet: the harness failed, the run ends
            self._ended = True
            self._on_failure(error)
        finally:
            self._users -= 1
            self._changed.set()

    def _requests(self) -> None:
        """Send one request after the other, until this user is one too many or the run is over."""
        while self._users <= self._places() and not self._over():
            seq = self._seqs.take(ahead=min(16, self._wanted))
            if seq is None:
                self._ended = True
                return
            measured = seq >= self._closed.warmup_requests
            ask = self._drawer.ask(seq, phase=CLOSED if measured else CLOSED_WARMUP, measured=measured)
            if not self._think(self._perform(ask)):
                self._retired += 1  # its next request would come after the end: nobody takes its place
                return

    def _think(self, answer: Answer) -> bool:
        """Pause; False when the run stops meanwhile."""
        think = self._closed.think
        pause_ns = self._rng.exponential(think.mean_ns) if think.law == "exponential" else think.mean_ns
        if answer.outcome is Outcome.CONNECT_ERROR:
            pause_ns = max(pause_ns, BACK_OFF_NS)
        due_ns = answer.end_ns - self._clock.epoch_monotonic_ns + int(pause_ns)
        return self._permit.sleep_until(due_ns, self._clock.epoch_monotonic_ns)
