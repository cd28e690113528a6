"""Know the live sketch: a sparse log-bucket histogram, mergeable by adding counts. For watching, never of record."""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

RELATIVE_ERROR = 0.005
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG = 1 / math.log(_GAMMA)
_UNIT_NS = 1_000.0
"""Values below 1 us share the lowest bucket."""


class Sketch:
    """Counts of positive ns values in buckets 1 % wide; quantiles are off by at most 0.5 %.

    Values are counted when somebody looks: all of a second together cost a fraction of what one by one does.
    """

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts: Counter[int] = Counter(counts or {})
        self._uncounted: list[NDArray[np.number]] = []
        self._single: list[float] = []

    @property
    def counts(self) -> Counter[int]:
        """Number of values by bucket."""
        if self._single:
            values_ns, self._single = np.array(self._single), []
            self._uncounted.append(values_ns)
        if self._uncounted:
            ns, self._uncounted = np.concatenate(self._uncounted), []
            counts = np.bincount(np.ceil(np.log(np.maximum(ns, _UNIT_NS) / _UNIT_NS) * _PER_LOG).astype(np.int64))
            for bucket in np.flatnonzero(counts).tolist():
                self._counts[bucket] += int(counts[bucket])
        return self._counts

    def add(self, ns: float) -> None:
        """Count one value."""
        self._single.append(ns)

    def add_all(self, ns: NDArray[np.number]) -> None:
        """Count an array of values, which must not change afterwards."""
        if len(ns):
            self._uncounted.append(ns)

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add another sketch's counts."""
        self._counts.update(counts)

    def take(self) -> dict[int, int]:
        """Return the counts and start again from nothing."""
        taken, self._counts = dict(self.counts), Counter()
        return taken

    def __len__(self) -> int:
        return self.counts.total()

    def quantiles_ns(self, quantiles: Sequence[float]) -> list[float | None]:
        """Return the values at ranks q (n - 1), None when empty; one pass for all of them."""
        buckets, counts = self.columns()
        if not len(buckets):
            return [None] * len(quantiles)
        seen = np.cumsum(counts)
        places = np.searchsorted(seen, np.array(quantiles) * (seen[-1] - 1), side="right")
        return [_UNIT_NS * 2 * _GAMMA ** int(buckets[place]) / (1 + _GAMMA) for place in places]

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return buckets in rising order and how many values each holds."""
        counts = self.counts
        buckets = np.fromiter(counts, np.int64, len(counts))
        held = np.fromiter(counts.values(), np.int64, len(counts))
        order = np.argsort(buckets)
        return buckets[order], held[order]

    def quantile_ns(self, q: float) -> float | None:
        """Return the value at rank q (n - 1), None when empty."""
        return self.quantiles_ns((q,))[0]


class Rolling:
    """The sketch of the last `length` steps; a step costs what it adds and drops, however long the window is."""

    def __init__(self, length: int) -> None:
        self._steps: deque[Mapping[int, int]] = deque()
        self._length = length
        self._sum: Counter[int] = Counter()

    def push(self, counts: Mapping[int, int]) -> None:
        """Add the counts of the newest step, and forget those of the one that falls out."""
        self._steps.append(counts)
        self._sum.update(counts)
        if len(self._steps) > self._length:
            for bucket, count in self._steps.popleft().items():
                left = self._sum[bucket] - count
                if left:
                    self._sum[bucket] = left
                else:
                    del self._sum[bucket]

    def sketch(self) -> Sketch:
        """Return the window as a sketch of its own."""
        return Sketch(self._sum)


def middles_ns(buckets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the values that stand for buckets, at most 0.5 % from any value in them."""
    middles: NDArray[np.float64] = _UNIT_NS * 2 / (1 + _GAMMA) * np.power(_GAMMA, buckets.astype(np.float64))
    return middles
