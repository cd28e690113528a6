"""Know one line of the percentile table: the statistics of one metric over one set of requests, in display units."""

from dataclasses import dataclass

import numpy as np

from servebench.analysis.gaps import GapStatistics
from servebench.metrics import Metric, enough
from servebench.metrics.columns import FloatArray
from servebench.metrics.intervals import quantile_interval
from servebench.metrics.quantiles import of_sorted

QUANTILES: tuple[tuple[str, float], ...] = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))
INTERVALS: frozenset[str] = frozenset({"ttft", "ttft_intended", "ttfo", "tpot", "e2e", "longest_gap"})
"""Metrics whose p95 is bounded; each bound costs four Fourier transforms of the samples."""
STATISTICS: tuple[str, ...] = ("p50", "p90", "p95", "p99", "p999", "mean", "min", "max", "p95_lo", "p95_hi", "n_eff")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One metric of one group, in display units; None = undefined or too few samples.

    `group` holds the value of each column of the table's `by`. A rate or share has its value in `mean` only. `p95_lo`
    and `p95_hi` bound p95 with 95 %, None where `n_eff`, the number of independent requests that n are worth, is too
    small for it; all three are None for request metrics that are not in INTERVALS.
    """

    metric: str
    unit: str
    group: tuple[str, ...]
    n: int
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p999: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    p95_lo: float | None = None
    p95_hi: float | None = None
    n_eff: float | None = None


def statistics_row(
    metric: Metric,
    key: tuple[str, ...],
    values: FloatArray,
    all_quantiles: bool = False,
    *,
    bound: bool = False,
) -> TableRow:
    """Return the row of one set of values in base units, without NaN.

    `bound` adds the interval of p95; the values are then in order of sending.
    """
    if not len(values):
        return TableRow(metric=metric.name, unit=metric.unit, group=key, n=0)
    ordered = np.sort(values)
    found = quantile_interval(values, 0.95, ordered) if bound else None
    return TableRow(
        metric=metric.name,
        unit=metric.unit,
        group=key,
        n=len(values),
        mean=float(np.mean(values)) / metric.scale,
        min=float(ordered[0]) / metric.scale,
        max=float(ordered[-1]) / metric.scale,
        p95_lo=_scaled(metric, found.lo) if found else None,
        p95_hi=_scaled(metric, found.hi) if found else None,
        n_eff=found.n_eff if found else None,
        **_shown(metric, len(values), of_sorted(ordered, [q for _, q in QUANTILES]), all_quantiles),
    )


def gap_row(metric: Metric, key: tuple[str, ...], gaps: GapStatistics, all_quantiles: bool) -> TableRow:
    """Return the row of gaps that were counted part by part, for QUANTILES."""
    if not gaps.n:
        return TableRow(metric=metric.name, unit=metric.unit, group=key, n=0)
    return TableRow(
        metric=metric.name,
        unit=metric.unit,
        group=key,
        n=gaps.n,
        mean=gaps.mean / metric.scale,
        min=gaps.min / metric.scale,
        max=gaps.max / metric.scale,
        p95_lo=_scaled(metric, gaps.p95_lo),
        p95_hi=_scaled(metric, gaps.p95_hi),
        n_eff=gaps.n_eff,
        **_shown(metric, gaps.n, gaps.quantiles, all_quantiles),
    )


def _scaled(metric: Metric, value: float | None) -> float | None:
    return None if value is None else value / metric.scale


def _shown(metric: Metric, n: int, values: FloatArray, all_quantiles: bool) -> dict[str, float]:
    """Return the quantiles that may be shown of n samples."""
    named = zip(QUANTILES, values.tolist(), strict=True)
    return {name: value / metric.scale for (name, q), value in named if all_quantiles or enough(n, q)}
