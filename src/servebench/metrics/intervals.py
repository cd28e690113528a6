"""Know how far a percentile or a share of one run may be off, and when one run is too short to say.

Requests on a busy server follow each other's fate, so n of them carry the information of n / VIF independent ones. VIF
is estimated from the run itself; the interval is that of order statistics at the effective sample size. docs/methods.md
says how often it covers the truth, and where it does not.
"""

import math
from dataclasses import dataclass

import numpy as np

from servebench.metrics.columns import FloatArray
from servebench.metrics.distributions import beta_quantile, normal_above, student_quantile
from servebench.metrics.quantiles import of_sorted

VIF_DF = 19
"""Degrees of freedom of the t that pays for the noise of an estimated VIF."""
LEVELS: tuple[float, ...] = (0.5, 0.75, 0.9)
"""Lower quantiles whose VIF a tail borrows: a flag with few exceedances cannot show its own correlation."""
_MOST_LAGS = 2_000
_PIECE = 8_192
_TOGETHER = 8
_LEAST = 100
_LEAST_BEYOND = 10
_TAIL = normal_above(student_quantile(0.975, VIF_DF))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % interval; lo and hi are None where n_eff, the effective number of requests, is below `needed`."""

    n_eff: float
    needed: int
    lo: float | None
    hi: float | None


def long_run_variance(x: FloatArray) -> float:
    """Return n times the variance of the mean of a stationary series, by Geyer's initial monotone sequence.

    At least the variance of x itself; 0 for a constant series.
    """
    n = len(x)
    lags = min(n - 1, _MOST_LAGS)
    if n < 2:
        return 0.0
    covariance = _autocovariance(x - x.mean(), lags)
    pairs = covariance[: (lags + 1) // 2 * 2].reshape(-1, 2).sum(axis=1)
    kept = np.minimum.accumulate(pairs)
    cut = np.flatnonzero(kept <= 0)
    kept = kept[: cut[0]] if len(cut) else kept
    return max(float(2 * kept.sum() - covariance[0]), float(covariance[0]))


def _autocovariance(centred: FloatArray, lags: int) -> FloatArray:
    """Return the covariance of a series of mean 0 with itself, 0 to `lags` places later.

    The products of each piece of the series with the piece and what follows it add up; pieces fit a processor's cache.
    """
    whole = 1 << math.ceil(math.log2(len(centred) + lags))
    size = min(whole, max(_PIECE, 1 << math.ceil(math.log2(2 * lags + 1))))
    step = size - lags
    pieces = -(-len(centred) // step)
    padded = np.concatenate((centred, np.zeros(pieces * step + lags - len(centred))))
    longer = np.lib.stride_tricks.sliding_window_view(padded, size)[::step]
    total = np.zeros(size // 2 + 1, np.complex128)
    for start in range(0, pieces, _TOGETHER):
        some = longer[start : start + _TOGETHER]
        total += (np.conj(np.fft.rfft(some[:, :step], size)) * np.fft.rfft(some)).sum(axis=0)
    covariance: FloatArray = np.fft.irfft(total, size)[: lags + 1] / len(centred)
    return covariance


def vif_of_flags(flags: FloatArray) -> float:
    """Return by how much correlation multiplies the variance of the mean of a 0/1 series in sending order; >= 1."""
    variance = float(np.var(flags))
    return max(1.0, long_run_variance(flags) / variance) if variance > 0 else 1.0


def levels_for(q: float) -> tuple[float, ...]:
    """Return the quantiles whose flags tell the VIF of quantile q."""
    return tuple(sorted({level for level in (*LEVELS, q) if level <= q}))


def vif_of_quantile(x: FloatArray, q: float, ordered: FloatArray | None = None) -> float:
    """Return the VIF of quantile q of values in sending order: the largest over the lower levels too.

    `ordered`: the same values sorted, where somebody has them already.
    """
    cuts = of_sorted(np.sort(x) if ordered is None else ordered, levels_for(q))
    return max(vif_of_flags((x <= cut).astype(np.float64)) for cut in cuts)


def needed_effective(q: float) -> int:
    """Return how many effective requests an interval of quantile q wants."""
    return max(_LEAST, math.ceil(round(_LEAST_BEYOND / (1 - q), 6)))


def rank_shares(n_eff: float, q: float) -> tuple[float, float] | None:
    """Return the shares of the sample between which quantile q lies with 95 %; None where it may lie beyond."""
    if q**n_eff > _TAIL:
        return None
    lo = beta_quantile(_TAIL, n_eff * q, n_eff * (1 - q) + 1)
    hi = beta_quantile(1 - _TAIL, n_eff * q + 1, n_eff * (1 - q))
    return lo, hi


def quantile_interval(x: FloatArray, q: float, ordered: FloatArray | None = None) -> Interval:
    """Return the interval of quantile q of values in sending order, without NaN.

    `ordered`: the same values sorted, where somebody has them already.
    """
    n, needed = len(x), needed_effective(q)
    if n < needed:
        return Interval(n_eff=float(n), needed=needed, lo=None, hi=None)
    ordered = np.sort(x) if ordered is None else ordered
    n_eff = n / vif_of_quantile(x, q, ordered)
    ranks = ranks_of(n, n_eff, q)
    if ranks is None:
        return Interval(n_eff=n_eff, needed=needed, lo=None, hi=None)
    lo, hi = ordered[list(ranks)]
    return Interval(n_eff=n_eff, needed=needed, lo=float(lo), hi=float(hi))


def ranks_of(n: int, n_eff: float, q: float) -> tuple[int, int] | None:
    """Return the order statistics (from 0) that bound quantile q; None where the rule refuses or one is outside."""
    shares = rank_shares(n_eff, q) if n_eff >= needed_effective(q) else None
    if shares is None:
        return None
    first, last = math.floor(shares[0] * n), math.ceil(shares[1] * n)
    if first < 1 or shares[1] >= 1 - 0.5 / n:
        return None
    return first - 1, min(last, n) - 1


def share_interval(flags: FloatArray) -> Interval:
    """Return the interval of the mean of a 0/1 series in sending order (Clopper-Pearson at the effective size).

    It has bounds from one value on; without any success lo is 0, and hi is what zero successes still allow.
    """
    n = len(flags)
    if not n:
        return Interval(n_eff=0.0, needed=1, lo=None, hi=None)
    vif = vif_of_flags(flags)
    n_eff, hits = n / vif, float(flags.sum()) / vif
    tail = _TAIL if vif > 1.0 else 0.025
    lo = beta_quantile(tail, hits, n_eff - hits + 1) if hits > 0 else 0.0
    hi = beta_quantile(1 - tail, hits + 1, n_eff - hits) if hits < n_eff else 1.0
    return Interval(n_eff=n_eff, needed=1, lo=lo, hi=hi)
