"""Know exact statistics of chunk gaps for groups of rows, in two passes over the parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from servebench.analysis.chunks import PartWork, by_size, works
from servebench.analysis.source import RunData
from servebench.metrics.columns import BoolArray, ChunkColumns, FloatArray
from servebench.metrics.events import Gaps, chunk_gaps
from servebench.metrics.exact import Finder, Tally

MOST_GROUPS = 64
"""Groups that one pass serves; a tally takes 1.4 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapStatistics:
    """Chunk gaps of one group, ns; all NaN of nothing. `quantiles` in the order asked for."""

    n: int
    quantiles: FloatArray
    mean: float
    min: float
    max: float


GapFormula = Callable[[ChunkColumns, BoolArray], Gaps]
"""From the events of some requests and which of these are ok to gaps in whole ns."""


def gap_statistics(
    run: RunData, groups: Sequence[BoolArray], quantiles: Sequence[float], formula: GapFormula = chunk_gaps
) -> list[GapStatistics]:
    """Return exact statistics of the gaps of each group, a mask over the rows of the run.

    Raises ShardError where a part changed since the run was read.
    """
    found: list[GapStatistics] = []
    for start in range(0, len(groups), MOST_GROUPS):
        some = groups[start : start + MOST_GROUPS]
        known = phase_tallies(run, some) if formula is chunk_gaps else None
        tallies = known if known is not None else _tallied(run, some, formula)
        found += _exact(run, some, tallies, (quantiles, formula))
    return found


def tally_parts(parts: Sequence[PartWork], formula: GapFormula) -> list[Tally]:
    """Return the first count of the gaps of each group over some parts."""
    tallies = [Tally() for _ in parts[0].groups] if parts else []
    for part in parts:
        gaps = formula(part.chunks(), part.ok)
        for tally, group in zip(tallies, part.groups, strict=True):
            tally.add(gaps.ns[group[gaps.request]])
    return tallies


def find_in_parts(
    parts: Sequence[PartWork], formula: GapFormula, tallies: Sequence[Tally], quantiles: Sequence[float]
) -> list[Finder]:
    """Return the second count of the gaps of each group over some parts."""
    finders = [Finder(tally, quantiles) for tally in tallies]
    for part in parts:
        gaps = formula(part.chunks(), part.ok)
        for finder, group in zip(finders, part.groups, strict=True):
            finder.add(gaps.ns[group[gaps.request]])
    return finders


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
    for finders in mapped(find_in_parts, batches, [formula] * count, [tallies] * count, [quantiles] * count):
        for own, other in zip(total, finders, strict=True):
            own.merge(other)
    return [
        GapStatistics(n=tally.n, quantiles=finder.found(), mean=tally.mean, min=tally.min, max=tally.max)
        for tally, finder in zip(tallies, total, strict=True)
    ]


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
