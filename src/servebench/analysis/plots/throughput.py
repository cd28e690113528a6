"""Know the figure of throughput under load: answers, a band of latency and requests in flight over the offered rate.

Its three panels share the axis of the offered rate, so that the knee of the answers stands above the rise of the wait.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.numbers import bounds, count, significant
from servebench.analysis.objectives import Result
from servebench.analysis.plots.figure import HEAD_ROOM, Plot, PlotData, axis_unit, figure, line
from servebench.analysis.plots.tracks import Track, first_of_legends
from servebench.analysis.saturation import Saturation
from servebench.metrics import METRIC_BY_NAME

HEIGHT = 620
_PANELS = ((0.64, 1.0), (0.31, 0.58), (0.0, 0.25))
_FAINT = 0.18


class Mark(NamedTuple):
    """A saturation to draw: its colour, and whose it is where several runs share the figure ("" = the only one)."""

    found: Saturation
    colour: str = palette.FAILED
    label: str = ""


class Panel(NamedTuple):
    """What the middle panel shows: a latency, its unit on the axis, and by what its values are divided."""

    metric: str
    unit: str
    divisor: float


def throughput_plot(tracks: Sequence[Track], marks: Sequence[Mark], limits: Sequence[Result] = ()) -> Plot:
    """Return the figure; `limits` are objectives on quantiles, of which that of the shown latency is drawn."""
    panel = _panel(tracks)
    top = max(max(p.level.offered_per_s, p.achieved_per_s) for track in tracks for p in track.points)
    drawn = _frame(tracks, panel, top)
    shown = first_of_legends(tracks)
    for track in tracks:
        _draw(drawn, track, panel, in_legend=track.name in shown)
    for mark in marks:
        _mark_saturation(drawn, mark, top)
    for limit in limits:
        if limit.metric.name == panel.metric and limit.limit / panel.divisor <= drawn.layout.yaxis2.range[1]:
            _limit_line(drawn, limit, panel)
    return Plot(
        name="throughput",
        title="Throughput under load",
        summary=_summary(tracks, marks, panel),
        figure=drawn,
        data=_data(tracks, panel),
        wide=True,
    )


def _panel(tracks: Sequence[Track]) -> Panel:
    """Return the latency to show: TTFT, or that of the whole request where nothing was streamed."""
    streamed = any(point.latency["ttft"].n for track in tracks for point in track.points)
    metric = "ttft" if streamed else "e2e"
    values = [v for track in tracks for q in ("p50", "p95") for v in track.latency(metric, q) if v is not None]
    return Panel(metric, *axis_unit(METRIC_BY_NAME[metric].unit, max(values, default=0.0)))


def _frame(tracks: Sequence[Track], panel: Panel, top: float) -> go.Figure:
    drawn = figure("offered (requests per second)", "answered ok (requests per second)", top)
    axis = drawn.layout.yaxis.to_plotly_json()
    latency = [v for t in tracks for q in ("p50", "p95") for v in t.latency(panel.metric, q, panel.divisor) if v]
    title = f"{METRIC_BY_NAME[panel.metric].title} ({panel.unit})"
    tops = (top, max(latency, default=0.0), max(p.in_flight_mean for t in tracks for p in t.points))
    for index, (name, largest) in enumerate(zip(("answered ok (/s)", title, "in flight"), tops, strict=True), start=1):
        known = axis | {"title": {"text": name}, "domain": _PANELS[index - 1], "anchor": "x"}
        known["range"] = [0, (largest or 1.0) * HEAD_ROOM]
        drawn.update_layout({f"yaxis{index if index > 1 else ''}": known})
    drawn.update_xaxes(range=[0, top * HEAD_ROOM], anchor="y3")
    drawn.update_layout(hovermode="closest", height=HEIGHT)
    drawn.add_trace(
        line([0, top * HEAD_ROOM], [0, top * HEAD_ROOM], "all answered", palette.PLANNED, dash="dot", width=1)
    )
    return drawn


def _draw(drawn: go.Figure, track: Track, panel: Panel, *, in_legend: bool) -> None:
    """Draw one track into the three panels; p50 and p95 of the latency bound a band."""
    name = escape(track.name)

    def add(y: Sequence[float | None], axis: str, words: str, **style: object) -> None:
        settings = {"color": track.colour, "width": 2, "dash": style.pop("dash", "solid")}
        drawn.add_trace(
            go.Scatter(
                x=track.offered,
                y=y,
                yaxis=axis,
                name=escape(track.legend),
                legendgroup=escape(track.legend),
                showlegend=axis == "y" and in_legend,
                mode="lines+markers",
                line=settings,
                marker={"symbol": track.symbol, "size": 8},
                text=[f"{name}: {p.ok:,} ok, {p.failed:,} failed" for p in track.points],
                hovertemplate=f"offered %{{x:.3g}}/s<br>{words} %{{y:.3g}}<br>%{{text}}<extra></extra>",
                **style,
            )
        )

    add([round(p.achieved_per_s, 3) for p in track.points], "y", "answered per s")
    title = METRIC_BY_NAME[panel.metric].title
    add(
        track.latency(panel.metric, "p50", panel.divisor),
        "y2",
        f"{title} p50, {panel.unit}",
        dash=palette.DASHES["p50"],
    )
    add(
        track.latency(panel.metric, "p95", panel.divisor),
        "y2",
        f"{title} p95, {panel.unit}",
        dash=palette.DASHES["p95"],
    )
    drawn.add_trace(_band(track, panel))
    add([round(p.in_flight_mean, 3) for p in track.points], "y3", "in flight")


def _band(track: Track, panel: Panel) -> go.Scatter:
    """Return the area between p50 and p95 over the levels that have both."""
    columns = (track.offered, *(track.latency(panel.metric, q, panel.divisor) for q in ("p50", "p95")))
    rows = [row for row in zip(*columns, strict=True) if None not in row]
    return go.Scatter(
        x=[row[0] for row in rows] + [row[0] for row in reversed(rows)],
        y=[row[1] for row in rows] + [row[2] for row in reversed(rows)],
        yaxis="y2",
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=_faint(track.colour),
        legendgroup=escape(track.legend),
        showlegend=False,
        hoverinfo="skip",
    )


def _faint(colour: str) -> str:
    """Return a colour for areas: the hex colour, mostly transparent."""
    red, green, blue = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return f"rgba({red},{green},{blue},{_FAINT})"


def _mark_saturation(drawn: go.Figure, mark: Mark, top: float) -> None:
    """Draw the rate at which a service saturates with its interval, and from where on answers fall behind."""
    found, colour, label = mark.found, mark.colour, escape(mark.label)
    if found.plateau is None or found.lo is None or found.hi is None:
        return
    whole = {"x0": 0, "x1": 1, "xref": "x domain", "layer": "below"}
    style = {"color": colour, "dash": "dash", "width": 1.5}
    drawn.add_shape(type="rect", y0=found.lo, y1=found.hi, fillcolor=colour, opacity=0.15, line={"width": 0}, **whole)
    drawn.add_shape(type="line", y0=found.plateau, y1=found.plateau, line=style, **whole)
    words = f"saturates at {significant(found.plateau)} {bounds(found.lo, found.hi)}"
    text = f"{label} {words}".strip()
    place = {"xref": "x domain", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    drawn.add_annotation(x=0, y=found.hi, text=text, **place)
    if found.departs is None or found.departs > top:
        return
    thin = {"color": colour, "dash": "dot", "width": 1}
    ends = {"x0": found.departs, "x1": found.departs, "y0": 0, "y1": 1, "yref": "paper"}
    drawn.add_shape(type="line", line=thin, layer="below", **ends)
    if not label:  # lines of several runs stand too close for words of their own
        knee = f"knee: behind from {significant(found.departs)}"
        drawn.add_annotation(**place | {"xref": "x"}, x=found.departs, y=0, text=knee)


def _limit_line(drawn: go.Figure, limit: Result, panel: Panel) -> None:
    y = limit.limit / panel.divisor
    style = {"color": palette.PLANNED, "dash": "longdash", "width": 1.5}
    drawn.add_shape(type="line", x0=0, x1=1, xref="x domain", y0=y, y1=y, yref="y2", line=style)
    drawn.add_annotation(
        x=1, xref="x domain", xanchor="right", y=y, yref="y2", yanchor="bottom", showarrow=False,
        text=escape(limit.sentence).replace("&lt;", "below"),
    )  # fmt: skip


def _summary(tracks: Sequence[Track], marks: Sequence[Mark], panel: Panel) -> str:
    levels = sum(len(track.points) for track in tracks)
    best = max(p.achieved_per_s for track in tracks for p in track.points)
    title = METRIC_BY_NAME[panel.metric].title
    first = (
        f"Answers, {title} (band: p50 to p95) and requests in flight against offered per second at {levels} load "
        f"levels; at most {significant(best)}/s answered."
    )
    return " ".join(
        (first, *(f"{mark.label}: {mark.found.sentence}" if mark.label else mark.found.sentence for mark in marks))
    )


def _data(tracks: Sequence[Track], panel: Panel) -> PlotData:
    title = METRIC_BY_NAME[panel.metric].title
    head = ("series", "offered /s", "sent /s", "answered /s", "ok", "failed", "in flight")
    latency = (f"{title} p50, {panel.unit}", f"{title} p95, {panel.unit}")
    rows = []
    for track in tracks:
        pairs = zip(*(track.latency(panel.metric, q, panel.divisor) for q in ("p50", "p95")), strict=True)
        for p, pair in zip(track.points, pairs, strict=True):
            rates = map(significant, (p.level.offered_per_s, p.sent_per_s, p.achieved_per_s))
            numbers = map(significant, (p.in_flight_mean, *pair))
            rows.append((track.name, *rates, count(p.ok), count(p.failed), *numbers))
    return PlotData((*head, *latency), tuple(rows))
