"""Know exact statistics of chunk gaps for groups of rows, in two passes over the parts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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


def _shown(run: RunData, groups: Sequence[BoolArray], formula: GapFormula) -> Iterator[tuple[int, FloatArray]]:
    """Yield the gaps of each group, by its number, part by part."""
    for part in run.chunks.parts():
        gaps = formula(part.chunks, run.columns.ok[part.place])
        rows = part.place[gaps.request]
        for index, group in enumerate(groups):
            yield index, gaps.ns[group[rows]]


def _tallied(run: RunData, groups: Sequence[BoolArray], formula: GapFormula) -> list[Tally]:
    tallies = [Tally() for _ in groups]
    for index, values in _shown(run, groups, formula):
        tallies[index].add(values)
    return tallies


def _exact(
    run: RunData, groups: Sequence[BoolArray], tallies: Sequence[Tally], wanted: tuple[Sequence[float], GapFormula]
) -> list[GapStatistics]:
    quantiles, formula = wanted
    finders = [Finder(tally, quantiles) for tally in tallies]
    for index, values in _shown(run, groups, formula):
        finders[index].add(values)
    return [
        GapStatistics(n=tally.n, quantiles=finder.found(), mean=tally.mean, min=tally.min, max=tally.max)
        for tally, finder in zip(tallies, finders, strict=True)
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
