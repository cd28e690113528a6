"""Know how pairs of runs give a difference with an interval, and what may be said of it.

Each pair replays one schedule on both sides, so what is left between its two numbers is the change and the flicker of
runs. The spread of that difference over pairs, and nothing within a run, tells how sure it is.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from servebench.metrics.columns import FloatArray
from servebench.metrics.distributions import student_above, student_quantile

LEAST_PAIRS = 3
"""One run each, or two, show no difference that can be told from the flicker between runs."""

Word = Literal["differs", "differs, by less than the margin", "same within the margin", "inconclusive"]


class Difference(NamedTuple):
    """Mean difference over pairs with its 95 % interval; None where there are too few pairs.

    Relative changes (0.1 = 10 % more), or plain differences for shares. `p_value` of no difference at all;
    `detectable`: the smallest change that so many pairs find in 80 % of cases.
    """

    pairs: int
    change: float
    lo: float | None
    hi: float | None
    p_value: float | None
    detectable: float | None


def relative(base: FloatArray, candidate: FloatArray) -> Difference:
    """Return the relative change of positive values, one per run and side in order of pairs; NaN pairs drop out."""
    known = (base > 0) & (candidate > 0)
    found = absolute(np.log(base[known]), np.log(candidate[known]))
    grown = [None if value is None else math.expm1(value) for value in (found.lo, found.hi, found.detectable)]
    return Difference(found.pairs, math.expm1(found.change), grown[0], grown[1], found.p_value, grown[2])


def absolute(base: FloatArray, candidate: FloatArray) -> Difference:
    """Return the difference of values, one per run of each side, in order of pairs; NaN pairs drop out."""
    d = candidate - base
    d = d[~np.isnan(d)]
    k = len(d)
    if k < LEAST_PAIRS:
        return Difference(k, float(d.mean()) if k else math.nan, None, None, None, None)
    mean, error = float(d.mean()), float(d.std(ddof=1)) / math.sqrt(k)
    t = student_quantile(0.975, k - 1)
    p_value = 2 * student_above(abs(mean) / error, k - 1) if error > 0 else float(mean == 0)
    detectable = (t + student_quantile(0.8, k - 1)) * error
    return Difference(k, mean, mean - t * error, mean + t * error, p_value, detectable)


def word(found: Difference, margin: float, *, certain: bool = True) -> Word:
    """Return what may be said; `certain` false = other differences tested beside it take the certainty away."""
    if found.lo is None or found.hi is None:
        return "inconclusive"
    apart = certain and (found.lo > 0 or found.hi < 0)
    inside = -margin < found.lo and found.hi < margin
    if apart:
        return "differs, by less than the margin" if inside else "differs"
    return "same within the margin" if inside else "inconclusive"


def pairs_wanted(found: Difference, margin: float) -> int | None:
    """Return how many pairs would narrow the interval to the margin, None where it is not known."""
    if found.lo is None or found.hi is None or found.pairs < LEAST_PAIRS:
        return None
    return max(found.pairs + 1, math.ceil(found.pairs * ((found.hi - found.lo) / 2 / margin) ** 2))


def holm(p_values: Sequence[float | None], level: float = 0.05) -> list[bool]:
    """Return which of several differences are certain together (Holm's step-down); None = never."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    certain = [False] * len(p_values)
    for rank, (p, index) in enumerate(order):
        if p > level / (len(order) - rank):
            break
        certain[index] = True
    return certain
