"""Know what a worker may do now: its table, its lease, its leased seqs, and where the run stops."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gevent.event import Event

from servebench.core.units import NS_PER_S
from servebench.loadgen.membership import Change

NEVER_NS = 2**62
ANSWER_LOST_NS = 5 * NS_PER_S
"""A reconnect may swallow a message; seqs that come twice are simply more seqs."""


@dataclass(slots=True)
class Permit:
    """Changed by message handlers, read by dispatchers. Times are of the run clock."""

    changes: tuple[Change, ...] = ()
    valid_until_ns: int = -NEVER_NS
    stop_ns: int = NEVER_NS
    changed: Event = field(default_factory=Event)
    """Set once at the next change of anything here; take it anew for each wait."""
    stopping: Event = field(default_factory=Event)
    """Set for good once a stop was ordered."""

    def signal(self) -> None:
        """Wake whoever waits for a change."""
        waited_for, self.changed = self.changed, Event()
        waited_for.set()

    def stop_at(self, stop_ns: int) -> None:
        """Send nothing intended from `stop_ns` on; the earliest order counts."""
        self.stop_ns = min(self.stop_ns, stop_ns)
        self.stopping.set()
        self.signal()

    def await_lease(self, epoch_monotonic_ns: int) -> bool:
        """Wait until requests may begin; False when the run stops first. Blocks the calling greenlet.

        Without a lease another worker may have this one's share, or nobody may: the master is not heard.
        """
        while (now_ns := time.monotonic_ns() - epoch_monotonic_ns) > self.valid_until_ns:
            if now_ns >= self.stop_ns:
                return False
            self.changed.wait(0.2)
        return True

    def sleep_until(self, due_ns: int, epoch_monotonic_ns: int) -> bool:
        """Wait for a time of the run clock; False when the run stops before it. Blocks the calling greenlet.

        The hub's own timers are up to 1 ms late, so this is for pauses, not for planned arrivals.
        """
        while True:
            now_ns = time.monotonic_ns() - epoch_monotonic_ns
            if due_ns >= self.stop_ns or now_ns >= self.stop_ns:
                return False
            if now_ns >= due_ns:
                return True
            if self.stopping.is_set():
                self.changed.wait((min(due_ns, self.stop_ns) - now_ns) / NS_PER_S)
            else:
                self.stopping.wait((due_ns - now_ns) / NS_PER_S)


class SeqPool:
    """Seqs leased by the master in blocks, ahead of need, for load without a schedule; none is ever given twice."""

    def __init__(self, permit: Permit, ask_for_blocks: Callable[[int], None]) -> None:
        self._permit, self._ask_for_blocks = permit, ask_for_blocks
        self._seqs: deque[int] = deque()
        self._outstanding = 0
        self._asked_ns = 0
        self._exhausted = False

    def __len__(self) -> int:
        """Return how many seqs are in store."""
        return len(self._seqs)

    @property
    def used_up(self) -> bool:
        """Whether none is in store and the master has no more."""
        return self._exhausted and not self._seqs

    def add(self, first: int, count: int) -> None:
        """Take a block; an empty one says that the run has no more. Called by the message handler."""
        self._outstanding = max(0, self._outstanding - 1)
        self._seqs.extend(range(first, first + count))
        self._exhausted = self._exhausted or count == 0
        self._permit.signal()

    def take(self, ahead: int) -> int | None:
        """Return the next seq, keeping about `ahead` more in store; None when there is none any more or the run stops.

        Blocks the calling greenlet while the master's answer is on its way.
        """
        while True:
            if len(self._seqs) <= ahead and not self._exhausted and self._may_ask():
                self._outstanding, self._asked_ns = 1 + ahead // 64, time.monotonic_ns()
                self._ask_for_blocks(self._outstanding)
            if self._seqs:
                return self._seqs.popleft()
            if self._exhausted or self._permit.stopping.is_set():
                return None
            self._permit.changed.wait(0.2)

    def put_back(self, seq: int) -> None:
        """Return a seq that was not sent after all; it is the next one again."""
        self._seqs.appendleft(seq)

    def _may_ask(self) -> bool:
        """Whether no answer is on its way, or it has been for so long that it must be lost."""
        return not self._outstanding or time.monotonic_ns() - self._asked_ns > ANSWER_LOST_NS
