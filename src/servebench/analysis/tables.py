"""Know the percentile table: one row for each metric and group of requests, null where samples are too few."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servebench.analysis.columns import words
from servebench.analysis.gaps import GapStatistics, gap_statistics
from servebench.analysis.numbers import plain
from servebench.analysis.rates import rate_over
from servebench.analysis.source import RunData
from servebench.analysis.token_counts import nothing_counted
from servebench.analysis.windows import phase_windows
from servebench.core.errors import InputError
from servebench.metrics import METRICS, Metric, Window, enough, formulas, percentile
from servebench.metrics.columns import BoolArray, FloatArray, IntArray, take
from servebench.metrics.intervals import quantile_interval
from servebench.shards.schema import REQUESTS_SCHEMA

QUANTILES: tuple[tuple[str, float], ...] = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))
_OF_OUTPUT_TOKENS = frozenset({"output_token_throughput", "total_token_throughput"})
POOLED = "all"
"""Name of the group that holds every measured row."""

GROUPABLE: tuple[str, ...] = tuple(
    field.name for field in REQUESTS_SCHEMA if not pa.types.is_list(field.type) and not field.name.endswith("_ns")
)


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


INTERVALS: frozenset[str] = frozenset({"ttft", "ttft_intended", "ttfo", "tpot", "e2e", "longest_gap"})
"""Metrics whose p95 is bounded; each bound costs four Fourier transforms of the samples."""
STATISTICS: tuple[str, ...] = ("p50", "p90", "p95", "p99", "p999", "mean", "min", "max", "p95_lo", "p95_hi", "n_eff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows in order of metric, then group; `by` names the columns that make the groups."""

    by: tuple[str, ...]
    rows: tuple[TableRow, ...]

    def records(self) -> list[dict[str, str | int | float | None]]:
        """Return plain objects for JSON and frames: metric, unit, phase (`all` if not grouped by), …, n, statistics."""
        return [self._record(row) for row in self.rows]

    def _record(self, row: TableRow) -> dict[str, str | int | float | None]:
        group = {"phase": POOLED} | dict(zip(self.by, row.group, strict=True))
        numbers = {name: plain(getattr(row, name)) for name in STATISTICS}
        return {"metric": row.metric, "unit": row.unit, **group, "n": row.n, **numbers}

    def find(self, metric: str, *group: str) -> TableRow | None:
        """Return the row of a metric and group, None where the table has none."""
        return next((row for row in self.rows if row.metric == metric and row.group == group), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Rows of one group, the rows whose work counts for its rates, and over which windows.

    `counted` = all its rows, `rows` = those whose latency counts, without what the client spoiled.
    """

    key: tuple[str, ...]
    counted: BoolArray
    rows: BoolArray
    working: BoolArray
    windows: tuple[Window, ...]


def percentile_table(
    run: RunData, by: Sequence[str] = ("phase",), *, all_quantiles: bool = False, warmup: bool = False
) -> Table:
    """Return the table of measured rows, grouped by columns of `requests`; by phase it ends in the pooled `all`.

    `all_quantiles` also shows those with too few samples; `warmup` adds phases that are not measured (never to `all`).
    Raises InputError for a column that does not exist or cannot be grouped by.
    """
    _check(by)
    groups = list(_groups(run, tuple(by), warmup=warmup))
    gaps = gap_statistics(run, [group.rows for group in groups], [q for _, q in QUANTILES])
    order = np.argsort(run.columns.sent_ns, kind="stable")
    rows = [
        row for metric in METRICS for row in _metric_rows(metric, run, _Material(gaps, order), groups, all_quantiles)
    ]
    return Table(by=tuple(by), rows=tuple(rows))


class _Material(NamedTuple):
    """What the rows are made from; `order` sorts the rows of the run by sending time."""

    gaps: Sequence[GapStatistics]
    order: IntArray


def _check(by: Sequence[str]) -> None:
    for name in by:
        if name not in GROUPABLE:
            msg = f'cannot group by "{name}"; columns to group by: {", ".join(GROUPABLE)}'
            raise InputError(msg)


def _metric_rows(
    metric: Metric, run: RunData, material: _Material, groups: Sequence[_Group], all_quantiles: bool
) -> Iterator[TableRow]:
    if metric.kind == "request":
        yield from _request_rows(metric, run, material.order, groups, all_quantiles)
        return
    for group, gaps in zip(groups, material.gaps, strict=True):
        if metric.kind == "rate":
            yield _rate_row(metric, run, group)
        elif metric.kind == "share":
            yield _share_row(metric, run, group)
        else:
            yield _gap_row(metric, group.key, gaps, all_quantiles)


def _request_rows(
    metric: Metric, run: RunData, order: IntArray, groups: Sequence[_Group], all_quantiles: bool
) -> Iterator[TableRow]:
    """Yield the rows of a request metric, whose values are held for as long as that takes only."""
    values = formulas.REQUEST_FORMULAS[metric.name](run.columns)[order]
    known = ~np.isnan(values)
    for group in groups:
        mine = values[group.rows[order] & known]
        row = statistics_row(metric, group.key, mine, all_quantiles)
        yield bounded(row, metric, mine) if metric.name in INTERVALS and row.n > 0 else row


def in_order(run: RunData, metric: Metric, rows: BoolArray, order: IntArray) -> FloatArray:
    """Return the values of a request metric of the rows of a mask in sending order, base units, without NaN."""
    values = formulas.REQUEST_FORMULAS[metric.name](run.columns)[order]
    return values[rows[order] & ~np.isnan(values)]


def bounded(row: TableRow, metric: Metric, values: FloatArray) -> TableRow:
    """Return the row with the interval of its p95; `values` are those of the row in sending order, base units."""
    found = quantile_interval(values, 0.95)
    lo, hi = ((None if bound is None else bound / metric.scale) for bound in (found.lo, found.hi))
    return replace(row, p95_lo=lo, p95_hi=hi, n_eff=found.n_eff)


def statistics_row(metric: Metric, key: tuple[str, ...], values: FloatArray, all_quantiles: bool = False) -> TableRow:
    """Return the row of one set of values in base units, without NaN."""
    if not len(values):
        return TableRow(metric=metric.name, unit=metric.unit, group=key, n=0)
    shown = {
        name: percentile(values, q) / metric.scale for name, q in QUANTILES if all_quantiles or enough(len(values), q)
    }
    return TableRow(
        metric=metric.name,
        unit=metric.unit,
        group=key,
        n=len(values),
        mean=float(np.mean(values)) / metric.scale,
        min=float(np.min(values)) / metric.scale,
        max=float(np.max(values)) / metric.scale,
        **shown,
    )


def _gap_row(metric: Metric, key: tuple[str, ...], gaps: GapStatistics, all_quantiles: bool) -> TableRow:
    if not gaps.n:
        return TableRow(metric=metric.name, unit=metric.unit, group=key, n=0)
    shown = {
        name: float(value) / metric.scale
        for (name, q), value in zip(QUANTILES, gaps.quantiles, strict=True)
        if all_quantiles or enough(gaps.n, q)
    }
    return TableRow(
        metric=metric.name,
        unit=metric.unit,
        group=key,
        n=gaps.n,
        mean=gaps.mean / metric.scale,
        min=gaps.min / metric.scale,
        max=gaps.max / metric.scale,
        p95_lo=None if gaps.p95_lo is None else gaps.p95_lo / metric.scale,
        p95_hi=None if gaps.p95_hi is None else gaps.p95_hi / metric.scale,
        n_eff=gaps.n_eff,
        **shown,
    )


def _rate_row(metric: Metric, run: RunData, group: _Group) -> TableRow:
    working = None if group.working.all() else group.working
    undefined = metric.name in _OF_OUTPUT_TOKENS and nothing_counted(run)
    value = None if undefined else plain(rate_over(metric.name, run, group.windows, working))
    n = int(np.sum(run.columns.ok & group.rows))
    return TableRow(metric=metric.name, unit=metric.unit, group=group.key, n=n, mean=value)


def _share_row(metric: Metric, run: RunData, group: _Group) -> TableRow:
    share = formulas.SHARES[metric.name](take(run.columns, group.counted))
    value = share.value / metric.scale if share.n else None
    return TableRow(metric=metric.name, unit=metric.unit, group=group.key, n=share.n, mean=value)


def _groups(run: RunData, by: tuple[str, ...], *, warmup: bool) -> Iterator[_Group]:
    """Yield the groups that have rows; a group by phase has that phase's window, any other all measured windows."""
    windows = phase_windows(run, measured_only=not warmup)
    measured = phase_windows(run, measured_only=True)
    labels = {name: _labels(run, name) for name in by}
    values = [_values(name, labels[name], tuple(windows)) for name in by]
    eligible = run.measured | (np.isin(run.phase.astype(str), list(windows)) if warmup else False)
    for key in product(*values):
        apart = {name: np.asarray(labels[name] == value, dtype=bool) for name, value in zip(by, key, strict=True)}
        rows = np.logical_and.reduce([eligible, *apart.values()])
        phase = dict(zip(by, key, strict=True)).get("phase")
        others = [mask for name, mask in apart.items() if name != "phase"]
        working = np.logical_and.reduce([np.ones(len(run.seq), bool), *others])
        chosen = tuple(measured.values()) if phase is None else (windows[phase],)
        if rows.any() or by == ("phase",):
            yield _Group(key=key, counted=rows, rows=rows & ~run.spoiled, working=working, windows=chosen)
    if by == ("phase",):
        everyone = np.ones(len(run.seq), bool)
        rows, every = run.measured, tuple(measured.values())
        yield _Group(key=(POOLED,), counted=rows, rows=rows & ~run.spoiled, working=everyone, windows=every)


def _labels(run: RunData, name: str) -> npt.NDArray[np.object_]:
    found = words(run.table, name)
    return np.where([label is None for label in found], "null", found) if len(found) else found


def _values(name: str, labels: npt.NDArray[np.object_], phases: tuple[str, ...]) -> list[str]:
    """Return the values of a grouping column: phases in the order they ran, numbers by size, words by alphabet."""
    if name == "phase":
        return list(phases)
    return sorted({str(label) for label in labels}, key=lambda text: (not text.isdigit(), text.zfill(20)))
