"""Know the plots against offered load: what was answered, and the latency there."""

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.curve import CURVE_QUANTILES, CurvePoint
from servebench.analysis.numbers import bounds, count, significant
from servebench.analysis.objectives import Result
from servebench.analysis.plots.figure import HEAD_ROOM, Plot, PlotData, figure, line
from servebench.analysis.saturation import Saturation
from servebench.metrics import METRIC_BY_NAME


def load_plots(
    points: Sequence[CurvePoint], results: Sequence[Result], found: Sequence[Saturation]
) -> tuple[Plot, ...]:
    """Return throughput and latency against offered load; none without a measured level."""
    if not points:
        return ()
    limits = {result.metric.name: result for result in results if result.quantile is not None}
    return (
        _throughput(points, found),
        *(_latency_under_load(name, points, limits.get(name)) for name in ("ttft", "tpot")),
        _latency_under_load("e2e", points, limits.get("e2e")),
        _tokens_by_concurrency(points),
    )


def _tracks(points: Sequence[CurvePoint]) -> list[tuple[str, list[CurvePoint]]]:
    """Return the points of each phase by rising offered rate."""
    names = dict.fromkeys(point.level.phase for point in points)
    return [
        (name, sorted((p for p in points if p.level.phase == name), key=lambda p: p.level.offered_per_s))
        for name in names
    ]


def _throughput(points: Sequence[CurvePoint], found: Sequence[Saturation]) -> Plot:
    top = max(max(point.level.offered_per_s, point.achieved_per_s) for point in points)
    drawn = figure("offered (requests per second)", "answered ok (requests per second)", top)
    drawn.update_xaxes(range=[0, top * HEAD_ROOM])
    drawn.update_layout(hovermode="closest")
    drawn.add_trace(
        line([0, top * HEAD_ROOM], [0, top * HEAD_ROOM], "all answered", palette.PLANNED, dash="dot", width=1)
    )
    for index, (name, track) in enumerate(_tracks(points)):
        drawn.add_trace(
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
    for one in found:
        _mark_plateau(drawn, one)
    best = max(point.achieved_per_s for point in points)
    summary = f"Answered against offered per second at {len(points)} load levels; at most {significant(best)} answered."
    summary = " ".join((summary, *(one.sentence for one in found)))
    data = PlotData(
        ("phase", "offered /s", "answered /s", "ok", "failed"),
        tuple(
            (name, *map(significant, (p.level.offered_per_s, p.achieved_per_s)), count(p.ok), count(p.failed))
            for name, track in _tracks(points)
            for p in track
        ),
    )
    return Plot(name="throughput", title="Throughput under load", summary=summary, figure=drawn, data=data)


def _mark_plateau(drawn: go.Figure, found: Saturation) -> None:
    """Draw the rate at which a service saturates, with its interval as a band."""
    if found.plateau is None or found.lo is None or found.hi is None:
        return
    drawn.add_hrect(y0=found.lo, y1=found.hi, fillcolor=palette.FAILED, opacity=0.12, line_width=0, layer="below")
    drawn.add_hline(y=found.plateau, line={"color": palette.FAILED, "dash": "dash", "width": 1.5})
    drawn.add_annotation(
        x=0,
        xref="paper",
        xanchor="left",
        y=found.hi,
        yanchor="bottom",
        text=f"saturates at {significant(found.plateau)} {bounds(found.lo, found.hi)}",
        showarrow=False,
    )


def _tokens_by_concurrency(points: Sequence[CurvePoint]) -> Plot:
    top = max(point.output_tokens_per_s for point in points)
    drawn = figure("requests in flight, mean", "output tokens per second", top)
    drawn.update_layout(hovermode="closest")
    for index, (name, track) in enumerate(_tracks(points)):
        ordered = sorted(track, key=lambda point: point.in_flight_mean)
        drawn.add_trace(
            go.Scatter(
                x=[round(point.in_flight_mean, 3) for point in ordered],
                y=[round(point.output_tokens_per_s, 2) for point in ordered],
                name=escape(name),
                mode="lines+markers",
                line={"color": palette.CYCLE[index % len(palette.CYCLE)], "width": 2},
                marker={"symbol": palette.SYMBOLS[index % len(palette.SYMBOLS)], "size": 9},
            )
        )
    rows = tuple(
        (name, significant(point.in_flight_mean), significant(point.output_tokens_per_s))
        for name, track in _tracks(points)
        for point in track
    )
    return Plot(
        name="tokens-concurrency",
        title="Output by concurrency",
        summary=f"Output tokens per second against requests in flight; at most {significant(top)}.",
        figure=drawn,
        data=PlotData(("phase", "in flight", "output tok/s"), rows),
    )


def _latency_under_load(metric: str, points: Sequence[CurvePoint], limit: Result | None) -> Plot:
    known = METRIC_BY_NAME[metric]
    shown = (*CURVE_QUANTILES, "p95_hi")
    values = [getattr(point.latency[metric], q) or 0.0 for point in points for q in shown]
    top = max([*values, limit.limit if limit and limit.limit < 2 * max(values) else 0.0])
    drawn = figure("offered (requests per second)", f"{known.title} ({known.unit})", top)
    drawn.update_xaxes(range=[0, max(point.level.offered_per_s for point in points) * HEAD_ROOM])
    drawn.update_layout(hovermode="closest")
    for index, (phase, track) in enumerate(_tracks(points)):
        for q in CURVE_QUANTILES:
            drawn.add_trace(_quantile_track(metric, q, (phase, index), track))
    if limit is not None and limit.limit <= top:
        drawn.add_hline(y=limit.limit, line={"color": palette.PLANNED, "dash": "longdash", "width": 1.5})
        drawn.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=limit.limit,
            yanchor="bottom",
            text=escape(limit.sentence).replace("&lt;", "below"),
            showarrow=False,
        )
    known_values = [v for p in points for q in CURVE_QUANTILES if (v := getattr(p.latency[metric], q)) is not None]
    worst = max(known_values, default=None)
    summary = f"{known.title} p50, p95, p99 against offered per second; largest {significant(worst)} {known.unit}."
    data = PlotData(
        ("phase", "offered /s", "n", *(f"{q}, {known.unit}" for q in CURVE_QUANTILES), "p95, 95 % interval"),
        tuple(
            (name, significant(p.level.offered_per_s), count(p.latency[metric].n), *_latencies(p, metric))
            for name, track in _tracks(points)
            for p in track
        ),
    )
    return Plot(name=f"{metric}-load", title=f"{known.title} under load", summary=summary, figure=drawn, data=data)


def _bars(metric: str, track: Sequence[CurvePoint]) -> dict[str, Any]:
    """Return the 95 % interval of p95 as error bars; no bar where there is none."""
    rows = [point.latency[metric] for point in track]
    up = [0.0 if row.p95 is None or row.p95_hi is None else row.p95_hi - row.p95 for row in rows]
    down = [0.0 if row.p95 is None or row.p95_lo is None else row.p95 - row.p95_lo for row in rows]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1, "width": 3}


def _latencies(point: CurvePoint, metric: str) -> list[str]:
    row = point.latency[metric]
    return [*(significant(getattr(row, q)) for q in CURVE_QUANTILES), bounds(row.p95_lo, row.p95_hi)]


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
        error_y=_bars(metric, track) if q == "p95" else None,
        hovertemplate=f"{q} %{{y:.3g}} {unit} at %{{x:.3g}}/s<br>%{{text}}<extra></extra>",
    )
