"""Know the plots of distributions by phase."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.numbers import count, significant
from servebench.analysis.plots.figure import Plot, PlotData, axis_unit, figure
from servebench.analysis.source import RunData
from servebench.analysis.windows import phase_windows
from servebench.metrics import METRIC_BY_NAME, Metric, enough, formulas
from servebench.metrics.columns import FloatArray
from servebench.metrics.exact import Tally

ECDF_POINTS = 400
ECDF_METRICS: tuple[str, ...] = ("ttft", "tpot", "e2e", "chunk_gap")

TABLE_QUANTILES: tuple[float, ...] = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
_SHARES = np.unique(
    np.concatenate((np.linspace(0, 1, ECDF_POINTS // 2), 1 - np.geomspace(1e-4, 0.5, ECDF_POINTS // 2)))
)
"""A grid of quantiles that is denser in the upper tail."""


class _Spread(NamedTuple):
    """One distribution, of a phase or a run: its values at _SHARES and at TABLE_QUANTILES, in display units."""

    name: str
    n: int
    curve: FloatArray
    table: FloatArray


def distributions(run: RunData) -> tuple[Plot, ...]:
    """Return the cumulative distribution of each metric of ECDF_METRICS that has samples."""
    found = ((metric, [s for s in _spreads(run, metric) if s.n]) for metric in ECDF_METRICS)
    return tuple(_plot(METRIC_BY_NAME[metric], spreads) for metric, spreads in found if spreads)


def pooled_distributions(runs: Sequence[tuple[str, RunData]]) -> tuple[Plot, ...]:
    """Return the same plots with one line a run: all its measured phases together."""
    found = ((metric, [s for name, run in runs if (s := _pooled(run, metric, name)).n]) for metric in ECDF_METRICS)
    return tuple(_plot(METRIC_BY_NAME[metric], spreads, "run") for metric, spreads in found if spreads)


def _pooled(run: RunData, metric: str, name: str) -> _Spread:
    scale = METRIC_BY_NAME[metric].scale
    if metric == "chunk_gap":
        tally = Tally()
        for phase in phase_windows(run, measured_only=True):
            tally.merge(run.gaps.get(phase, Tally()))
        return _Spread(name, tally.n, *(tally.about(np.asarray(at)) / scale for at in (_SHARES, TABLE_QUANTILES)))
    values = formulas.REQUEST_FORMULAS[metric](run.columns) / scale
    mine = values[run.measured & ~run.spoiled & ~np.isnan(values)]
    shares = (_SHARES, np.array(TABLE_QUANTILES))
    return _Spread(name, len(mine), *(np.quantile(mine, at) if len(mine) else np.empty(0) for at in shares))


def _spreads(run: RunData, metric: str) -> Iterator[_Spread]:
    """Yield the distribution in each measured phase; that of chunk gaps is within 0.013 %."""
    scale = METRIC_BY_NAME[metric].scale
    for phase in phase_windows(run, measured_only=True):
        if metric == "chunk_gap":
            tally = run.gaps.get(phase, Tally())
            yield _Spread(phase, tally.n, *(tally.about(np.asarray(at)) / scale for at in (_SHARES, TABLE_QUANTILES)))
            continue
        values = formulas.REQUEST_FORMULAS[metric](run.columns) / scale
        mine = values[np.equal(run.phase, phase) & ~run.spoiled & ~np.isnan(values)]
        if len(mine):
            yield _Spread(phase, len(mine), np.quantile(mine, _SHARES), np.quantile(mine, TABLE_QUANTILES))


def _cells(spread: _Spread, divisor: float) -> Iterator[str]:
    """Yield the quantiles for people; a dash where samples are too few, as in every table."""
    for q, value in zip(TABLE_QUANTILES, spread.table, strict=True):
        yield significant(float(value) / divisor if enough(spread.n, q) else None)


def _plot(metric: Metric, spreads: Sequence[_Spread], by: str = "phase") -> Plot:
    unit, divisor = axis_unit(metric.unit, max(float(spread.curve[-1]) for spread in spreads))
    drawn = figure(f"{metric.title} ({unit})", "share of samples at or below", 1.0)
    drawn.update_layout(hovermode="closest")
    drawn.update_yaxes(tickformat=".0%")
    for index, spread in enumerate(spreads):
        colour = palette.CYCLE[index % len(palette.CYCLE)]
        drawn.add_trace(
            go.Scatter(
                x=np.round(spread.curve / divisor, 4),
                y=np.round(_SHARES, 5),
                name=f"{escape(spread.name)} (n {count(spread.n)})",
                mode="lines",
                line={"color": colour, "width": 2, "dash": ("solid", "dash", "dot", "dashdot")[index % 4]},
            )
        )
    total = sum(spread.n for spread in spreads)
    return Plot(
        name=f"ecdf-{metric.name}",
        title=f"Distribution of {metric.title}",
        summary=f"Cumulative distribution of {metric.title} by {by}, {count(total)} samples.",
        figure=drawn,
        data=PlotData(
            (by, "n", *(f"{100 * q:g} %, {unit}" for q in TABLE_QUANTILES)),
            tuple((spread.name, count(spread.n), *_cells(spread, divisor)) for spread in spreads),
        ),
        log=True,
    )
