"""Know how the steps of answers are drawn: one bar for each load level, made of the means of its steps."""

from collections.abc import Sequence
from html import escape
from itertools import count

import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.curve import CurvePoint
from servebench.analysis.numbers import significant
from servebench.analysis.plots.figure import Plot, PlotData, figure
from servebench.analysis.source import RunData
from servebench.analysis.spans import OTHER
from servebench.analysis.steps import means_ms

NAME = "steps"
_PATTERNS = ("", "/", "x", "\\", ".", "+")
"""Steps that lie beside each other differ without colour."""


def steps_plots(run: RunData, points: Sequence[CurvePoint]) -> tuple[Plot, ...]:
    """Return the breakdown of E2E by step under load; nothing where no locustfile made the answers."""
    found: list[tuple[str, dict[str, float]]] = []
    for point in points:
        level = point.level
        rows = run.measured & ~run.spoiled & (run.phase == level.phase)
        means = means_ms(run.steps, rows if level.step is None else rows & (run.step == level.step))
        if means:
            words = level.phase if level.step is None else f"{level.phase} {significant(level.offered_per_s)}/s"
            found.append((words, means))
    return (_plot(found),) if found else ()


def _plot(found: Sequence[tuple[str, dict[str, float]]]) -> Plot:
    names = list(found[0][1])
    x = [f"{place}. {words}" if len(found) > 1 else words for place, (words, _) in zip(count(1), found, strict=False)]
    drawn = figure("load level", "mean time from sent to end (ms)")
    drawn.update_layout(barmode="relative")
    drawn.update_xaxes(type="category", tickformat=None)
    for place, name in enumerate(names):
        colour = palette.PLANNED if name == OTHER else palette.CYCLE[place % len(palette.CYCLE)]
        shape = _PATTERNS[place // len(palette.CYCLE) % len(_PATTERNS)]
        drawn.add_trace(
            go.Bar(
                x=[escape(text) for text in x],
                y=[round(means[name], 3) for _, means in found],
                name=escape(name),
                marker={"color": colour, "pattern": {"shape": shape, "fillmode": "overlay", "solidity": 0.15}},
            )
        )
    words, last = found[-1]
    longest, total = max(last, key=lambda name: last[name]), sum(last.values())
    summary = (
        f"Mean time of an answer by its steps at {len(found)} load levels. In {words} {longest} is the longest with "
        f"{significant(last[longest])} of {significant(total)} ms."
    )
    rows = tuple(
        (text, *(significant(means[name]) for name in names), significant(sum(means.values())))
        for text, (_, means) in zip(x, found, strict=True)
    )
    data = PlotData(("load level", *(f"{name}, ms" for name in names), "whole, ms"), rows)
    return Plot(
        name=NAME, title="Where the time of an answer goes", summary=summary, figure=drawn, data=data, wide=True
    )
