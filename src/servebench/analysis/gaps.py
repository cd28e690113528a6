"""Know exact statistics of chunk gaps for groups of rows, in two passes over the parts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from servebench.analysis.source import RunData
from servebench.metrics.columns import BoolArray, FloatArray
from servebench.metrics.events import chunk_gaps
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


def gap_statistics(run: RunData, groups: Sequence[BoolArray], quantiles: Sequence[float]) -> list[GapStatistics]:
    """Return exact statistics of the chunk gaps of each group, a mask over the rows of the run.

    Raises ShardError where a part changed since the run was read.
    """
    found: list[GapStatistics] = []
    for start in range(0, len(groups), MOST_GROUPS):
        some = groups[start : start + MOST_GROUPS]
        tallies = phase_tallies(run, some) or tally_gaps(run, some)
        found += _exact(run, some, tallies, quantiles)
    return found


def tally_gaps(run: RunData, groups: Sequence[BoolArray]) -> list[Tally]:
    """Return the first count of the chunk gaps of each group."""
    tallies = [Tally() for _ in groups]
    for part in run.chunks.parts():
        gaps = chunk_gaps(part.chunks, run.columns.ok[part.place])
        rows = part.place[gaps.request]
        for tally, group in zip(tallies, groups, strict=True):
            tally.add(gaps.ns[group[rows]])
    return tallies


def _exact(
    run: RunData, groups: Sequence[BoolArray], tallies: Sequence[Tally], quantiles: Sequence[float]
) -> list[GapStatistics]:
    finders = [Finder(tally, quantiles) for tally in tallies]
    for part in run.chunks.parts():
        gaps = chunk_gaps(part.chunks, run.columns.ok[part.place])
        rows = part.place[gaps.request]
        for finder, group in zip(finders, groups, strict=True):
            finder.add(gaps.ns[group[rows]])
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
