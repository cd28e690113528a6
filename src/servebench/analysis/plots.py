"""Know how a run is drawn: plotly figures of load, latency and distributions, each with words that say what it shows.

Colours of text, axes and background are left to the page, which knows whether it is light or dark. Text from a run is
escaped, because plotly reads some tags in labels. A trace has at most 5,000 points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.curve import CURVE_QUANTILES, CurvePoint
from servebench.analysis.health import Health
from servebench.analysis.numbers import significant
from servebench.analysis.objectives import Result
from servebench.analysis.samples import of_rows, sample_all
from servebench.analysis.source import RunData
from servebench.analysis.timeline import Timeline, timeline
from servebench.analysis.windows import phase_windows
from servebench.metrics import METRIC_BY_NAME, Window, formulas
from servebench.metrics.columns import FloatArray

MOST_POINTS = 2_500
ECDF_POINTS = 400
LATENCY_BINS = 60
ECDF_METRICS: tuple[str, ...] = ("ttft", "tpot", "e2e", "chunk_gap")
_HEAD_ROOM = 1.05
PHASE_LABEL = "phase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One figure of the report. `summary` says in words what a reader of the picture sees; `wide` spans the page.

    `group`: plots of one group share their x range when zoomed. `log` offers a switch to a logarithmic x axis.
    """

    name: str
    title: str
    summary: str
    figure: go.Figure
    wide: bool = False
    group: str | None = None
    log: bool = False


class Shading(NamedTuple):
    """Phases that ran, and where time axes end (s)."""

    windows: Mapping[str, Window]
    end_s: float


def run_plots(
    run: RunData, health: Health, points: Sequence[CurvePoint], results: Sequence[Result]
) -> tuple[Plot, ...]:
    """Return the figures of a run in order of the report."""
    series, coarse = timeline(run), timeline(run, LATENCY_BINS)
    end_s = float(series.start_s[-1] + series.bin_s)
    shading = Shading(phase_windows(run), end_s)
    return (
        *_load_plots(points, results),
        _rates(series, shading),
        _latency(run, coarse, shading),
        _tokens(series, shading),
        _in_flight(series, shading),
        *_distributions(run),
        *_client(health, shading),
    )


def _figure(x_title: str, y_title: str, top: float | None = None) -> go.Figure:
    """Return an empty figure whose axes start at 0 and leave head room above `top`."""
    axis: dict[str, Any] = {"rangemode": "tozero", "zeroline": False, "tickformat": ","}
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=320,
        margin={"l": 64, "r": 16, "t": 36, "b": 48},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        hovermode="x unified",
        xaxis=axis | {"title": {"text": x_title}},
        yaxis=axis | {"title": {"text": y_title}},
    )
    if top is not None and np.isfinite(top) and top > 0:
        figure.update_yaxes(range=[0, top * _HEAD_ROOM])
    return figure


def _line(x: Any, y: Any, name: str, colour: str, **line: Any) -> go.Scatter:  # noqa: ANN401 - plotly's own leniency
    return go.Scatter(x=x, y=y, name=name, mode="lines", line={"color": colour, "width": 2} | line)


def _shade(figure: go.Figure, shading: Shading) -> go.Figure:
    """Shade every second phase and name each on top; the page takes names away that have no room (`meta`)."""
    windows, end_s = shading
    if not windows or end_s <= 0:
        return figure
    for index, (name, window) in enumerate(windows.items()):
        start, end = window.start_ns / 1e9, window.end_ns / 1e9
        if index % 2 == 0:
            figure.add_vrect(x0=start, x1=end, fillcolor="#808890", opacity=0.12, line_width=0, layer="below")
        figure.add_annotation(
            name=PHASE_LABEL, x=(start + end) / 2, y=1, yref="paper", yanchor="top", text=escape(name), showarrow=False
        )
    figure.update_xaxes(range=[0, end_s])
    figure.update_layout(meta={"phases": {escape(name): window.seconds / end_s for name, window in windows.items()}})
    return figure


def _largest(*series: FloatArray) -> float:
    found = [float(np.nanmax(one)) for one in series if len(one) and not np.isnan(one).all()]
    return max(found, default=0.0)


def _rates(series: Timeline, shading: Shading) -> Plot:
    top = _largest(series.planned_per_s, series.sent_per_s, series.answered_per_s, series.failed_per_s)
    figure = _figure("time since start (s)", "requests per second", top * 1.1)
    x = series.start_s
    figure.add_trace(_line(x, series.planned_per_s, "planned", palette.PLANNED, dash="dot"))
    figure.add_trace(_line(x, series.sent_per_s, "sent", palette.SENT, width=1.5))
    figure.add_trace(_line(x, series.answered_per_s, "answered ok", palette.ANSWERED, dash="dash"))
    figure.add_trace(_line(x, series.failed_per_s, "failed", palette.FAILED))
    summary = (
        f"Requests planned, sent, answered and failed per second in bins of {series.bin_s:.0f} s; "
        f"at most {significant(_largest(series.sent_per_s))} sent, {significant(_largest(series.failed_per_s))} failed."
    )
    return Plot(name="rates", title="Load", summary=summary, figure=_shade(figure, shading), wide=True, group="time")


def _latency(run: RunData, series: Timeline, shading: Shading) -> Plot:
    ttft, sent = formulas.ttft_ns(run.columns) / 1e6, run.columns.sent_ns / 1e9
    index = _thinned(ttft)
    figure = _figure("time since start (s)", "TTFT (ms)", _largest(ttft) * 1.1)
    figure.update_layout(hovermode="closest")
    figure.add_trace(
        go.Scatter(
            x=np.round(sent[index], 3),
            y=np.round(ttft[index], 2),
            name="requests",
            mode="markers",
            marker={"color": palette.PLANNED, "size": 4, "opacity": 0.5},
        )
    )
    x = series.start_s + series.bin_s / 2
    for name, values in (("p50", series.ttft_p50_ms), ("p95", series.ttft_p95_ms)):
        colour = palette.QUANTILE_COLOURS[name]
        label = f"{name} of {series.bin_s:.0f} s"
        figure.add_trace(_line(x, np.round(values, 3), label, colour, dash=palette.DASHES[name]))
    summary = f"Time to first token of each request by when it was sent; largest {significant(_largest(ttft))} ms."
    return Plot(
        name="latency",
        title="Time to first token",
        summary=summary,
        figure=_shade(figure, shading),
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


def _tokens(series: Timeline, shading: Shading) -> Plot:
    top = _largest(series.output_tokens_per_s)
    figure = _figure("time since start (s)", "output tokens per second", top * 1.1)
    figure.add_trace(_line(series.start_s, np.round(series.output_tokens_per_s, 2), "output tokens", palette.TOKENS))
    figure.update_layout(showlegend=False)
    summary = f"Output tokens by when they arrived, at most {significant(top)} per second."
    return Plot(name="tokens", title="Output", summary=summary, figure=_shade(figure, shading), group="time")


def _in_flight(series: Timeline, shading: Shading) -> Plot:
    top = _largest(series.in_flight)
    figure = _figure("time since start (s)", "requests in flight", top * 1.1)
    figure.add_trace(_line(series.start_s, np.round(series.in_flight, 3), "in flight", palette.IN_FLIGHT))
    figure.update_layout(showlegend=False)
    summary = f"Mean number of open requests, at most {significant(top)}."
    return Plot(name="in-flight", title="In flight", summary=summary, figure=_shade(figure, shading), group="time")


def _load_plots(points: Sequence[CurvePoint], results: Sequence[Result]) -> tuple[Plot, ...]:
    if not points:
        return ()
    limits = {result.metric.name: result for result in results if result.quantile is not None}
    return (
        _throughput(points),
        *(_latency_under_load(name, points, limits.get(name)) for name in ("ttft", "tpot")),
        _latency_under_load("e2e", points, limits.get("e2e")),
    )


def _tracks(points: Sequence[CurvePoint]) -> list[tuple[str, list[CurvePoint]]]:
    """Return the points of each phase by rising offered rate."""
    names = dict.fromkeys(point.level.phase for point in points)
    return [
        (name, sorted((p for p in points if p.level.phase == name), key=lambda p: p.level.offered_per_s))
        for name in names
    ]


def _throughput(points: Sequence[CurvePoint]) -> Plot:
    top = max(max(point.level.offered_per_s, point.achieved_per_s) for point in points)
    figure = _figure("offered (requests per second)", "answered ok (requests per second)", top)
    figure.update_xaxes(range=[0, top * _HEAD_ROOM])
    figure.update_layout(hovermode="closest")
    figure.add_trace(
        _line([0, top * _HEAD_ROOM], [0, top * _HEAD_ROOM], "all answered", palette.PLANNED, dash="dot", width=1)
    )
    for index, (name, track) in enumerate(_tracks(points)):
        figure.add_trace(
            go.Scatter(
                x=[point.level.offered_per_s for point in track],
                y=[round(point.achieved_per_s, 3) for point in track],
                name=escape(name),
                mode="lines+markers",
                line={"color": palette.CYCLE[index % len(palette.CYCLE)], "width": 2},
                marker={"symbol": palette.SYMBOLS[index % len(palette.SYMBOLS)], "size": 9},
                text=[f"{point.ok:,} ok, {point.failed:,} failed" for point in track],
                hovertemplate="offered %{x:.3g}/s<br>answered %{y:.3g}/s<br>%{text}",
            )
        )
    best = max(point.achieved_per_s for point in points)
    summary = f"Answered against offered per second at {len(points)} load levels; at most {significant(best)} answered."
    return Plot(name="throughput", title="Throughput under load", summary=summary, figure=figure)


def _latency_under_load(metric: str, points: Sequence[CurvePoint], limit: Result | None) -> Plot:
    known = METRIC_BY_NAME[metric]
    values = [getattr(point.latency[metric], q) or 0.0 for point in points for q in CURVE_QUANTILES]
    top = max([*values, limit.limit if limit and limit.limit < 2 * max(values) else 0.0])
    figure = _figure("offered (requests per second)", f"{known.title} ({known.unit})", top)
    figure.update_xaxes(range=[0, max(point.level.offered_per_s for point in points) * _HEAD_ROOM])
    figure.update_layout(hovermode="closest")
    for index, (phase, track) in enumerate(_tracks(points)):
        for q in CURVE_QUANTILES:
            figure.add_trace(_quantile_track(metric, q, (phase, index), track))
    if limit is not None and limit.limit <= top:
        figure.add_hline(y=limit.limit, line={"color": palette.PLANNED, "dash": "longdash", "width": 1.5})
        figure.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=limit.limit,
            yanchor="bottom",
            text=escape(limit.sentence).replace("&lt;", "below"),
            showarrow=False,
        )
    worst = max(values)
    summary = f"{known.title} p50, p95, p99 against offered per second; largest {significant(worst)} {known.unit}."
    return Plot(name=f"{metric}-load", title=f"{known.title} under load", summary=summary, figure=figure)


def _quantile_track(metric: str, q: str, phase: tuple[str, int], track: Sequence[CurvePoint]) -> go.Scatter:
    unit = METRIC_BY_NAME[metric].unit
    return go.Scatter(
        x=[point.level.offered_per_s for point in track],
        y=[getattr(point.latency[metric], q) for point in track],
        name=q,
        legendgroup=q,
        showlegend=phase[1] == 0,
        mode="lines+markers",
        line={"color": palette.QUANTILE_COLOURS[q], "dash": palette.DASHES[q], "width": 2},
        marker={"symbol": palette.SYMBOLS[phase[1] % len(palette.SYMBOLS)], "size": 8},
        text=[f"{escape(phase[0])}, n {point.latency[metric].n:,}" for point in track],
        hovertemplate=f"{q} %{{y:.3g}} {unit} at %{{x:.3g}}/s<br>%{{text}}<extra></extra>",
    )


def _distributions(run: RunData) -> tuple[Plot, ...]:
    samples = sample_all(run.columns)
    phases = list(phase_windows(run, measured_only=True))
    made = []
    for metric in ECDF_METRICS:
        known = METRIC_BY_NAME[metric]
        figure = _figure(f"{known.title} ({known.unit})", "share of samples at or below", 1.0)
        figure.update_layout(hovermode="closest")
        figure.update_yaxes(tickformat=".0%")
        for index, phase in enumerate(phases):
            values = of_rows(samples[metric], np.asarray(run.phase == phase, dtype=bool)) / known.scale
            if len(values):
                colour = palette.CYCLE[index % len(palette.CYCLE)]
                dash = ("solid", "dash", "dot", "dashdot")[index % 4]
                figure.add_trace(_ecdf(values, escape(phase), colour, dash))
        n = len(of_rows(samples[metric], run.measured))
        summary = f"Cumulative distribution of {known.title} by phase, {n:,} samples."
        if n:
            made.append(
                Plot(
                    name=f"ecdf-{metric}",
                    title=f"Distribution of {known.title}",
                    summary=summary,
                    figure=figure,
                    log=True,
                )
            )
    return tuple(made)


def _ecdf(values: FloatArray, name: str, colour: str, dash: str) -> go.Scatter:
    """Return the distribution on a grid of quantiles that is denser in the upper tail."""
    share = np.unique(
        np.concatenate((np.linspace(0, 1, ECDF_POINTS // 2), 1 - np.geomspace(1e-4, 0.5, ECDF_POINTS // 2)))
    )
    line = {"color": colour, "width": 2, "dash": dash}
    return go.Scatter(
        x=np.round(np.quantile(values, share), 4),
        y=np.round(share, 5),
        name=f"{name} (n {len(values):,})",
        mode="lines",
        line=line,
    )


def _client(health: Health, shading: Shading) -> tuple[Plot, ...]:
    if not len(health.t_ns):
        return ()
    lag = _figure("time since start (s)", "hub lag p99 (ms)", _largest(health.hub_lag_p99_ns / 1e6) * 1.1)
    cpu = _figure("time since start (s)", "CPU (% of a core)", max(100.0, _largest(100 * health.cpu_share)))
    for index, worker in enumerate(dict.fromkeys(health.worker)):
        mine = np.flatnonzero(health.worker == worker)
        mine = mine[:: max(1, len(mine) // MOST_POINTS)]
        x, colour = health.t_ns[mine] / 1e9, palette.CYCLE[index % len(palette.CYCLE)]
        dash = ("solid", "dash", "dot")[index // len(palette.CYCLE) % 3]
        lag.add_trace(_line(x, np.round(health.hub_lag_p99_ns[mine] / 1e6, 3), escape(str(worker)), colour, dash=dash))
        cpu.add_trace(_line(x, np.round(100 * health.cpu_share[mine], 1), escape(str(worker)), colour, dash=dash))
    words = f"at most {significant(_largest(health.hub_lag_p99_ns / 1e6))} ms"
    return (
        Plot(
            name="hub-lag",
            title="Client: hub lag",
            summary=f"Lag of each worker's event loop, {words}.",
            figure=_shade(lag, shading),
            group="time",
        ),
        Plot(
            name="cpu",
            title="Client: CPU",
            summary=f"CPU of each worker, at most {significant(100 * _largest(health.cpu_share))} % of a core.",
            figure=_shade(cpu, shading),
            group="time",
        ),
    )
