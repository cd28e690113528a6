"""Know closed load: virtual users who each send the next request some time after the answer to the one before.

Each worker has its share of the users by the membership table, as it has its share of a schedule, and begins requests
under a lease only: so those who may begin are never more than there should be users, whoever comes, goes or is not
heard for a while. A user who is one too many ends with the request that is open. One thing goes before that: seqs in
a worker's store can be sent by nobody else, so one user stays for them.

Where the workload has conversations, a user lives through one after the other: the pause between turns is the
conversation's, the one before the next conversation is the user's own.
"""

from collections.abc import Callable

import gevent
import numpy as np
from gevent.event import Event

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, Ask
from servebench.core.units import NS_PER_MS
from servebench.loadgen.loop_turn import STARTS_PER_TURN, let_loop_run
from servebench.loadgen.membership import share_of
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.permit import Permit, SeqPool
from servebench.workload.draw import Drawer
from servebench.workload.model import Closed, Conversation, Think

BACK_OFF_NS = 300 * NS_PER_MS
"""Pause of a user after a failed connection: a server that is down must not be asked thousands of times a second."""


class ClosedUsers:
    """The users of the worker `me`. `run` is their master greenlet.

    `converse` begins a conversation (a single request without `talk`): what it returns sends the next turn and returns
    the answer. What that raises goes to `on_failure`, and this worker's load ends.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        me: str,
        closed: Closed,
        drawer: Drawer,
        rng: np.random.Generator,
        seqs: SeqPool,
        clock: RunClock,
        permit: Permit,
        talk: Conversation | None = None,
        converse: Callable[[], Callable[[Ask], Answer]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._me, self._closed, self._drawer, self._rng, self._seqs = me, closed, drawer, rng, seqs
        self._clock, self._permit = clock, permit
        self._talk, self._converse, self._on_failure = talk, converse, on_failure
        self._users = 0
        self._retired = 0
        self._changed = Event()
        self._ended = False

    def wake(self) -> None:
        """Look at the permit again; any greenlet."""
        self._changed.set()

    def run(self) -> None:
        """Keep the users going until the requests are used up or the run stops; returns when the last one ended."""
        self._permit.sleep_until(0, self._clock.epoch_monotonic_ns)
        while not (self._over() and self._users == 0):
            while self._users + self._retired < self._places() and not self._over():
                self._users += 1
                gevent.spawn(self._user)
                if self._users % STARTS_PER_TURN == 0:
                    let_loop_run()
            self._changed.wait(0.2)
            self._changed.clear()

    def _over(self, held: int = 0) -> bool:
        used_up = self._seqs.used_up and not held
        return self._ended or used_up or self._clock.now_ns() >= self._permit.stop_ns

    def _share(self) -> int:
        return share_of(self._permit.changes, self._me, self._closed.users, self._clock.now_ns())

    def _places(self, held: int = 0) -> int:
        """Return how many users to have: one more than none while seqs that only this worker can send are here.

        `held` of them are not in store but in a user's hand.
        """
        stored = self._closed.total is not None and len(self._seqs) + held > 0
        return max(self._share(), 1) if stored else self._share()

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
        while self._is_wanted():
            perform, first, turn = self._converse(), None, 0
            while self._is_wanted():
                seq = self._seqs.take(ahead=min(16, self._share()))
                if seq is None:
                    self._ended = not self._seqs.used_up  # used up, unless another user puts one back
                    return
                if not self._is_wanted(held=1):  # much may have happened while the master's answer was on its way
                    self._seqs.put_back(seq)
                    return
                first = seq if first is None else first
                ask = self._drawer.closed_ask(self._closed, seq, session=first, turn=turn)
                answer, turn = perform(ask), turn + 1
                ends = answer.outcome is not Outcome.OK or turn >= self._turns(first)
                if not self._think(answer, self._closed.think if ends or self._talk is None else self._talk.think):
                    self._retired += 1  # its next request would come after the end: nobody takes its place
                    return
                if ends:
                    break

    def _is_wanted(self, held: int = 0) -> bool:
        """Wait for a lease; say whether this user is not one too many under it."""
        leased = self._permit.await_lease(self._clock.epoch_monotonic_ns)
        return leased and self._users <= self._places(held) and not self._over(held)

    def _turns(self, first: int) -> int:
        """Return how many turns the conversation has that begins with a request."""
        return int(self._drawer.turns(first, 1)[0])

    def _think(self, answer: Answer, think: Think) -> bool:
        """Pause; False when the run stops meanwhile."""
        pause_ns = self._rng.exponential(think.mean_ns) if think.law == "exponential" else think.mean_ns
        if answer.outcome is Outcome.CONNECT_ERROR:
            pause_ns = max(pause_ns, BACK_OFF_NS)
        due_ns = answer.end_ns - self._clock.epoch_monotonic_ns + int(pause_ns)
        return self._permit.sleep_until(due_ns, self._clock.epoch_monotonic_ns)
