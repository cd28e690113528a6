"""Know the plots that lay client, server and hardware on one time axis, and the split of E2E under load."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from servebench.analysis import palette
from servebench.analysis.engine import Source, Telemetry, Track
from servebench.analysis.engine_side import ServerSide
from servebench.analysis.engine_split import (
    ANSWER,
    CONNECT,
    DECODE,
    FIRST,
    ORDER,
    PREFILL,
    QUEUE,
    REST,
    SEND_LAG,
    WAIT,
    WORK,
    Split,
)
from servebench.analysis.numbers import significant
from servebench.analysis.plots.figure import MOST_POINTS, Plot, PlotData, Shading, columns, figure, largest, line, shade
from servebench.analysis.source import RunData
from servebench.analysis.timeline import Timeline
from servebench.metrics.columns import FloatArray

LAST_S = 10.0
"""Rates and means of counters are over the last 10 s, as in the live view."""
TABLE_ROWS = 60
CLIENT = "client"
"""How the names of the client's own lines begin; alone they are drawn elsewhere."""
_PART_COLOURS = {
    SEND_LAG: palette.PLANNED,
    CONNECT: palette.IN_FLIGHT,
    **dict.fromkeys((QUEUE, FIRST, WAIT, ANSWER), palette.FAILED),
    PREFILL: palette.SENT,
    **dict.fromkeys((WORK, DECODE), palette.ANSWERED),
    REST: palette.TOKENS,
}
_PATTERNS = {QUEUE: "/", FIRST: "/", WAIT: "/", ANSWER: "/", PREFILL: "x", REST: "\\"}
"""Parts that lie beside each other differ without colour."""


class Line(NamedTuple):
    """One line of a time plot; `x` in s of the run clock."""

    name: str
    x: FloatArray
    y: FloatArray
    dash: str = "solid"


class Sides(NamedTuple):
    """What the time plots are drawn from: the client's rows, their series by second, and what servers said."""

    run: RunData
    series: Timeline
    telemetry: Telemetry


def server_plots(side: ServerSide, run: RunData, series: Timeline, shading: Shading) -> tuple[Plot, ...]:
    """Return the split of the time, and client, server and hardware over time; only what was read is drawn."""
    sides = Sides(run, series, side.telemetry)
    split = (_split_plot(side.splits),) if side.splits else ()
    drawn = (
        _over_time(
            "server-requests", "Client in flight, server running and waiting", ("requests", "requests"), _requests
        ),
        _over_time("server-ttft", "TTFT of client and server", ("TTFT (ms)", "ms"), _ttft),
        _over_time("server-stages", "Stages by the server's metrics", ("mean (ms)", "ms"), _stages),
        _over_time("server-tokens", "Tokens by the server's metrics", ("tokens per second", "tok/s"), _tokens),
        _over_time("server-shares", "KV cache and cache hits", ("share (%)", "%"), _shares),
        _over_time("server-batches", "Requests in a batch", ("requests", "requests"), _batches),
        _over_time("hardware", "Hardware: busy", ("share (%)", "%"), _busy),
        _over_time("power", "Hardware: power", ("W", "W"), _power),
    )
    plots = (make(sides, shading) for make in drawn)
    return (*split, *(plot for plot in plots if plot is not None))


def _over_time(
    name: str, title: str, axis: tuple[str, str], lines_of: Callable[[Sides], list[Line]]
) -> Callable[[Sides, Shading], Plot | None]:
    """Return what draws one plot; `axis` is the title of its upright axis, and the unit of a figure in its summary."""
    y_title, unit = axis

    def make(sides: Sides, shading: Shading) -> Plot | None:
        lines = lines_of(sides)
        if all(one.name.startswith(CLIENT) for one in lines):
            return None
        drawn = figure("time since start (s)", y_title, largest(*(one.y for one in lines)) * 1.1)
        drawn.update_layout(showlegend=True)
        for index, one in enumerate(lines):
            thin = slice(None, None, max(1, len(one.x) // MOST_POINTS))
            colour = palette.CYCLE[index % len(palette.CYCLE)]
            drawn.add_trace(line(one.x[thin], np.round(one.y[thin], 3), escape(one.name), colour, dash=one.dash))
        said = ", ".join(f"{one.name} at most {significant(largest(one.y))} {unit}" for one in lines)
        return Plot(
            name=name,
            title=title,
            summary=f"{title} over the run: {said}.",
            figure=shade(drawn, shading),
            data=_table(lines, shading.end_s),
            group="time",
        )

    return make


def _table(lines: Sequence[Line], end_s: float) -> PlotData:
    """Return the lines at TABLE_ROWS equal steps, each the newest value before; NaN where there is none yet."""
    at = np.linspace(0, end_s, TABLE_ROWS)
    found: dict[str, FloatArray] = {"at_s": at}
    for one in lines:
        place = np.searchsorted(one.x, at, side="right") - 1
        known = (place >= 0) & (len(one.x) > 0)
        found[one.name] = np.where(known, one.y[np.clip(place, 0, None)] if len(one.x) else np.nan, np.nan)
    return columns(**found)


def _named(sources: Sequence[Source], source: Source, name: str) -> str:
    return name if len(sources) == 1 else f"{name}, {source.address}"


def _gauges(sources: Sequence[Source], series: str, name: str, scale: float = 1.0, dash: str = "solid") -> list[Line]:
    return [
        Line(_named(sources, source, name), track.t_ns / 1e9, track.value * scale, dash)
        for source in sources
        if (track := source.tracks.get(series)) is not None
    ]


def _ratios(sources: Sequence[Source], part: str, whole: tuple[str, ...], name: str, scale: float = 1.0) -> list[Line]:
    """Return the growth of one counter by that of others together, by time where there are none, over the last 10 s."""
    found = []
    for source in sources:
        over, under = source.tracks.get(part), [source.tracks[one] for one in whole if one in source.tracks]
        if over is None or len(under) < len(whole):
            continue
        grown = _last(over, over.t_ns)
        divisor = np.sum([_last(one, over.t_ns) for one in under], axis=0) if under else _elapsed(over)
        share = np.divide(grown, divisor, out=np.full(len(grown), np.nan), where=divisor > 0)
        found.append(Line(_named(sources, source, name), over.t_ns / 1e9, share * scale))
    return found


def _before(t_ns: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(t_ns - LAST_S * 1e9, t_ns[0]))


def _last(track: Track, t_ns: FloatArray) -> FloatArray:
    """Return by how much a counter grew in the last 10 s before each time; some show a counter later than others."""
    now, then = (np.interp(at, track.t_ns, track.grown()) for at in (t_ns, _before(t_ns)))
    return np.asarray(now - then)


def _elapsed(track: Track) -> FloatArray:
    return np.asarray((track.t_ns - _before(track.t_ns)) / 1e9)


def _requests(sides: Sides) -> list[Line]:
    engines, series = sides.telemetry.engines, sides.series
    return [
        Line(f"{CLIENT} in flight", series.start_s, series.in_flight),
        *_gauges(engines, "running", "server running", dash="dash"),
        *_gauges(engines, "waiting", "server waiting", dash="dot"),
    ]


def _ttft(sides: Sides) -> list[Line]:
    server = _ratios(sides.telemetry.engines, "ttft_s", ("ttft_n",), "server, mean of 10 s", 1e3)
    return [_client_ttft(sides), *(one._replace(dash="dash") for one in server)]


def _client_ttft(sides: Sides) -> Line:
    """Return the mean TTFT of the last 10 s by when the first token came, which is when a server counts it."""
    c = sides.run.columns
    ttft = c.events.first_token_ns - c.sent_ns
    known = np.flatnonzero(~np.isnan(ttft))
    order = known[np.argsort(c.events.first_token_ns[known])]
    came = c.events.first_token_ns[order] / 1e9
    total = np.concatenate((np.zeros(1), np.cumsum(ttft[order] / 1e6)))
    at = sides.series.start_s + sides.series.bin_s
    until, since = np.searchsorted(came, at, side="right"), np.searchsorted(came, at - LAST_S, side="right")
    n = (until - since).astype(np.float64)
    mean = np.divide(total[until] - total[since], n, out=np.full(len(at), np.nan), where=n > 0)
    return Line(f"{CLIENT}, mean of 10 s", at, mean)


def _stages(sides: Sides) -> list[Line]:
    return [
        one._replace(dash=dash)
        for name, dash in (("queue", "solid"), ("prefill", "dash"), ("decode", "dot"), ("compute", "longdash"))
        for one in _ratios(sides.telemetry.engines, f"{name}_s", (f"{name}_n",), name, 1e3)
    ]


def _tokens(sides: Sides) -> list[Line]:
    prompts = _ratios(sides.telemetry.engines, "prompt_tokens", (), "prompt processing")
    output = _ratios(sides.telemetry.engines, "output_tokens", (), "generation")
    return [*prompts, *(one._replace(dash="dash") for one in output)]


def _shares(sides: Sides) -> list[Line]:
    hits = _ratios(sides.telemetry.engines, "prefix_hits", ("prefix_queries",), "prefix hits", 100)
    whole = _ratios(
        sides.telemetry.engines, "cache_hits", ("cache_hits", "cache_misses"), "answers from its cache", 100
    )
    cache = _gauges(sides.telemetry.engines, "kv_usage", "KV cache in use", 100)
    return [*cache, *(one._replace(dash="dash") for one in hits), *(one._replace(dash="dot") for one in whole)]


def _batches(sides: Sides) -> list[Line]:
    means = _ratios(sides.telemetry.engines, "inferences", ("executions",), "mean of 10 s")
    return [*_gauges(sides.telemetry.engines, "batch_size", "in a step"), *(one._replace(dash="dash") for one in means)]


def _busy(sides: Sides) -> list[Line]:
    idle = _ratios(sides.telemetry.hardware, "cpu_idle_s", ("cpu_s",), "CPU", 100)
    cpu = [one._replace(y=100 - one.y, dash="dash") for one in idle]
    return [*_gauges(sides.telemetry.hardware, "gpu_busy", "GPU", 100), *cpu]


def _power(sides: Sides) -> list[Line]:
    cpu = _ratios(sides.telemetry.hardware, "package_joules", (), "CPU packages")
    return [*_gauges(sides.telemetry.hardware, "gpu_power", "GPU"), *(one._replace(dash="dash") for one in cpu)]


def _pattern(name: str) -> dict[str, str | float]:
    return {"shape": _PATTERNS.get(name, ""), "fillmode": "overlay", "solidity": 0.15}


def _split_plot(found: Sequence[Split]) -> Plot:
    ordered = sorted(found, key=lambda split: split.load_per_s)
    names = [name for name in ORDER if any(split.ms(name) is not None for split in ordered)]
    x = [f"{significant(split.load_per_s)}/s" for split in ordered]
    x = [text if x.count(text) == 1 else f"{text} {split.level.phase}" for text, split in zip(x, ordered, strict=True)]
    drawn = figure("sent (requests per second)", "mean E2E from intended (ms)")
    drawn.update_layout(barmode="relative", hovermode="x unified")
    drawn.update_xaxes(type="category", tickformat=None)
    for name in names:
        values = [split.ms(name) for split in ordered]
        drawn.add_trace(
            go.Bar(
                x=[escape(text) for text in x],
                y=[None if value is None else round(value, 3) for value in values],
                name=name,
                marker={"color": _PART_COLOURS[name], "pattern": _pattern(name)},
            )
        )
    last = ordered[-1]
    top = max(last.parts, key=lambda part: part.ms)
    summary = (
        f"Mean E2E from intended in its parts at {len(ordered)} load levels. At {significant(last.load_per_s)} req/s "
        f"{top.name} is the longest with {significant(top.ms)} of {significant(last.total_ms)} ms."
    )
    rows = tuple(
        (text, *(significant(split.ms(name)) for name in names), significant(split.total_ms))
        for text, split in zip(x, ordered, strict=True)
    )
    data = PlotData(("sent", *(f"{name}, ms" for name in names), "E2E, ms"), rows)
    return Plot(
        name="where-time-goes", title="Where the time goes", summary=summary, figure=drawn, data=data, wide=True
    )
