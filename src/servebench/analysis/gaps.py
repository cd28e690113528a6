"""Know exact statistics of chunk gaps for groups of rows, in two passes over the parts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.analysis.chunks import PartWork, by_size, works
from servebench.analysis.source import RunData
from servebench.metrics.columns import BoolArray, ChunkColumns, FloatArray, IntArray
from servebench.metrics.events import Gaps, chunk_gaps
from servebench.metrics.exact import Finder, Tally
from servebench.metrics.intervals import levels_for, long_run_variance, needed_effective, rank_shares

MOST_GROUPS = 64
"""Groups that one pass serves; a tally takes 1.4 MB."""
_LEVELS = np.array(levels_for(0.95))
Counts = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapStatistics:
    """Chunk gaps of one group, ns; all NaN of nothing. `quantiles` in the order asked for.

    `p95_lo` and `p95_hi` bound p95 with 95 %, within 0.013 %; None where `n_eff`, the number of independent gaps that n
    are worth, is too small. Gaps of one request are one cluster, and requests resemble their neighbours.
    """

    n: int
    quantiles: FloatArray
    mean: float
    min: float
    max: float
    p95_lo: float | None
    p95_hi: float | None
    n_eff: float


class Clusters(NamedTuple):
    """Gaps per request that has some: its row, how many, how many at or below each level, shape (requests, levels)."""

    row: IntArray
    gaps: Counts
    below: Counts


class Seen(NamedTuple):
    """The second count of a group over some parts."""

    finder: Finder
    clusters: list[Clusters]


GapFormula = Callable[[ChunkColumns, BoolArray], Gaps]
"""From the events of some requests and which of these are ok to gaps in whole ns."""


def gap_statistics(
    run: RunData, groups: Sequence[BoolArray], quantiles: Sequence[float], formula: GapFormula = chunk_gaps
) -> list[GapStatistics]:
    """Return exact statistics of the gaps of each group, a mask over the rows of the run.

    Raises ShardError where a part changed since the run was read.
    """
    twins = first_alike(groups)
    distinct = [group for place, group in enumerate(groups) if twins[place] == place]
    found: list[GapStatistics] = []
    for start in range(0, len(distinct), MOST_GROUPS):
        some = distinct[start : start + MOST_GROUPS]
        known = phase_tallies(run, some) if formula is chunk_gaps else None
        tallies = known if known is not None else _tallied(run, some, formula)
        found += _exact(run, some, tallies, (quantiles, formula))
    by_place = dict(zip(dict.fromkeys(twins), found, strict=True))
    return [by_place[twin] for twin in twins]


def first_alike(masks: Sequence[BoolArray]) -> list[int]:
    """Return for each mask the place of the first one that is equal to it."""
    seen: dict[bytes, int] = {}
    return [seen.setdefault(np.packbits(mask).tobytes(), place) for place, mask in enumerate(masks)]


class _Block(NamedTuple):
    """Gaps of some neighbouring requests of a part: which rows of the run these are, and which belong to each group."""

    place: IntArray
    gaps: Gaps
    groups: list[BoolArray]

    def of(self, group: BoolArray) -> Gaps:
        """Return the gaps of one group."""
        if group.all():
            return self.gaps
        mine = group[self.gaps.request]
        return Gaps(self.gaps.ns[mine], self.gaps.request[mine], self.gaps.at_ns[mine])


def _blocks(parts: Sequence[PartWork], formula: GapFormula) -> Iterator[_Block]:
    for part in parts:
        for rows, chunks in part.blocks():
            gaps = formula(chunks, part.ok[rows])
            yield _Block(part.part.place[rows], gaps, [group[rows] for group in part.groups])


def tally_parts(parts: Sequence[PartWork], formula: GapFormula) -> list[Tally]:
    """Return the first count of the gaps of each group over some parts."""
    tallies = [Tally() for _ in parts[0].groups] if parts else []
    for block in _blocks(parts, formula):
        for tally, group in zip(tallies, block.groups, strict=True):
            tally.add(block.of(group).ns)
    return tallies


def find_in_parts(
    parts: Sequence[PartWork], formula: GapFormula, tallies: Sequence[Tally], quantiles: Sequence[float]
) -> list[Seen]:
    """Return the second count of the gaps of each group over some parts."""
    found = [Seen(Finder(tally, quantiles), []) for tally in tallies]
    cuts = [tally.about(_LEVELS) for tally in tallies]
    for block in _blocks(parts, formula):
        for seen, group, cut in zip(found, block.groups, cuts, strict=True):
            mine = block.of(group)
            seen.finder.add(mine.ns)
            seen.clusters.append(clusters(block.place, mine, cut))
    return [Seen(seen.finder, _joined(seen.clusters)) for seen in found]


def clusters(place: IntArray, gaps: Gaps, cuts: FloatArray) -> Clusters:
    """Return the gaps per request, where request i is row place[i] of the run; `cuts` are the levels, ascending."""
    above = np.zeros(len(gaps.ns), np.int64)
    for cut in cuts:
        above += gaps.ns > cut
    size = len(cuts) + 1
    cells = np.bincount(gaps.request * size + above, minlength=len(place) * size)
    below = np.cumsum(cells.reshape(-1, size), axis=1, dtype=np.int32)
    filled = np.flatnonzero(below[:, -1])
    return Clusters(place[filled], below[filled, -1], below[filled, :-1])


def _joined(found: Sequence[Clusters]) -> list[Clusters]:
    return [Clusters(*(np.concatenate(column) for column in zip(*found, strict=True)))] if found else []


def effective_gaps(sent_ns: FloatArray, found: Sequence[Clusters]) -> float:
    """Return how many independent gaps the gaps of some requests are worth, whose sending times are `sent_ns`."""
    row, counts, below = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((row, sent_ns[row]))
    counts, below = counts[order], below[order]
    total = float(counts.sum())
    vif = 1.0
    for level in below.T:
        share = float(level.sum()) / total
        if 0 < share < 1:
            spread = len(level) * long_run_variance(level - share * counts)
            vif = max(vif, spread / (total * share * (1 - share)))
    return total / vif


def _batches(run: RunData, groups: Sequence[BoolArray]) -> list[list[PartWork]]:
    parts = works(run.chunks, run.columns.ok, groups)
    if run.chunks.executor is None or not parts:
        return [parts]
    return by_size(parts, [part.part.path.stat().st_size for part in parts])


def _tallied(run: RunData, groups: Sequence[BoolArray], formula: GapFormula) -> list[Tally]:
    batches, executor = _batches(run, groups), run.chunks.executor
    mapped = executor.map if executor is not None else map
    total = [Tally() for _ in groups]
    for tallies in mapped(tally_parts, batches, [formula] * len(batches)):
        for own, other in zip(total, tallies, strict=False):
            own.merge(other)
    return total


def _exact(
    run: RunData, groups: Sequence[BoolArray], tallies: Sequence[Tally], wanted: tuple[Sequence[float], GapFormula]
) -> list[GapStatistics]:
    quantiles, formula = wanted
    batches, executor = _batches(run, groups), run.chunks.executor
    mapped, count = executor.map if executor is not None else map, len(batches)
    total = [Finder(tally, quantiles) for tally in tallies]
    kept: list[list[Clusters]] = [[] for _ in tallies]
    for pieces in mapped(find_in_parts, batches, [formula] * count, [tallies] * count, [quantiles] * count):
        for finder, mine, seen in zip(total, kept, pieces, strict=True):
            finder.merge(seen.finder)
            mine.extend(seen.clusters)
    return [_statistics(run, *found) for found in zip(tallies, total, kept, strict=True)]


def _statistics(run: RunData, tally: Tally, finder: Finder, found: Sequence[Clusters]) -> GapStatistics:
    n_eff = effective_gaps(run.columns.sent_ns, found) if tally.n else 0.0
    shares = rank_shares(n_eff, 0.95) if n_eff >= needed_effective(0.95) else None
    lo, hi = (None, None) if shares is None else map(float, tally.about(np.array(shares)))
    return GapStatistics(
        n=tally.n,
        quantiles=finder.found(),
        mean=tally.mean,
        min=tally.min,
        max=tally.max,
        p95_lo=lo,
        p95_hi=hi,
        n_eff=n_eff,
    )


def phase_tallies(run: RunData, groups: Sequence[BoolArray]) -> list[Tally] | None:
    """Return the tallies that reading made, where every group is whole phases of unspoiled rows; else None."""
    counted = {name: np.equal(run.phase, name) & ~run.spoiled for name in run.gaps}
    found = []
    for group in groups:
        inside = [name for name, rows in counted.items() if (group & rows).any()]
        whole = np.logical_or.reduce([np.zeros(len(group), bool), *(counted[name] for name in inside)])
        if not np.array_equal(whole, group):
            return None
        merged = Tally()
        for name in inside:
            merged.merge(run.gaps[name])
        found.append(merged)
    return found
