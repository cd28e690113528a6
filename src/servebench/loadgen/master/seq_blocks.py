"""Know which seqs of a run without schedule are leased to which worker; none is ever given twice."""

from collections.abc import Sequence
from dataclasses import dataclass

from servebench.core.units import NS_PER_S
from servebench.loadgen.master.roster import Roster
from servebench.loadgen.master.runbook import Runbook
from servebench.loadgen.messages import SeqBlock

BLOCK_SEQS = 64
REMIND_NS = 2 * NS_PER_S


@dataclass(slots=True)
class SeqBlocks:
    """The seqs of one run, handed out in order. `total` None = there is no end to them."""

    run_id: str
    total: int | None
    roster: Roster
    runbook: Runbook
    _next: int = 0
    _told: bool = False
    _reminded_ns: int = 0

    @property
    def used_up(self) -> bool:
        """Whether the last of a given number of requests is leased."""
        return self.total is not None and self._next >= self.total

    def lease(self, worker_id: str, blocks: int) -> None:
        """Lease blocks to a worker; once there are no more, tell every worker."""
        for _ in range(blocks):
            count = self._size()
            self.runbook.leased(worker_id, self._next, count)
            self.roster.send(SeqBlock(run_id=self.run_id, first=self._next, count=count), [worker_id])
            self._next += count
        if self.used_up and not self._told:
            self._told = True
            self.tell_used_up(self.roster.reachable())

    def tell_used_up(self, worker_ids: Sequence[str]) -> None:
        """Tell that there are no more seqs, also to workers without users, which never ask."""
        self.roster.send(SeqBlock(run_id=self.run_id, first=self._next, count=0), worker_ids)

    def remind(self, worker_ids: Sequence[str], now_ns: int) -> None:
        """Tell it again now and then to workers that are not done: a reconnect may have swallowed the word."""
        if self.used_up and worker_ids and now_ns - self._reminded_ns >= REMIND_NS:
            self._reminded_ns = now_ns
            self.tell_used_up(worker_ids)

    def _size(self) -> int:
        """Return how many seqs to lease: smaller blocks near the end, so that no worker sits on the last requests."""
        if self.total is None:
            return BLOCK_SEQS
        left = self.total - self._next
        return min(left, BLOCK_SEQS, max(1, left // (2 * max(1, len(self.roster.live())))))
