"""Know the percentile table: one row for each metric and group of requests, null where samples are too few."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servebench.analysis.columns import floats, words
from servebench.analysis.gaps import first_alike, gap_statistics
from servebench.analysis.numbers import plain
from servebench.analysis.rates import rate_over
from servebench.analysis.source import RunData
from servebench.analysis.steps import step_metric
from servebench.analysis.table_rows import INTERVALS, QUANTILES, STATISTICS, TableRow, gap_row, statistics_row
from servebench.analysis.token_counts import no_prompt_counted, nothing_counted
from servebench.analysis.windows import phase_windows
from servebench.core.errors import InputError
from servebench.metrics import METRICS, Metric, Window, formulas
from servebench.metrics.columns import BoolArray, FloatArray, IntArray
from servebench.shards.schema import REQUESTS_SCHEMA

_OF_OUTPUT_TOKENS = frozenset({"output_token_throughput", "total_token_throughput"})
_OF_INPUT_TOKENS = frozenset({"input_token_throughput", "total_token_throughput"})
POOLED = "all"
"""Name of the group that holds every measured row."""

TURNS = "turns"
"""Groups the turns of conversations: first ones, which begin a prompt, and later ones, behind a history."""
GROUPABLE: tuple[str, ...] = (
    *(f.name for f in REQUESTS_SCHEMA if not pa.types.is_list(f.type) and not f.name.endswith("_ns")),
    TURNS,
)


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
    masks = [group.rows for group in groups]
    material = _Material(np.argsort(run.columns.sent_ns, kind="stable"), first_alike(masks), all_quantiles)
    chunk, others = ([metric for metric in METRICS if (metric.kind == "chunk") == wanted] for wanted in (True, False))
    # Sorting and transforms run outside the GIL, and those who help to see the gaps again are other processes.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        seen = threads.submit(gap_statistics, run, masks, [q for _, q in QUANTILES])
        made = threads.map(lambda metric: _metric_rows(metric, run, groups, material), others)
        found = {metric.name: rows for metric, rows in zip(others, made, strict=True)}
        for metric in chunk:
            found[metric.name] = [
                gap_row(metric, group.key, gaps, all_quantiles)
                for group, gaps in zip(groups, seen.result(), strict=True)
            ]
        steps = [
            row
            for name, values in run.steps.items()
            for row in _request_rows(step_metric(name), values, groups, material)
        ]
    return Table(by=tuple(by), rows=(*(row for metric in METRICS for row in found[metric.name]), *steps))


class _Material(NamedTuple):
    """What rows are made with: the order of sending, for each group the first one of the same rows, what is shown."""

    order: IntArray
    twins: Sequence[int]
    all_quantiles: bool


def _check(by: Sequence[str]) -> None:
    for name in by:
        if name not in GROUPABLE:
            msg = f'cannot group by "{name}"; columns to group by: {", ".join(GROUPABLE)}'
            raise InputError(msg)


def _metric_rows(metric: Metric, run: RunData, groups: Sequence[_Group], material: _Material) -> list[TableRow]:
    if metric.kind == "rate":
        return [_rate_row(metric, run, group) for group in groups]
    if metric.kind == "share":
        return [_share_row(metric, run, group) for group in groups]
    return _request_rows(metric, formulas.REQUEST_FORMULAS[metric.name](run.columns), groups, material)


def _request_rows(metric: Metric, of_rows: FloatArray, groups: Sequence[_Group], material: _Material) -> list[TableRow]:
    """Return the rows of a request metric, whose values are held for as long as that takes only."""
    order, bound = material.order, metric.name in INTERVALS
    values = of_rows[order]
    known = ~np.isnan(values)
    rows: list[TableRow] = []
    for place, (group, twin) in enumerate(zip(groups, material.twins, strict=True)):
        if twin < place:
            rows.append(replace(rows[twin], group=group.key))
        else:
            mine = values[group.rows[order] & known]
            rows.append(statistics_row(metric, group.key, mine, material.all_quantiles, bound=bound))
    return rows


def in_order(run: RunData, metric: Metric, rows: BoolArray, order: IntArray) -> FloatArray:
    """Return the values of a request metric of the rows of a mask in sending order, base units, without NaN."""
    values = formulas.REQUEST_FORMULAS[metric.name](run.columns)[order]
    return values[rows[order] & ~np.isnan(values)]


def _rate_row(metric: Metric, run: RunData, group: _Group) -> TableRow:
    working = None if group.working.all() else group.working
    undefined = (metric.name in _OF_OUTPUT_TOKENS and nothing_counted(run)) or (
        metric.name in _OF_INPUT_TOKENS and no_prompt_counted(run)
    )
    value = None if undefined else plain(rate_over(metric.name, run, group.windows, working))
    n = int(np.sum(run.columns.ok & group.rows))
    return TableRow(metric=metric.name, unit=metric.unit, group=group.key, n=n, mean=value)


def _share_row(metric: Metric, run: RunData, group: _Group) -> TableRow:
    share = formulas.SHARES[metric.name](run.columns, group.counted)
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


def has_later_turns(run: RunData) -> bool:
    """Return whether any request is a later turn of a conversation."""
    return bool((floats(run.table, "turn") > 0).any())


def _labels(run: RunData, name: str) -> npt.NDArray[np.object_]:
    if name == TURNS:
        return np.where(floats(run.table, "turn") > 0, "later", "first").astype(object)
    found = run.phase if name == "phase" else words(run.stored(name), name)
    return np.where([label is None for label in found], "null", found) if len(found) else found


def _values(name: str, labels: npt.NDArray[np.object_], phases: tuple[str, ...]) -> list[str]:
    """Return the values of a grouping column: phases in the order they ran, numbers by size, words by alphabet."""
    if name == "phase":
        return list(phases)
    return sorted({str(label) for label in labels}, key=lambda text: (not text.isdigit(), text.zfill(20)))
