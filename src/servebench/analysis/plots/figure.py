"""Know the form of every plot: axes from 0, head room, phases shaded, and the numbers behind it as a table.

Colours of text, axes and background are left to the page, which knows whether it is light or dark. Text from a run is
escaped, because plotly reads some tags in labels. A trace has at most 5,000 points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from servebench.analysis.numbers import significant
from servebench.metrics import Window
from servebench.metrics.columns import FloatArray

MOST_POINTS = 2_500
HEAD_ROOM = 1.05
PHASE_LABEL = "phase"


class PlotData(NamedTuple):
    """The numbers of a plot as text cells, for readers who do not see it."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One figure of the report. `summary` says in words what a reader of the picture sees; `wide` spans the page.

    `group`: plots of one group share their x range when zoomed. `log` offers a switch to a logarithmic x axis.
    """

    name: str
    title: str
    summary: str
    figure: go.Figure
    data: PlotData
    wide: bool = False
    group: str | None = None
    log: bool = False


class Shading(NamedTuple):
    """Phases that ran, and where time axes end (s)."""

    windows: Mapping[str, Window]
    end_s: float


def figure(x_title: str, y_title: str, top: float | None = None) -> go.Figure:
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
        figure.update_yaxes(range=[0, top * HEAD_ROOM])
    return figure


def axis_unit(unit: str, largest: float) -> tuple[str, float]:
    """Return the unit of an axis up to `largest`, and by what to divide: above 9,999 ms axes are in seconds."""
    return ("s", 1000.0) if unit == "ms" and largest > 9_999 else (unit, 1.0)


def line(x: Any, y: Any, name: str, colour: str, **line: Any) -> go.Scatter:  # noqa: ANN401 - plotly's own leniency
    """Return a line; `line` overrides plotly's settings of it."""
    return go.Scatter(x=x, y=y, name=name, mode="lines", line={"color": colour, "width": 2} | line)


def shade(figure: go.Figure, shading: Shading) -> go.Figure:
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


def largest(*series: FloatArray) -> float:
    """Return the largest number of several series, 0.0 where there is none."""
    found = [float(np.nanmax(one)) for one in series if len(one) and not np.isnan(one).all()]
    return max(found, default=0.0)


def columns(**named: Sequence[float] | FloatArray) -> PlotData:
    """Return a table of one column per name, with three significant digits; `_` in a name stands for a space."""
    head = tuple(name.replace("_", " ") for name in named)
    return PlotData(head, tuple(tuple(map(significant, row)) for row in zip(*named.values(), strict=True)))
