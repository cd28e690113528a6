"""Know trends of a series of logarithms: slope, steps and rhythm, each wary of neighbours that resemble each other."""

import math

import numpy as np

from servebench.metrics.columns import FloatArray
from servebench.metrics.distributions import student_quantile

STEP_LIMIT = 3.6
STEP_EDGE = 10
LEAST_EFFECTIVE = 10


def autocorrelation(residuals: FloatArray) -> float:
    """Return the lag-1 autocorrelation, corrected for its bias in short series, within 0..0.98."""
    n, square = len(residuals), float(residuals @ residuals)
    raw = float(residuals[1:] @ residuals[:-1]) / square if square > 0 else 0.0
    return float(np.clip(raw + (1 + 4 * raw) / n, 0.0, 0.98))


def slope(y: FloatArray) -> tuple[float, float | None, float | None]:
    """Return the relative change over a series of logarithms with its 95 % interval, None where it is too short."""
    change, lo, hi = rise(y)
    return math.expm1(change), None if lo is None else math.expm1(lo), None if hi is None else math.expm1(hi)


def rise(y: FloatArray) -> tuple[float, float | None, float | None]:
    """Return the change over a series along its line with its 95 % interval, None where it is too short."""
    n = len(y)
    x = np.arange(n) - (n - 1) / 2
    centred = y - y.mean()
    b = float(centred @ x) / float(x @ x)
    residuals = centred - b * x
    a = autocorrelation(residuals)
    vif = (1 + a) / (1 - a)
    change = b * (n - 1)
    if n / vif < LEAST_EFFECTIVE:
        return change, None, None
    error = math.sqrt(float(residuals @ residuals) / (n - 2) * vif / float(x @ x))
    half = student_quantile(0.975, max(n / vif - 2, 2)) * error * (n - 1)
    return change, change - half, change + half


def split(y: FloatArray) -> tuple[int, float]:
    """Return the best single step of a series: its place and its height in standard errors."""
    n, k, sums = len(y), np.arange(STEP_EDGE, len(y) - STEP_EDGE), np.cumsum(y)
    height = np.abs(sums[k - 1] / k - (sums[-1] - sums[k - 1]) / (n - k)) * np.sqrt(k * (n - k) / n)
    place = int(k[height.argmax()])
    residuals = np.concatenate([piece - piece.mean() for piece in np.split(y, [place])])
    a = autocorrelation(residuals)
    spread = float(np.sqrt(residuals.var() * (1 + a) / (1 - a)))
    return place, float(height.max()) / spread if spread > 0 else 0.0


def steps(y: FloatArray, at: int = 0) -> list[int]:
    """Return the places of steps: the series is split while the best step passes the limit."""
    if len(y) < 4 * STEP_EDGE:
        return []
    place, height = split(y)
    if height < STEP_LIMIT:
        return []
    return [*steps(y[:place], at), at + place, *steps(y[place:], at + place)]


def rhythm(times: FloatArray, span_s: float, least_s: float = 5.0) -> tuple[float, float]:
    """Return the period of event times and the chance of such a period without a rhythm (Rayleigh scan).

    NaN and 1.0 below 8 events. Of harmonics the longest period counts.
    """
    if len(times) < 8:
        return float("nan"), 1.0
    frequencies = np.arange(6 / span_s, 1 / least_s, 0.25 / span_s)
    power = np.zeros(len(frequencies))
    for start in range(0, len(frequencies), 1_000):
        some = frequencies[start : start + 1_000, None]
        power[start : start + 1_000] = np.abs(np.exp(2j * np.pi * some * times).sum(axis=1)) ** 2 / len(times)
    best = float(power.max())
    return float(1 / frequencies[np.flatnonzero(power > 0.7 * best)[0]]), min(1.0, len(power) * float(np.exp(-best)))
