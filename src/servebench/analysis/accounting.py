"""Know whether every planned request has a row or a name: planned = distinct seqs of the rows + lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.metrics.columns import FloatArray, IntArray, distinct
from servebench.shards.manifest import LostRange, Manifest, MembersRecord

UNKNOWN = "unknown"
_MOST_MISSING = 10_000_000
"""Requests that may be missing where nobody says how many were planned; a seq beyond is of another run."""
UNDISPATCHED = "undispatched"
UNFLUSHED = "unflushed"
GREY_NS = 1_200_000_000
"""A lease lasts this long: so much later than its last word a lost worker may still have begun a request."""


class RowKeys(NamedTuple):
    """Keys of all rows in order of (seq, attempt), with the intended time (NaN = none) and phase of each."""

    seq: IntArray
    attempt: IntArray
    intended_ns: FloatArray
    phase: npt.NDArray[np.object_]


class _Blame(NamedTuple):
    worker: str | None
    cause: str
    certain: bool


class _Turn(NamedTuple):
    """A seq, the first seq of its conversation, and that conversation's number: the turn of a worker goes by it."""

    seq: int
    first: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Counts of requests. `beyond` = distinct seqs that no plan holds; `duplicates` = rows whose key was seen before.

    `unnamed` = requests that workers say they began but which have neither row nor name.
    """

    planned: int
    rows: int
    distinct: int
    duplicates: int
    beyond: int
    unnamed: int
    lost: tuple[LostRange, ...]
    lost_by_phase: Mapping[str, int]

    @property
    def lost_count(self) -> int:
        """Requests in the lost ranges."""
        return sum(item.last - item.first + 1 for item in self.lost)


def account(manifest: Manifest, keys: RowKeys, conversations: IntArray | None = None) -> Accounting:
    """Return who is missing. Pure; the same answer for a manifest that it has already completed.

    `conversations`: the seqs that conversations begin with, in order; None = every request is one of its own.
    """
    seqs = distinct(keys.seq)
    same = (np.diff(keys.seq) == 0) & (np.diff(keys.attempt) == 0)
    limit = _plan_size(manifest, seqs)
    missing = _missing_of_plan(limit, seqs) if limit is not None else _missing_of_leases(manifest, seqs)
    ranges = _named(manifest, keys, missing, conversations)
    planned = limit if limit is not None else len(seqs) + len(missing)
    return Accounting(
        planned=planned,
        rows=len(keys.seq),
        distinct=len(seqs),
        duplicates=int(np.sum(same)),
        beyond=int(np.sum(seqs >= limit)) if limit is not None else 0,
        unnamed=max(0, _begun(manifest) - planned) if limit is None else 0,
        lost=ranges,
        lost_by_phase=_by_phase(manifest, keys, missing),
    )


def never_closed(manifest: Manifest) -> bool:
    """Return whether the master ended without a word, so that `planned` is only what the rows prove."""
    return manifest.stop_cause is None


def _plan_size(manifest: Manifest, seqs: IntArray) -> int | None:
    """Return how many seqs were due; None where there is no plan (tokens, closed)."""
    if manifest.engine != "plan":
        return None
    if never_closed(manifest) or manifest.planned is None:
        told = manifest.planned_total if manifest.planned_total is not None else len(seqs) + _MOST_MISSING
        return max(manifest.planned or 0, min(int(seqs[-1]) + 1, told) if len(seqs) else 0)
    return manifest.planned


def _begun(manifest: Manifest) -> int:
    return sum(worker.begun for worker in manifest.workers if worker.begun is not None)


def _missing_of_plan(planned: int, seqs: IntArray) -> IntArray:
    present = np.zeros(planned, bool)
    present[seqs[(seqs >= 0) & (seqs < planned)]] = True
    return np.flatnonzero(~present)


def _missing_of_leases(manifest: Manifest, seqs: IntArray) -> IntArray:
    leased = [np.arange(item.first, item.last + 1) for item in manifest.lost_detail]
    return np.setdiff1d(np.concatenate([np.empty(0, np.int64), *leased]), seqs)


def _named(
    manifest: Manifest, keys: RowKeys, missing: IntArray, conversations: IntArray | None
) -> tuple[LostRange, ...]:
    """Return runs of missing seqs that share owner and cause, in order."""
    told = _told(manifest, missing)
    blames = _derived_all(manifest, keys, missing, conversations)
    blames = [said or blame for said, blame in zip(told, blames, strict=True)]
    ranges = []
    numbered = enumerate(zip(missing.tolist(), blames, strict=True))
    for _, run in groupby(numbered, key=lambda item: (item[1][0] - item[0], item[1][1])):
        items = list(run)
        blame = items[0][1][1]
        ranges.append(
            LostRange(
                first=items[0][1][0],
                last=items[-1][1][0],
                worker=blame.worker,
                cause=blame.cause,
                certain=blame.certain,
            )
        )
    return tuple(ranges)


def _told(manifest: Manifest, missing: IntArray) -> list[_Blame | None]:
    """Return what the manifest says of each missing seq, None where it says nothing."""
    said = [item for item in manifest.lost_detail if item.worker is not None or item.cause != UNKNOWN]
    said.sort(key=lambda item: item.first)
    places = np.searchsorted(np.array([item.first for item in said], np.int64), missing, side="right") - 1
    found = [said[place] if place >= 0 else None for place in places]
    return [
        _Blame(item.worker, item.cause, item.certain) if item is not None and seq <= item.last else None
        for item, seq in zip(found, missing, strict=True)
    ]


def _derived_all(manifest: Manifest, keys: RowKeys, missing: IntArray, conversations: IntArray | None) -> list[_Blame]:
    """Return what follows for each missing seq from the membership and its conversation."""
    if conversations is None:
        return [_derived(manifest, keys, _Turn(seq, seq, seq)) for seq in missing.tolist()]
    numbers = np.searchsorted(conversations, missing, side="right") - 1
    # Later turns have no planned time: only first ones say when something was due.
    first_turns = np.isin(keys.seq, conversations)
    begun = RowKeys(
        keys.seq[first_turns], keys.attempt[first_turns], keys.intended_ns[first_turns], keys.phase[first_turns]
    )
    turns = zip(missing.tolist(), conversations[numbers].tolist(), numbers.tolist(), strict=True)
    return [_derived(manifest, begun, _Turn(*turn)) for turn in turns]


def _derived(manifest: Manifest, keys: RowKeys, turn: _Turn) -> _Blame:
    """Return whose turn a seq was by the membership at its intended time, and how far it got.

    A lost worker had begun what it said so of (unflushed), which a slow one says of less than was due. What was due
    later than a lease after its last word it had not; between the two it may have. A later turn waits for the answer
    before it, so of a conversation that was due it may never have begun. One that ended in order sent all it begun to
    disk, or says that not.
    """
    sharing = _sharing(manifest.members, turn.first)
    if sharing is not None and not sharing.workers:
        return _Blame(None, UNDISPATCHED, True)
    owner = _owner(manifest.members, keys, turn)
    record = next((worker for worker in manifest.workers if worker.worker == owner), None)
    if record is None:
        return _Blame(owner, UNKNOWN, True)
    if record.state == "closed":
        kept = record.begun is None or record.rows is None or record.rows >= record.begun
        begun = not kept and (record.reached_seq is None or turn.first < record.reached_seq)
        return _Blame(owner, UNFLUSHED if begun else UNDISPATCHED, True)
    reached = record.due_seq if record.reached_seq is None else record.reached_seq
    if reached is None or record.last_heard_ns is None:
        return _Blame(owner, UNKNOWN, True)
    if turn.first < reached:
        return _Blame(owner, UNFLUSHED, turn.seq == turn.first)
    place = int(np.searchsorted(keys.seq, turn.first))
    before_ns = keys.intended_ns[place - 1] if place else -np.inf
    return _Blame(owner, UNDISPATCHED, bool(before_ns > record.last_heard_ns + GREY_NS))


def _sharing(members: list[MembersRecord], seq: int) -> MembersRecord | None:
    """Return who shared the plan when the seq was due, None where the manifest does not say from which seq on."""
    exact = [record for record in members if record.first_seq is not None and record.first_seq <= seq]
    return exact[-1] if exact else None


def _owner(members: list[MembersRecord], keys: RowKeys, turn: _Turn) -> str | None:
    """Return the member whose turn it was, None where a change of members lies near its unknown time."""
    sharing = _sharing(members, turn.first)
    if sharing is not None:
        return sharing.workers[turn.number % len(sharing.workers)] if sharing.workers else None
    place = int(np.searchsorted(keys.seq, turn.first))
    before = keys.intended_ns[place - 1] if place else -np.inf
    after = keys.intended_ns[place] if place < len(keys.seq) else np.inf
    starts = np.array([record.from_ns for record in members], dtype=np.float64)
    first = int(np.searchsorted(starts, before, side="right")) - 1
    last = int(np.searchsorted(starts, after, side="right")) - 1
    candidates = {
        record.workers[turn.number % len(record.workers)]
        for record in members[max(first, 0) : last + 1]
        if record.workers
    }
    return candidates.pop() if len(candidates) == 1 else None


def _by_phase(manifest: Manifest, keys: RowKeys, missing: IntArray) -> dict[str, int]:
    """Return how many missing seqs each phase has: by the plan's sizes, else by the row before."""
    if not len(missing):
        return {}
    sizes = [phase.planned for phase in manifest.phases]
    if manifest.engine == "plan" and sizes and all(size is not None for size in sizes):
        ends = np.cumsum([size for size in sizes if size is not None])
        places = np.minimum(np.searchsorted(ends, missing, side="right"), len(sizes) - 1)
        names = [manifest.phases[place].name for place in places]
    elif len(keys.seq):
        names = [str(keys.phase[place]) for place in np.maximum(np.searchsorted(keys.seq, missing) - 1, 0)]
    else:
        names = [manifest.phases[0].name if manifest.phases else UNKNOWN] * len(missing)
    return {name: names.count(name) for name in dict.fromkeys(names)}
