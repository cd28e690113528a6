"""Know the plots over the run: load, latency, tokens, requests in flight, and the client's own state."""

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.health import Health
from servebench.analysis.numbers import significant
from servebench.analysis.plots.figure import (
    MOST_POINTS,
    Plot,
    PlotData,
    Shading,
    axis_unit,
    columns,
    figure,
    largest,
    line,
    shade,
)
from servebench.analysis.source import RunData
from servebench.analysis.timeline import Timeline
from servebench.metrics import formulas
from servebench.metrics.columns import FloatArray

LATENCY_BINS = 60
"""Bins of latency, and of the tables behind the time plots."""


def time_plots(run: RunData, series: Timeline, coarse: Timeline, shading: Shading) -> tuple[Plot, ...]:
    """Return load, latency, tokens and requests in flight over the run; `coarse` has LATENCY_BINS bins at most."""
    return (
        _rates(series, coarse, shading),
        _latency(run, coarse, shading),
        _tokens(series, coarse, shading),
        _in_flight(series, coarse, shading),
    )


def _rates(series: Timeline, coarse: Timeline, shading: Shading) -> Plot:
    top = largest(series.planned_per_s, series.sent_per_s, series.answered_per_s, series.failed_per_s)
    drawn = figure("time since start (s)", "requests per second", top * 1.1)
    x = series.start_s
    drawn.add_trace(line(x, series.planned_per_s, "planned", palette.PLANNED, dash="dot"))
    drawn.add_trace(line(x, series.sent_per_s, "sent", palette.SENT, width=1.5))
    drawn.add_trace(line(x, series.answered_per_s, "answered ok", palette.ANSWERED, dash="dash"))
    drawn.add_trace(line(x, series.failed_per_s, "failed", palette.FAILED))
    summary = (
        f"Requests planned, sent, answered and failed per second in bins of {series.bin_s:.0f} s; "
        f"at most {significant(largest(series.sent_per_s))} sent, {significant(largest(series.failed_per_s))} failed."
    )
    data = columns(
        from_s=coarse.start_s,
        planned_per_s=coarse.planned_per_s,
        sent_per_s=coarse.sent_per_s,
        answered_per_s=coarse.answered_per_s,
        failed_per_s=coarse.failed_per_s,
    )
    drawn = shade(drawn, shading)
    return Plot(name="rates", title="Load", summary=summary, figure=drawn, data=data, wide=True, group="time")


def _latency(run: RunData, series: Timeline, shading: Shading) -> Plot:
    ttft, sent = formulas.ttft_ns(run.columns) / 1e6, run.columns.sent_ns / 1e9
    index = _thinned(ttft)
    unit, divisor = axis_unit("ms", largest(ttft))
    drawn = figure("time since start (s)", f"TTFT ({unit})", largest(ttft) / divisor * 1.1)
    drawn.update_layout(hovermode="closest")
    drawn.add_trace(
        go.Scatter(
            x=np.round(sent[index], 3),
            y=np.round(ttft[index] / divisor, 5),
            name="requests",
            mode="markers",
            marker={"color": palette.PLANNED, "size": 4, "opacity": 0.5},
        )
    )
    x = series.start_s + series.bin_s / 2
    for name, values in (("p50", series.ttft_p50_ms), ("p95", series.ttft_p95_ms)):
        colour = palette.QUANTILE_COLOURS[name]
        label = f"{name} of {series.bin_s:.0f} s"
        drawn.add_trace(line(x, np.round(values / divisor, 5), label, colour, dash=palette.DASHES[name]))
    worst = significant(largest(ttft) / divisor)
    summary = f"Time to first token of each request by when it was sent; largest {worst} {unit}."
    return Plot(
        name="latency",
        title="Time to first token",
        summary=summary,
        figure=shade(drawn, shading),
        data=columns(from_s=series.start_s, p50_ms=series.ttft_p50_ms, p95_ms=series.ttft_p95_ms),
        wide=True,
        group="time",
    )


def _thinned(values: FloatArray) -> Any:  # noqa: ANN401 - an index array
    """Return the rows to draw: all, or every k-th and the slowest, so that no outlier disappears."""
    known = np.flatnonzero(~np.isnan(values))
    if len(known) <= MOST_POINTS:
        return known
    slowest = known[np.argsort(values[known])[-MOST_POINTS // 5 :]]
    regular = known[:: int(np.ceil(len(known) / (MOST_POINTS * 4 // 5)))]
    return np.union1d(slowest, regular)


def _tokens(series: Timeline, coarse: Timeline, shading: Shading) -> Plot:
    top = largest(series.output_tokens_per_s)
    drawn = figure("time since start (s)", "output tokens per second", top * 1.1)
    drawn.add_trace(line(series.start_s, np.round(series.output_tokens_per_s, 2), "output tokens", palette.TOKENS))
    drawn.update_layout(showlegend=False)
    summary = f"Output tokens by when they arrived, at most {significant(top)} per second."
    data = columns(from_s=coarse.start_s, output_tokens_per_s=coarse.output_tokens_per_s)
    return Plot(name="tokens", title="Output", summary=summary, figure=shade(drawn, shading), data=data, group="time")


def _in_flight(series: Timeline, coarse: Timeline, shading: Shading) -> Plot:
    top = largest(series.in_flight)
    drawn = figure("time since start (s)", "requests in flight", top * 1.1)
    drawn.add_trace(line(series.start_s, np.round(series.in_flight, 3), "in flight", palette.IN_FLIGHT))
    drawn.update_layout(showlegend=False)
    summary = f"Mean number of requests that are open, at most {significant(top)} requests."
    drawn, data = shade(drawn, shading), columns(from_s=coarse.start_s, in_flight=coarse.in_flight)
    return Plot(name="in-flight", title="In flight", summary=summary, figure=drawn, data=data, group="time")


def client_plots(health: Health, shading: Shading) -> tuple[Plot, ...]:
    """Return hub lag and CPU of each worker; none without health rows."""
    if not len(health.t_ns):
        return ()
    lag = figure("time since start (s)", "hub lag p99 (ms)", largest(health.hub_lag_p99_ns / 1e6) * 1.1)
    cpu = figure("time since start (s)", "CPU (% of a core)", max(100.0, largest(100 * health.cpu_share)))
    for index, worker in enumerate(dict.fromkeys(health.worker)):
        mine = np.flatnonzero(health.worker == worker)
        mine = mine[:: max(1, len(mine) // MOST_POINTS)]
        x, colour = health.t_ns[mine] / 1e9, palette.CYCLE[index % len(palette.CYCLE)]
        dash = ("solid", "dash", "dot")[index // len(palette.CYCLE) % 3]
        lag.add_trace(line(x, np.round(health.hub_lag_p99_ns[mine] / 1e6, 3), escape(str(worker)), colour, dash=dash))
        cpu.add_trace(line(x, np.round(100 * health.cpu_share[mine], 1), escape(str(worker)), colour, dash=dash))
    words = f"at most {significant(largest(health.hub_lag_p99_ns / 1e6))} ms"
    return (
        Plot(
            name="hub-lag",
            title="Client: hub lag",
            summary=f"Lag of each worker's event loop, {words}.",
            figure=shade(lag, shading),
            data=_by_worker(health, health.hub_lag_p99_ns / 1e6, "ms"),
            group="time",
        ),
        Plot(
            name="cpu",
            title="Client: CPU",
            summary=f"CPU of each worker, at most {significant(100 * largest(health.cpu_share))} % of a core.",
            figure=shade(cpu, shading),
            data=_by_worker(health, 100 * health.cpu_share, "%"),
            group="time",
        ),
    )


def _by_worker(health: Health, values: FloatArray, unit: str) -> PlotData:
    """Return how a value of each worker is distributed over its seconds."""
    rows = []
    for worker in dict.fromkeys(health.worker):
        mine = values[np.equal(health.worker, worker) & ~np.isnan(values)]
        spread = np.quantile(mine, (0.5, 0.95, 1.0)) if len(mine) else np.full(3, np.nan)
        rows.append((str(worker), f"{len(mine):,}", *map(significant, spread)))
    return PlotData(("worker", "seconds", *(f"{name}, {unit}" for name in ("p50", "p95", "max"))), tuple(rows))
