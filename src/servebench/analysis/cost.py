"""Know what a run's answers cost: prices of tokens, or of hardware by the hour and its power; what is missing is named.

Everything that the measured time cost is shared among the answers: failed requests and the time in which nothing was
asked as well. A price that was not given, or a number that the server did not tell, makes no zero but a gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from servebench.analysis.engine import Telemetry, Track, covered
from servebench.analysis.source import RunData
from servebench.analysis.windows import phase_windows
from servebench.core.units import NS_PER_S
from servebench.metrics.columns import FloatArray, Window

MILLION = 1e6
J_PER_KWH = 3.6e6
POWER = "gpu_power"
JOULES = "package_joules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What things cost, in one currency; None = not said. Tokens per million; `power_w` replaces measured power."""

    currency: str = "USD"
    input_tokens: float | None = None
    cached_tokens: float | None = None
    output_tokens: float | None = None
    request: float | None = None
    hour: float | None = None
    kwh: float | None = None
    power_w: float | None = None

    @property
    def by_token(self) -> bool:
        """Whether anything is paid by token or request."""
        return any(price is not None for price in (self.input_tokens, self.output_tokens, self.request))


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What the measured time of a run took, and what it gave.

    Tokens are those of all answers whose count is known, `uncounted` the answers without; `cached` None = the server
    told of none. `accepted` None = nothing was asked of the answers, `good` None = no objectives nor checks.
    `good_tokens` are those of good answers, else of accepted ones, else of all ok ones. `energy_j` None = not measured.
    """

    seconds: float
    busy_seconds: float
    ended: int
    ok: int
    accepted: int | None
    good: int | None
    input: float
    cached: float | None
    output: float
    good_tokens: float
    uncounted: int
    energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of the bill: `value` in `unit`, None = not to be known, for the reason in `missing`."""

    name: str
    value: float | None
    unit: str
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """All figures, and what had to be left out or assumed."""

    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def used(run: RunData, telemetry: Telemetry) -> Used:
    """Return what the measured phases of a run took and gave."""
    c, windows = run.columns, list(phase_windows(run, measured_only=True).values())
    rows = run.measured & (c.ok | c.failed)
    checked, judged = rows & ~np.isnan(c.accepted), rows & ~np.isnan(c.good)
    accepted = int(np.sum(c.accepted[checked] == 1.0)) if checked.any() else None
    good = int(np.sum(c.good[judged] == 1.0)) if judged.any() else None
    useful = c.good == 1.0 if good is not None else (c.accepted == 1.0 if accepted is not None else c.ok)
    cached = c.cached_tokens[rows]
    return Used(
        seconds=sum(window.seconds for window in windows),
        busy_seconds=sum(_busy_seconds(c.sent_ns, c.end_ns, window) for window in windows),
        ended=int(rows.sum()),
        ok=int(np.sum(rows & c.ok)),
        accepted=accepted,
        good=good,
        input=float(np.nansum(c.input_tokens[rows])),
        cached=None if np.isnan(cached).all() else float(np.nansum(cached)),
        output=float(np.nansum(c.output_tokens[rows])),
        good_tokens=float(np.nansum(c.output_tokens[rows & useful])),
        uncounted=int(np.sum(rows & (np.isnan(c.input_tokens) | np.isnan(c.output_tokens)))),
        energy_j=_energy_j(telemetry, windows),
    )


def bill(took: Used, prices: Prices) -> Bill:
    """Return what answers, accepted answers and a million good tokens cost, and the energy of each."""
    total, parts = _total(took, prices)
    energy_j = took.energy_j if prices.power_w is None else prices.power_w * took.seconds
    lines = [*parts, *_each("cost", total, took, prices.currency, "")]
    wh = None if energy_j is None else energy_j / 3600
    why = "no power was read; give SERVEBENCH_METRICS_URLS a DCGM or node exporter, or --power-watts"
    lines += [Line(name="energy in all", value=wh, unit="Wh", missing=why), *_each("energy", wh, took, "Wh", why)]
    return Bill(lines=tuple(lines), notes=tuple(_notes(took, prices)))


def _total(took: Used, prices: Prices) -> tuple[float | None, list[Line]]:
    """Return the whole cost and its parts; None where no price was given or a priced number is not known."""
    money = prices.currency
    parts = []
    if prices.by_token:
        cached = took.cached or 0.0
        at_cached = prices.input_tokens if prices.cached_tokens is None else prices.cached_tokens
        for name, tokens, price in (
            ("input tokens", took.input - cached, prices.input_tokens),
            ("cached tokens", cached, at_cached),
            ("output tokens", took.output, prices.output_tokens),
        ):
            if price is not None:
                parts.append(Line(name=name, value=tokens / MILLION * price, unit=money))
        if prices.request is not None:
            parts.append(Line(name="requests", value=took.ended * prices.request, unit=money))
    if prices.hour is not None:
        hours = took.seconds / 3600
        idle = 1 - took.busy_seconds / took.seconds if took.seconds else 0.0
        parts.append(Line(name="hardware", value=hours * prices.hour, unit=money))
        parts.append(Line(name="of it while nothing was asked", value=hours * prices.hour * idle, unit=money))
    joules = took.energy_j if prices.power_w is None else prices.power_w * took.seconds
    if prices.kwh is not None:
        missing = "" if joules is not None else "no power was read"
        value = None if joules is None else joules / J_PER_KWH * prices.kwh
        parts.append(Line(name="electricity", value=value, unit=money, missing=missing))
    counted = [part for part in parts if not part.name.startswith("of it")]
    if not counted or any(part.value is None for part in counted):
        return None, parts
    total = sum(part.value or 0.0 for part in counted)
    return total, [*parts, Line(name="in all", value=total, unit=money)]


def _each(what: str, total: float | None, took: Used, unit: str, why: str) -> Iterator[Line]:
    """Yield a total per answer, accepted answer and million good tokens."""
    reason = why or "no price was given that covers it"
    for name, number, unknown in (
        ("answer", took.ok, ""),
        ("accepted answer", took.accepted, "nothing was asked of the answers (accept:)"),
        ("good answer", took.good, "the workload has neither objectives nor checks"),
    ):
        value = None if total is None or not number else total / number
        missing = unknown if number is None else ("there was none" if number == 0 else reason)
        yield Line(name=f"{what} per {name}", value=value, unit=unit, missing="" if value is not None else missing)
    tokens = took.good_tokens
    value = None if total is None or not tokens else total / tokens * MILLION
    missing = "" if value is not None else (reason if tokens else "no good answer's tokens are known")
    yield Line(name=f"{what} per million good output tokens", value=value, unit=unit, missing=missing)


def _notes(took: Used, prices: Prices) -> Iterator[str]:
    if not took.seconds:
        yield "the run has no measured time"
        return
    if prices.by_token and took.uncounted:
        yield f"{took.uncounted:,} of {took.ended:,} requests have no token counts: what they cost is not in the sums"
    if prices.by_token and prices.cached_tokens is not None and took.cached is None:
        yield "the server told of no cached tokens: all input is charged at the full price"
    if prices.by_token and prices.cached_tokens is None and took.cached:
        yield f"{took.cached:,.0f} cached tokens are charged at the full price: no --cached-price was given"
    failed = took.ended - took.ok
    if failed:
        yield f"{failed:,} failed requests are paid for by the answers that came"
    if prices.hour is not None:
        idle = 1 - took.busy_seconds / took.seconds
        yield f"{100 * idle:.1f} % of the measured time had no request under way; it is paid for as well"


def _busy_seconds(start_ns: FloatArray, end_ns: FloatArray, window: Window) -> float:
    """Return how long at least one request was under way in a window."""
    known = ~np.isnan(start_ns) & ~np.isnan(end_ns)
    start = np.clip(start_ns[known], window.start_ns, window.end_ns)
    end = np.clip(end_ns[known], window.start_ns, window.end_ns)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    if not len(start):
        return 0.0
    before = np.concatenate(([window.start_ns], reach[:-1]))
    return float(np.sum(np.maximum(0.0, reach - np.maximum(start, before)))) / NS_PER_S


def _energy_j(telemetry: Telemetry, windows: list[Window]) -> float | None:
    """Return the energy of all devices and packages over the windows, None where none was read in one of them."""
    tracks = [
        (kind, source.tracks[kind])
        for source in telemetry.hardware
        for kind in (POWER, JOULES)
        if kind in source.tracks
    ]
    total = 0.0
    for window in windows:
        found = [_joules(kind, track, window) for kind, track in tracks]
        known = [value for value in found if value is not None]
        if not known:
            return None
        total += sum(known)
    return total if windows else None


def _joules(kind: str, track: Track, window: Window) -> float | None:
    inside = covered(track, window)
    if inside is None:
        return None
    scale = window.seconds / inside.seconds
    if kind == JOULES:
        grown = track.growth(window)
        return None if grown is None else grown * scale
    rows = (track.t_ns >= inside.start_ns) & (track.t_ns <= inside.end_ns)
    return float(np.trapezoid(track.value[rows], track.t_ns[rows])) / NS_PER_S * scale
