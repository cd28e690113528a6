"""Know how long a service takes to be as before after a spike of load.

Recovered is the start of the first two 5-s windows in a row whose median TTFT and open requests both lie within the
band of the calm windows before: below their 95th percentile. What never comes back is counted, never dropped.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from servebench.analysis.source import RunData, workload_of
from servebench.analysis.windows import phase_windows
from servebench.metrics import Window, formulas
from servebench.metrics.columns import FloatArray
from servebench.metrics.distributions import student_quantile

WINDOW_S = 5.0
IN_A_ROW = 2
LEAST_CALM = 24
"""Calm windows before the first spike that the band wants: two minutes."""
_LEFT_OUT_S = 30.0
_SPIKE = 1.3
"""A stretch is a spike when its rate is this much above the base."""
_LEAST_FOR_MEAN = 5


class Spike(NamedTuple):
    """One spike, times in s of the run clock; `until_s`: when the next one begins or the run ends."""

    phase: str
    start_s: float
    end_s: float
    until_s: float


class Recovery(NamedTuple):
    """How the spikes of a phase were got over. Times after the end of each spike, s; None = not before the next one.

    `mean_s` with its 95 % interval needs five spikes that were all got over. `refused` says why nothing was judged.
    """

    phase: str
    spikes: int
    times_s: tuple[float | None, ...]
    mean_s: float | None
    lo_s: float | None
    hi_s: float | None
    refused: str | None

    @property
    def sentence(self) -> str:
        """Return the finding in words."""
        if self.refused is not None:
            return f"Recovery after the spikes of {self.phase} is not judged: {self.refused}."
        lasting = sum(time is None for time in self.times_s)
        if lasting:
            return f"{lasting} of {self.spikes} spikes of {self.phase} were not got over before the next one."
        if self.mean_s is not None and self.lo_s is not None and self.hi_s is not None:
            return (
                f"After a spike of {self.phase} the service is as before in {self.mean_s:.0f} s "
                f"[{max(0.0, self.lo_s):.0f}, {self.hi_s:.0f}] ({self.spikes} spikes)."
            )
        each = ", ".join(f"{time:.0f}" for time in self.times_s if time is not None)
        return f"After a spike of {self.phase} the service is as before in {each} s, give or take {WINDOW_S:.0f} s."


def recoveries(run: RunData) -> tuple[Recovery, ...]:
    """Return how the spikes of each measured phase that has some were got over."""
    spikes = planned_spikes(run)
    found = []
    for phase in dict.fromkeys(spike.phase for spike in spikes):
        mine = [spike for spike in spikes if spike.phase == phase]
        found.append(_recovery(run, phase, mine))
    return tuple(found)


def planned_spikes(run: RunData) -> tuple[Spike, ...]:
    """Return the stretches of measured phases that were planned well above the rate before them."""
    workload, windows = workload_of(run.manifest), phase_windows(run, measured_only=True)
    found: list[Spike] = []
    for phase in workload.phases if workload else ():
        window = windows.get(phase.name)
        if window is None or len(phase.segments) < 2:
            continue
        ends = window.start_ns / 1e9 + np.cumsum([0.0, *(segment.duration_ns / 1e9 for segment in phase.segments)])
        base = phase.segments[0].from_per_s
        high = [s.step is None and s.from_per_s == s.to_per_s > _SPIKE * base for s in phase.segments]
        spans = [(start, end) for up, (start, end) in zip(high, pairwise(ends), strict=True) if up]
        if not spans:
            continue
        limits = [start for start, _ in spans[1:]] + [window.end_ns / 1e9]
        found += [
            Spike(phase.name, float(start), float(end), float(until))
            for (start, end), until in zip(spans, limits, strict=True)
            if end < window.end_ns / 1e9
        ]
    return tuple(found)


def _recovery(run: RunData, phase: str, spikes: Sequence[Spike]) -> Recovery:
    calm = _calm_start(run, phase)
    windows = int((spikes[0].start_s - calm - _LEFT_OUT_S) // WINDOW_S)
    if windows < LEAST_CALM:
        need = LEAST_CALM * WINDOW_S + _LEFT_OUT_S
        refused = (
            f"it needs {need:.0f} s of the base rate before the first spike, there are {spikes[0].start_s - calm:.0f}"
        )
        return Recovery(phase, len(spikes), (), None, None, None, refused)
    before = spikes[0].start_s - WINDOW_S * np.arange(windows, -1, -1.0)
    band = [float(np.quantile(series[~np.isnan(series)], 0.95)) for series in _observed(run, before) if len(series)]
    times = tuple(_time(run, spike, band) for spike in spikes)
    known = np.array([time for time in times if time is not None])
    if len(known) < max(_LEAST_FOR_MEAN, len(times)):
        return Recovery(phase, len(spikes), times, None, None, None, None)
    half = student_quantile(0.975, len(known) - 1) * float(known.std(ddof=1)) / np.sqrt(len(known))
    mean = float(known.mean())
    return Recovery(phase, len(spikes), times, mean, mean - float(half), mean + float(half), None)


def _calm_start(run: RunData, phase: str) -> float:
    """Return since when the rate has been that of the base of a phase: earlier phases of the same rate count."""
    workload, windows = workload_of(run.manifest), phase_windows(run)
    phases = list(workload.phases) if workload else []
    place = next(index for index, item in enumerate(phases) if item.name == phase)
    base = phases[place].segments[0].from_per_s
    while place and all(
        abs(rate / base - 1) < 0.1 for s in phases[place - 1].segments for rate in (s.from_per_s, s.to_per_s)
    ):
        if not phases[place - 1].segments or phases[place - 1].name not in windows:
            break
        place -= 1
    return windows[phases[place].name].start_ns / 1e9


def _observed(run: RunData, edges_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return median TTFT (ms, NaN without answers) and mean open requests of each window."""
    c, edges = run.columns, edges_s * 1e9
    ttft = formulas.ttft_ns(c)
    sent = c.sent_ns[~np.isnan(c.sent_ns)]
    end = np.nan_to_num(c.end_ns[~np.isnan(c.sent_ns)], nan=np.inf)
    median, opened = np.full(len(edges) - 1, np.nan), np.zeros(len(edges) - 1)
    for index, window in enumerate(Window(float(a), float(b)) for a, b in pairwise(edges)):
        inside = ttft[(c.sent_ns >= window.start_ns) & (c.sent_ns < window.end_ns) & ~np.isnan(ttft)]
        median[index] = np.median(inside) if len(inside) else np.nan
        overlap = np.minimum(end, window.end_ns) - np.maximum(sent, window.start_ns)
        opened[index] = np.sum(np.maximum(overlap, 0)) / (window.end_ns - window.start_ns)
    return median, opened


def _time(run: RunData, spike: Spike, band: Sequence[float]) -> float | None:
    """Return how long after its end a spike was got over; a window without requests is as calm as can be."""
    count = int((spike.until_s - spike.end_s) // WINDOW_S)
    if count < IN_A_ROW:
        return None
    median, opened = _observed(run, spike.end_s + WINDOW_S * np.arange(count + 1.0))
    good = (np.isnan(median) | (median <= band[0])) & (opened <= band[1])
    runs = np.logical_and.reduce([good[k : len(good) - IN_A_ROW + 1 + k] for k in range(IN_A_ROW)])
    first = np.flatnonzero(runs)
    return float(first[0] * WINDOW_S) if len(first) else None
