"""Know exact percentiles of any number of values in bounded memory, by counting twice.

The first count sorts values into cells by the top bits of their float64 pattern: 4,096 cells an octave, monotone. A
rank then names its cell, and the second count keeps the distinct values of the few cells that hold a wanted rank.
Counts add, so order and division into parts change nothing; the answer equals numpy's linear percentile to the last
bit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from servebench.metrics.columns import FloatArray, IntArray
from servebench.metrics.quantiles import between

_SHIFT = 40
_BASE = int(np.float64(1.0).view(np.int64) >> _SHIFT)
CELLS = 44 * 4096 + 1
"""The last cell takes all that is above 2**44 ns, 4.9 hours."""


def cell_of(values: FloatArray) -> IntArray:
    """Return the cell of each value; values are not negative, those below 1 share cell 0."""
    raw = (np.ascontiguousarray(values, np.float64).view(np.int64) >> _SHIFT) - _BASE
    found: IntArray = np.clip(raw, 0, CELLS - 1)
    return found


@dataclass(slots=True)
class Tally:
    """The first count of a set of whole, non-negative values; `total` is exact. min and max NaN of nothing."""

    cells: IntArray = field(default_factory=lambda: np.zeros(CELLS, np.int64))
    n: int = 0
    total: int = 0
    min: float = math.nan
    max: float = math.nan

    def add(self, values: FloatArray) -> None:
        """Count more values."""
        if not len(values):
            return
        self.cells += np.bincount(cell_of(values), minlength=CELLS)
        self._widen(len(values), int(np.sum(values.astype(np.int64))), float(values.min()), float(values.max()))

    def merge(self, other: "Tally") -> None:
        """Count what another tally has counted."""
        self.cells += other.cells
        if other.n:
            self._widen(other.n, other.total, other.min, other.max)

    def _widen(self, n: int, total: int, low: float, high: float) -> None:
        self.n, self.total = self.n + n, self.total + total
        self.min, self.max = float(np.fmin(self.min, low)), float(np.fmax(self.max, high))

    @property
    def mean(self) -> float:
        """Exact sum / n, NaN of nothing."""
        return self.total / self.n if self.n else math.nan

    def about(self, share: FloatArray) -> FloatArray:
        """Return quantiles within 0.013 % (below 2**44 ns) from this count alone; NaN of nothing."""
        if not self.n:
            return np.full(len(share), np.nan)
        place = np.searchsorted(np.cumsum(self.cells), np.floor(share * (self.n - 1)), side="right")
        low = ((place + _BASE).astype(np.int64) << _SHIFT).view(np.float64)
        return np.clip(np.where(place == 0, 0.0, low), self.min, self.max)


class Finder:
    """The second count: exact quantiles of the values that a tally has counted, which must be shown once more."""

    def __init__(self, tally: Tally, quantiles: Sequence[float]) -> None:
        self.quantiles = tuple(quantiles)
        self._n = tally.n
        h = (tally.n - 1) * np.asarray(self.quantiles, np.float64)
        self._low = np.floor(np.maximum(h, 0)).astype(np.int64)
        self._high = np.minimum(self._low + 1, max(tally.n - 1, 0))
        self._t = h - self._low
        self._ends = np.cumsum(tally.cells)
        cells = np.searchsorted(self._ends, np.concatenate((self._low, self._high)), side="right")
        self._wanted = np.zeros(CELLS, bool)
        if tally.n:
            self._wanted[cells] = True
        self._values = np.empty(0)
        self._counts = np.empty(0, np.int64)

    def add(self, values: FloatArray) -> None:
        """Show values of the tally once more."""
        kept = values[self._wanted[cell_of(values)]]
        if len(kept):
            self._merge(*np.unique(kept, return_counts=True))

    def merge(self, other: "Finder") -> None:
        """Take what another finder of the same tally and quantiles was shown."""
        self._merge(*other.kept)

    @property
    def kept(self) -> tuple[FloatArray, IntArray]:
        """The distinct values seen in the wanted cells, ascending, and how often."""
        return self._values, self._counts

    def _merge(self, values: FloatArray, counts: IntArray) -> None:
        both, place = np.unique(np.concatenate((self._values, values)), return_inverse=True)
        self._counts = np.bincount(place, np.concatenate((self._counts, counts)), len(both)).astype(np.int64)
        self._values = both

    def found(self) -> FloatArray:
        """Return the quantiles, NaN of nothing.

        Raises ValueError when other values were shown than were counted.
        """
        if not self._n:
            return np.full(len(self.quantiles), np.nan)
        cells = cell_of(self._values)
        if int(self._counts.sum()) != int(np.diff(self._ends, prepend=0)[self._wanted].sum()):
            msg = "the second count saw other values than the first"
            raise ValueError(msg)
        below = np.concatenate((np.zeros(1, np.int64), self._ends))[cells]
        start = np.cumsum(self._counts) - self._counts
        first = start[np.searchsorted(cells, cells)]
        past = below + start - first + self._counts
        a, b = (self._values[np.searchsorted(past, rank, side="right")] for rank in (self._low, self._high))
        return between(a, b, self._t)
