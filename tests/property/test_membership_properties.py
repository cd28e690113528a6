"""Each planned request has one owner, whatever workers and messages do."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from servebench.core.units import NS_PER_MS
from servebench.loadgen.membership import DECIDE_AHEAD_NS, LEASE_NS, RUN_START, Change, Membership, owned, share_of

STEP_NS = 50 * NS_PER_MS
NAMES = ("a", "b", "c", "d")
USERS = 7

histories = st.lists(
    st.tuples(st.integers(-(10**9), 10**10), st.sets(st.sampled_from(NAMES), min_size=1)), min_size=1, max_size=6
)


@given(histories, st.lists(st.integers(0, 10**10), min_size=1, max_size=50))
def test_every_seq_has_exactly_one_owner_for_any_history(history: list[tuple[int, set[str]]], times: list[int]) -> None:
    changes = [Change(RUN_START, ("a", "b"))]
    changes += [Change(from_ns, tuple(sorted(members))) for from_ns, members in sorted(history, key=lambda h: h[0])]
    times_ns = np.sort(np.array(times, dtype=np.int64))
    seqs = np.arange(len(times_ns), dtype=np.int64)
    shares = [owned(changes, name, seqs, times_ns) for name in NAMES]
    assert np.array_equal(np.sum(shares, axis=0), np.ones(len(seqs)))
    for at_ns in times:
        assert sum(share_of(changes, name, USERS, at_ns) for name in NAMES) == USERS


@dataclass
class Worker:
    """A worker as the rules want it: decides up to its lease, with the table that came with it."""

    name: str
    changes: tuple[Change, ...] = ()
    until_ns: int = RUN_START
    cursor: int = 0
    sent: list[int] = field(default_factory=list)

    def users(self, now_ns: int) -> int:
        """How many closed users may begin a request here now: none without a lease."""
        return share_of(self.changes, self.name, USERS, now_ns) if now_ns <= self.until_ns else 0

    def decide(self, now_ns: int, times: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        end = int(np.searchsorted(times, min(now_ns + DECIDE_AHEAD_NS, self.until_ns), side="right"))
        if end > self.cursor:
            seqs = np.arange(self.cursor, end, dtype=np.int64)
            self.sent += seqs[owned(self.changes, self.name, seqs, times[self.cursor : end])].tolist()
            self.cursor = end


# For each worker the steps in which it is cut off from the master, and whether it also stands still meanwhile.
outages = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 150), st.integers(1, 80), st.booleans()), max_size=6
)


@settings(deadline=None, max_examples=150)
@given(outages, st.sets(st.sampled_from(NAMES), min_size=1), st.lists(st.integers(0, 160), max_size=3))
def test_no_seq_is_sent_twice_and_none_is_skipped_by_a_worker_that_lives(
    cuts: list[tuple[str, int, int, bool]], first_members: set[str], stalls: list[int]
) -> None:
    times = np.arange(0, 200 * STEP_NS, STEP_NS // 3, dtype=np.int64)
    workers = {name: Worker(name) for name in NAMES}
    table = Membership.begin(sorted(first_members), 0)
    for step in range(260):
        now = step * STEP_NS
        off = {name for name, first, length, _ in cuts if first <= step < first + length}
        still = {name for name, first, length, stands in cuts if stands and first <= step < first + length}
        master_stalls = any(first <= step < first + 25 for first in stalls)
        if not master_stalls and step % 4 == 0:
            for name in sorted(set(NAMES) - off):
                table.heard(name, now)
                workers[name].until_ns = table.lease_until(name, now)
                workers[name].changes = tuple(table.changes)
            table.update(NAMES, now)
        for name in sorted(set(NAMES) - still):
            workers[name].decide(now, times)
        sharing = sum(worker.users(now) for worker in workers.values())
        assert sharing <= USERS, "more closed users than there are"
        if not cuts and not stalls and now > 0:
            assert sharing == USERS or set(table.current) != set(NAMES)
    sent = sorted(seq for worker in workers.values() for seq in worker.sent)
    assert len(sent) == len(set(sent)), "sent twice"
    if not cuts:
        assert len(sent) == len(times), "skipped without any loss"


def test_the_share_of_a_silent_worker_passes_on_when_its_lease_ends() -> None:
    table = Membership.begin(["a", "b"], 0)
    until = table.lease_until("b", 0)
    table.lease_until("a", 0)
    assert until == LEASE_NS
    for step in range(1, 30):
        now = step * STEP_NS
        table.heard("a", now)
        lost, _ = table.update(["a", "b"], now)
        if lost:
            break
        table.lease_until("a", now)
    assert lost == ["b"]
    assert table.current == ("a",)
    assert until < table.changes[-1].from_ns <= now + LEASE_NS + 1
