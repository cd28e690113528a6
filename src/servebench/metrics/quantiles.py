"""Know exact percentiles, and how many samples one needs before it may be shown."""

import math
from collections.abc import Sequence

import numpy as np

from servebench.metrics.columns import FloatArray

TAIL_SAMPLES = 10
"""Samples that must lie above a shown quantile: a lone maximum is no p99.9."""


def percentile(values: FloatArray, q: float) -> float:
    """Return the quantile q (0.99, not 99) by linear interpolation between order statistics; NaN of nothing.

    `values` holds no NaN. Raises ValueError for q outside [0, 1].
    """
    if not 0 <= q <= 1:
        msg = f"quantile {q} is outside [0, 1]; p99 is 0.99"
        raise ValueError(msg)
    return float(np.quantile(values, q)) if len(values) else math.nan


def of_sorted(ordered: FloatArray, quantiles: Sequence[float]) -> FloatArray:
    """Return the same as `percentile` for values that are sorted already, to the last bit; NaN of nothing."""
    if not len(ordered):
        return np.full(len(quantiles), np.nan)
    place = (len(ordered) - 1) * np.asarray(quantiles, np.float64)
    low = np.floor(place).astype(np.int64)
    t, a, b = place - low, ordered[low], ordered[np.minimum(low + 1, len(ordered) - 1)]
    return between(a, b, t)


def between(a: FloatArray, b: FloatArray, t: FloatArray) -> FloatArray:
    """Return a + (b - a) t from the nearer end, as numpy does, so that rounding is the same."""
    return np.where(t >= 0.5, b - (b - a) * (1 - t), a + (b - a) * t)


def needed(q: float) -> int:
    """Return how many samples a table wants before it shows the quantile: 10 / (1 - q) from p90 on, else 1."""
    if q < 0.9:
        return 1
    return math.ceil(round(TAIL_SAMPLES / (1 - q), 6)) if q < 1 else 1


def enough(n: int, q: float) -> bool:
    """Return whether n samples suffice to show the quantile."""
    return n >= needed(q)
