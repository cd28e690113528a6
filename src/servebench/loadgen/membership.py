"""Know whose turn each planned request is, for any history of workers that come, go and return.

Theory. All processes hold the same schedule (seq, intended time). The membership table is a list of changes, each valid
from an instant of the run clock; seq k with time t belongs to members[k % len(members)] of the change valid at t. So
each seq has exactly one owner, whatever the history. Workers may still hold different tables for a moment; the lease
keeps them from acting on that: a worker decides only about times up to its lease end, each lease brings the table of
its moment, and a new change is valid from the latest lease end that any worker holds. So whoever decides about a time
after a change has seen the change. What a silent worker may still send ends with its lease; its share passes on then.

Pure: no clock, no Locust.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from servebench.core.units import NS_PER_MS

LEASE_NS = 1_200 * NS_PER_MS
DECIDE_AHEAD_NS = 250 * NS_PER_MS
HEARD_WITHIN_NS = 600 * NS_PER_MS
SILENT_AFTER_NS = 1_000 * NS_PER_MS
STALL_NS = 400 * NS_PER_MS
"""A master that looks this much later than it should has stalled; it does not take its workers for silent then."""

RUN_START = -(2**62)
"""Before every intended time: the first membership is valid from here."""


@dataclass(frozen=True, slots=True)
class Change:
    """Members valid from `from_ns` (run clock) on. No members = nobody sends."""

    from_ns: int
    members: tuple[str, ...]


def owned(
    changes: Sequence[Change], me: str, seqs: NDArray[np.int64], times_ns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which of `seqs` (with their intended times) belong to `me`.

    Shape (n,). `changes` is ordered by `from_ns`; of two with the same instant the later one holds.
    """
    starts = np.array([change.from_ns for change in changes], dtype=np.int64)
    which = np.searchsorted(starts, times_ns, side="right") - 1
    mine = np.zeros(len(seqs), dtype=np.bool_)
    for index, change in enumerate(changes):
        if me in change.members:
            mine |= (which == index) & (seqs % len(change.members) == change.members.index(me))
    return mine


def share_of(changes: Sequence[Change], me: str, count: int, at_ns: int) -> int:
    """Return how many of `count` users are `me`'s at an instant; the first members have what is left over.

    0 before the first change and for a worker that is no member. Like `owned`, it holds for whoever has a lease.
    """
    members = next((change.members for change in reversed(changes) if change.from_ns <= at_ns), ())
    if me not in members:
        return 0
    each, rest = divmod(count, len(members))
    return each + (members.index(me) < rest)


@dataclass(slots=True)
class _Grant:
    heard_ns: int
    until_ns: int


@dataclass(slots=True)
class Membership:
    """The master's table and leases. Times are of the run clock and are given by the caller."""

    changes: list[Change]
    _looked_ns: int
    _grants: dict[str, _Grant] = field(default_factory=dict)

    @classmethod
    def begin(cls, members: Sequence[str], now_ns: int) -> "Membership":
        """Return the table of a run that starts with these workers, all heard from at `now_ns`."""
        table = cls([Change(RUN_START, tuple(sorted(members)))], now_ns)
        for member in members:
            table._grants[member] = _Grant(now_ns, now_ns)
        return table

    @property
    def current(self) -> tuple[str, ...]:
        """Members of the latest change, which may still lie ahead."""
        return self.changes[-1].members

    def heard(self, member: str, now_ns: int) -> None:
        """Note a sign of life."""
        grant = self._grants.get(member)
        if grant is None:
            self._grants[member] = _Grant(now_ns, now_ns)
        else:
            grant.heard_ns = now_ns

    def lease_until(self, member: str, now_ns: int) -> int:
        """Return how far `member` may act; extended only while it is heard from and is a member."""
        grant = self._grants.setdefault(member, _Grant(now_ns - SILENT_AFTER_NS - 1, now_ns))
        if member in self.current and now_ns - grant.heard_ns <= HEARD_WITHIN_NS:
            grant.until_ns = max(grant.until_ns, now_ns + LEASE_NS)
        return grant.until_ns

    def update(self, known: Sequence[str], now_ns: int) -> tuple[list[str], list[str]]:
        """Take out members that fell silent, take in known workers that are heard; return (lost, joined).

        `known` are the prepared workers that have not left. Call it a few times a second.
        """
        stall_ns = now_ns - self._looked_ns
        self._looked_ns = now_ns
        if stall_ns > STALL_NS:
            for grant in self._grants.values():
                grant.heard_ns += stall_ns
        heard = {m for m in known if m in self._grants and now_ns - self._grants[m].heard_ns <= SILENT_AFTER_NS}
        lost = [m for m in self.current if m not in heard]
        joined = sorted(heard.difference(self.current))
        if lost or joined:
            from_ns = max([now_ns, self.changes[-1].from_ns, *(grant.until_ns for grant in self._grants.values())]) + 1
            self.changes.append(Change(from_ns, tuple(sorted(heard))))
        return lost, joined
