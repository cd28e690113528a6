"""Know the plots against offered load: what was answered, and the latency there."""

from collections.abc import Sequence
from html import escape
from typing import Any, Literal, NamedTuple

import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.curve import CURVE_METRICS, CURVE_QUANTILES, CurvePoint
from servebench.analysis.numbers import bounds, count, significant
from servebench.analysis.objectives import Result
from servebench.analysis.plots.figure import HEAD_ROOM, Plot, PlotData, axis_unit, figure
from servebench.analysis.plots.throughput import Mark, throughput_plot
from servebench.analysis.plots.tracks import Track, first_of_legends, hidden_words, tracks_of
from servebench.analysis.saturation import Saturation
from servebench.metrics import METRIC_BY_NAME

Colours = Literal["quantile", "track"]
"""What the colour of a latency line tells; the other is told by dashes (quantile) or markers (track)."""


def load_plots(
    points: Sequence[CurvePoint], results: Sequence[Result], found: Sequence[Saturation]
) -> tuple[Plot, ...]:
    """Return throughput and latency against offered load; none without a measured level."""
    if not points:
        return ()
    limits = [result for result in results if result.quantile is not None]
    return curve_plots(tracks_of(points), tuple(map(Mark, found)), limits, "quantile")


def curve_plots(
    tracks: Sequence[Track], marks: Sequence[Mark], limits: Sequence[Result], colours: Colours
) -> tuple[Plot, ...]:
    """Return the plots of some tracks on the same axes; there is at least one point."""
    by_metric = {limit.metric.name: limit for limit in limits}
    return (
        throughput_plot(tracks, marks, limits),
        *(latency_plot(Wanted(metric, by_metric.get(metric), colours), tracks) for metric in CURVE_METRICS),
        tokens_plot(tracks),
    )


def tokens_plot(tracks: Sequence[Track]) -> Plot:
    """Return output against requests in flight."""
    top = max(point.output_tokens_per_s for track in tracks for point in track.points)
    drawn = figure("requests in flight, mean", "output tokens per second", top)
    drawn.update_layout(hovermode="closest")
    rows, first = [], first_of_legends(tracks)
    for track in tracks:
        ordered = sorted(track.points, key=lambda point: point.in_flight_mean)
        drawn.add_trace(
            go.Scatter(
                x=[round(point.in_flight_mean, 3) for point in ordered],
                y=[round(point.output_tokens_per_s, 2) for point in ordered],
                name=escape(track.legend),
                legendgroup=escape(track.legend),
                showlegend=track.name in first,
                mode="lines+markers",
                line={"color": track.colour, "width": 2},
                marker={"symbol": track.symbol, "size": 9},
            )
        )
        rows += [(track.name, significant(p.in_flight_mean), significant(p.output_tokens_per_s)) for p in ordered]
    return Plot(
        name="tokens-concurrency",
        title="Output by concurrency",
        summary=f"Output tokens per second against requests in flight; at most {significant(top)} tok/s.",
        figure=drawn,
        data=PlotData(("series", "in flight", "output tok/s"), tuple(rows)),
    )


class Wanted(NamedTuple):
    """Which latency to draw, its objective if there is one, and what colours tell."""

    metric: str
    limit: Result | None
    colours: Colours


def latency_plot(wanted: Wanted, tracks: Sequence[Track]) -> Plot:
    """Return p50, p95 and p99 of a latency against offered load; a quantile without a point has no line."""
    metric, limit, _ = wanted
    known = METRIC_BY_NAME[metric]
    shown = [q for q in CURVE_QUANTILES if any(v is not None for track in tracks for v in track.latency(metric, q))]
    values = [v for track in tracks for q in (*shown, "p95_hi") for v in track.latency(metric, q) if v is not None]
    most = max(values, default=0.0)
    top = max(most, limit.limit if limit and limit.limit < 2 * most else 0.0)
    unit, divisor = axis_unit(known.unit, top)
    drawn = figure("offered (requests per second)", f"{known.title} ({unit})", top / divisor)
    drawn.update_xaxes(range=[0, max(rate for track in tracks for rate in track.offered) * HEAD_ROOM])
    drawn.update_layout(hovermode="closest")
    first = first_of_legends(tracks)
    for track in tracks:
        for q in shown:
            drawn.add_trace(_line(wanted, track, q, (unit, divisor)))
            if wanted.colours == "track":
                drawn.data[-1].showlegend = q == shown[0] and track.name in first
    if limit is not None and limit.limit <= top:
        _limit_line(drawn, limit, divisor)
    worst = max(
        (v for t in tracks for q in shown for v in t.latency(metric, q, divisor) if v is not None), default=None
    )
    title = known.title[0].upper() + known.title[1:]
    styles = {"p50": "solid", "p95": "dashed", "p99": "dotted"}
    names = ", ".join(q if wanted.colours == "quantile" else f"{q} ({styles[q]})" for q in shown)
    words = f"{title} {names or 'of too few samples'} against offered per second"
    summary = f"{words}; largest {significant(worst)} {unit}." if shown else f"{words}."
    return Plot(
        name=f"{metric}-load",
        title=f"{known.title} under load",
        summary=" ".join(filter(None, (summary, hidden_words(tracks, metric)))),
        figure=drawn,
        data=_numbers(metric, tracks, (unit, divisor)),
    )


def _limit_line(drawn: go.Figure, limit: Result, divisor: float) -> None:
    y = limit.limit / divisor
    drawn.add_hline(y=y, line={"color": palette.PLANNED, "dash": "longdash", "width": 1.5})
    drawn.add_annotation(
        x=0,
        xref="paper",
        xanchor="left",
        y=y,
        yanchor="bottom",
        text=escape(limit.sentence).replace("&lt;", "below"),
        showarrow=False,
    )


def _numbers(metric: str, tracks: Sequence[Track], scale: tuple[str, float]) -> PlotData:
    unit, divisor = scale
    head = ("series", "offered /s", "n", *(f"{q}, {unit}" for q in CURVE_QUANTILES), "p95, 95 % interval")
    rows = []
    for track in tracks:
        names = (*CURVE_QUANTILES, "p95_lo", "p95_hi")
        columns = zip(*(track.latency(metric, name, divisor) for name in names), strict=True)
        for point, (*quantiles, lo, hi) in zip(track.points, columns, strict=True):
            offered, n = significant(point.level.offered_per_s), count(point.latency[metric].n)
            rows.append((track.name, offered, n, *map(significant, quantiles), bounds(lo, hi)))
    return PlotData(head, tuple(rows))


def _bars(track: Track, metric: str, divisor: float) -> dict[str, Any]:
    """Return the 95 % interval of p95 as error bars; no bar where there is none."""
    columns = zip(*(track.latency(metric, name, divisor) for name in ("p95", "p95_lo", "p95_hi")), strict=True)
    bars = [(p - lo, hi - p) if None not in (p, lo, hi) else (0.0, 0.0) for p, lo, hi in columns]
    down, up = zip(*bars, strict=True)
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1, "width": 3}


def _line(wanted: Wanted, track: Track, q: str, scale: tuple[str, float]) -> go.Scatter:
    unit, divisor = scale
    by_quantile = wanted.colours == "quantile"
    name = escape(track.name)
    return go.Scatter(
        x=track.offered,
        y=track.latency(wanted.metric, q, divisor),
        name=q if by_quantile else escape(track.legend),
        legendgroup=q if by_quantile else escape(track.legend),
        showlegend=track.number == 0,
        mode="lines+markers",
        line={
            "color": palette.QUANTILE_COLOURS[q] if by_quantile else track.colour,
            "dash": palette.DASHES[q],
            "width": 2,
        },
        marker={"symbol": track.symbol, "size": 8},
        text=[f"{name}, n {point.latency[wanted.metric].n:,}" for point in track.points],
        error_y=_bars(track, wanted.metric, divisor) if q == "p95" else None,
        hovertemplate=f"{q} %{{y:.3g}} {unit} at %{{x:.3g}}/s<br>%{{text}}<extra></extra>",
    )
