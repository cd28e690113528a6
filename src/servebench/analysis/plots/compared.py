"""Know the plots of a comparison: every change with its interval, and the primary number at each load level."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.compare.result import Comparison, LevelLine, Line
from servebench.analysis.numbers import UNDEFINED, significant
from servebench.analysis.plots.figure import HEAD_ROOM, Plot, PlotData, axis_unit, figure
from servebench.metrics import METRIC_BY_NAME

_LOOKS = {
    "better": (palette.ANSWERED, "circle"),
    "worse": (palette.FAILED, "x"),
    "same": (palette.SENT, "square"),
    "inconclusive": (palette.PLANNED, "circle-open"),
}
"""Colour and marker by what may be said, so that neither is needed alone."""
_ROW_PX = 34


def comparison_plots(found: Comparison) -> tuple[Plot, ...]:
    """Return the changes, and the levels where there are some; none where the comparison was refused."""
    lines = [line for line in found.lines if line.difference.lo is not None]
    plots = [_changes(lines)] if lines else []
    if found.levels:
        plots.append(_levels(found))
    return tuple(plots)


def _look(line: Line) -> str:
    return next(word for word in _LOOKS if line.verdict.startswith(word))


def _changes(lines: Sequence[Line]) -> Plot:
    drawn = figure("change of B against A (%; points for shares)", "")
    drawn.update_layout(height=110 + _ROW_PX * len(lines), hovermode="closest", margin={"l": 150})
    drawn.update_xaxes(rangemode="normal", zeroline=True, zerolinewidth=2, tickformat="+,.3~g")
    drawn.update_yaxes(categoryorder="array", categoryarray=[line.wanted.title for line in reversed(lines)])
    for word, (colour, symbol) in _LOOKS.items():
        mine = [line for line in lines if _look(line) == word]
        if mine:
            drawn.add_trace(_points(word, mine, (colour, symbol)))
    rows = tuple((line.wanted.title, *_change(line), line.verdict) for line in lines)
    counts = ", ".join(f"{sum(_look(line) == word for line in lines)} {word}" for word in _LOOKS)
    return Plot(
        name="changes",
        title="Changes with their 95 % intervals",
        summary=f"Change of each metric from A to B with its interval: {counts}.",
        figure=drawn,
        data=PlotData(("metric", "change", "from", "to", "verdict"), rows),
        wide=True,
    )


def _points(word: str, lines: Sequence[Line], look: tuple[str, str]) -> go.Scatter:
    colour, symbol = look
    centre = [100 * line.difference.change for line in lines]
    up = [100 * ((line.difference.hi or 0.0) - line.difference.change) for line in lines]
    down = [100 * (line.difference.change - (line.difference.lo or 0.0)) for line in lines]
    return go.Scatter(
        x=centre,
        y=[line.wanted.title for line in lines],
        name=word,
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 11},
        error_x={"type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": colour, "width": 5},
        text=[line.verdict for line in lines],
        hovertemplate="%{y}: %{x:+.3g}<br>%{text}<extra></extra>",
    )


def _change(line: Line) -> tuple[str, str, str]:
    unit = "points" if line.wanted.is_share else "%"
    known = (line.difference.change, line.difference.lo, line.difference.hi)
    change, lo, hi = (UNDEFINED if value is None else f"{100 * value:+.3g} {unit}" for value in known)
    return change, lo, hi


def _levels(found: Comparison) -> Plot:
    metric = METRIC_BY_NAME[found.primary.metric]
    top = max(max(item.base, item.candidate) for item in found.levels)
    unit, divisor = axis_unit(metric.unit, top)
    drawn = figure("offered (requests per second)", f"{found.primary.title} ({unit})", top / divisor)
    drawn.update_xaxes(range=[0, HEAD_ROOM * max(item.offered_per_s for item in found.levels)])
    drawn.update_layout(hovermode="closest")
    for phase in dict.fromkeys(item.phase for item in found.levels):
        for side, name in enumerate("AB"):
            drawn.add_trace(_side([i for i in found.levels if i.phase == phase], side, name, divisor))
    rows = tuple(
        (
            item.phase,
            *map(significant, (item.offered_per_s, item.base / divisor, item.candidate / divisor)),
            f"{100 * item.difference.change:+.3g} %",
        )
        for item in found.levels
    )
    return Plot(
        name="levels",
        title=f"{found.primary.title} at equal offered load",
        summary=f"{found.primary.title} of A and B, means over pairs, at each load level that all runs have.",
        figure=drawn,
        data=PlotData(("phase", "offered /s", f"A, {unit}", f"B, {unit}", "change"), rows),
        wide=True,
    )


def _side(levels: Sequence[LevelLine], side: int, name: str, divisor: float) -> go.Scatter:
    ordered = sorted(levels, key=lambda item: item.offered_per_s)
    return go.Scatter(
        x=[item.offered_per_s for item in ordered],
        y=[(item.candidate if side else item.base) / divisor for item in ordered],
        name=f"{name}, {escape(ordered[0].phase)}",
        mode="lines+markers",
        line={"color": palette.CYCLE[side], "width": 2, "dash": ("solid", "dash")[side]},
        marker={"symbol": palette.SYMBOLS[side], "size": 9},
    )
