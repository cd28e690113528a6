"""Know what a long steady phase did over time: drift with its interval, steps, stalls that come at regular times.

Series are logarithms of p50 and p95 per minute (wider windows where a minute has few answers). Neighbouring minutes
resemble each other, so every error is widened by the autocorrelation of the residuals. docs/methods.md has false alarms
and power.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from servebench.analysis.source import RunData
from servebench.analysis.trends import rhythm, rise, slope, steps
from servebench.analysis.windows import phase_windows
from servebench.metrics import METRIC_BY_NAME, Window, formulas
from servebench.metrics.columns import FloatArray

LEAST_SECONDS = 1_800
LEAST_WINDOWS = 24
LEAST_PER_WINDOW = 20
LEAST_GROWTH = 0.01
SOAK_METRICS: tuple[str, ...] = ("ttft", "tpot")
_STEADY_SHAPES = frozenset({"steady", "soak"})


class Drift(NamedTuple):
    """Change of one quantile of one metric over a phase, in shares of its value (0.1 = 10 % more at the end).

    lo and hi are None where too few independent windows are left. `steps_s`: moments at which the level jumps. `kind`:
    drift, step, drift or step (which of the two cannot be told), or none.
    """

    phase: str
    metric: str
    quantile: str
    window_s: float
    hours: float
    change: float
    lo: float | None
    hi: float | None
    steps_s: tuple[float, ...]
    kind: str

    @property
    def sentence(self) -> str:
        """Return the finding in words."""
        name = f"{METRIC_BY_NAME[self.metric].title} {self.quantile} in {self.phase}"
        if self.kind == "step":
            moments = ", ".join(f"{moment:.0f} s" for moment in self.steps_s)
            return f"{name} jumps at {moments}."
        bounds = "" if self.lo is None or self.hi is None else f" [{100 * self.lo:+.1f}, {100 * self.hi:+.1f}] %"
        text = f"{name} drifts by {100 * self.change:+.1f} %{bounds} in {self.hours:.1f} h"
        return text + ("; a step would explain it as well." if self.kind == "drift or step" else ".")


class Stalls(NamedTuple):
    """Gaps that come back at regular times, pooled over all requests of a phase."""

    phase: str
    period_s: float
    p_value: float
    events: int

    @property
    def sentence(self) -> str:
        """Return the finding in words."""
        return (
            f"Long gaps come back every {self.period_s:.1f} s in {self.phase} ({self.events} seconds with one, chance "
            f"of that without a rhythm {self.p_value:.1g})."
        )


class Growth(NamedTuple):
    """How the memory of one client process changed over a phase: bytes an hour, and with an interval as a share."""

    phase: str
    worker: str
    bytes_per_hour: float
    change: float
    lo: float | None
    hi: float | None

    @property
    def grows(self) -> bool:
        """Return whether the whole interval lies above 1 % over the phase."""
        return self.lo is not None and self.lo > LEAST_GROWTH

    @property
    def sentence(self) -> str:
        """Return the finding in words."""
        size = self.bytes_per_hour / 1e6
        return f"Memory of {self.worker} grows by {size:.3g} MB an hour in {self.phase} ({100 * self.change:+.1f} %)."


def steady_windows(run: RunData) -> dict[str, Window]:
    """Return the measured phases of even load that are long enough to judge over time."""
    shapes = {phase.name: phase.shape for phase in run.manifest.phases if not phase.steps}
    return {
        name: window
        for name, window in phase_windows(run, measured_only=True).items()
        if shapes.get(name) in _STEADY_SHAPES and window.seconds >= LEAST_SECONDS
    }


def drifts(run: RunData) -> tuple[Drift, ...]:
    """Return how each latency of each long steady phase changed."""
    return tuple(_drifts(run))


def _drifts(run: RunData) -> Iterator[Drift]:
    for phase, window in steady_windows(run).items():
        rows = np.equal(run.phase, phase) & ~run.spoiled
        for metric in SOAK_METRICS:
            values = formulas.REQUEST_FORMULAS[metric](run.columns)
            known = rows & ~np.isnan(values)
            if np.sum(known) < LEAST_PER_WINDOW * LEAST_WINDOWS:
                continue
            width_s = max(60.0, np.ceil(2 * LEAST_PER_WINDOW * window.seconds / float(np.sum(known))))
            starts, series = _per_window(run.columns.sent_ns[known], values[known], window, width_s)
            if len(starts) < LEAST_WINDOWS:
                continue
            for index, name in enumerate(("p50", "p95")):
                yield _judge((phase, metric, name), starts, series[:, index], width_s)


def _per_window(
    sent_ns: FloatArray, values: FloatArray, window: Window, width_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the start of each window with enough answers, and log p50 and log p95 there, shape (windows, 2)."""
    place = ((sent_ns - window.start_ns) / (width_s * 1e9)).astype(np.int64)
    order = np.argsort(place, kind="stable")
    found, first, counts = np.unique(place[order], return_index=True, return_counts=True)
    whole = (counts >= LEAST_PER_WINDOW) & ((found + 1) * width_s <= window.seconds + 1e-9) & (found >= 0)
    ordered = values[order]
    series = [
        np.log(np.maximum(np.quantile(ordered[start : start + count], (0.5, 0.95)), 1.0))
        for start, count in zip(first[whole], counts[whole], strict=True)
    ]
    starts: FloatArray = window.start_ns / 1e9 + found[whole].astype(np.float64) * width_s
    logs: FloatArray = np.array(series, np.float64).reshape(-1, 2)
    return starts, logs


def _judge(names: tuple[str, str, str], starts: FloatArray, series: FloatArray, width_s: float) -> Drift:
    change, lo, hi = slope(series)
    places = steps(series)
    certain = lo is not None and hi is not None and (lo > 0 or hi < 0)
    return Drift(
        phase=names[0],
        metric=names[1],
        quantile=names[2],
        window_s=width_s,
        hours=float(starts[-1] - starts[0] + width_s) / 3600,
        change=change,
        lo=lo,
        hi=hi,
        steps_s=tuple(float(starts[place]) for place in places),
        kind=_kind(series, places, certain=certain),
    )


def _kind(series: FloatArray, places: list[int], *, certain: bool) -> str:
    """Return what explains a series better, a line or its steps."""
    if not places or not certain:
        return "step" if places else "drift" if certain else "none"
    x = np.arange(len(series))
    line = series - np.polyval(np.polyfit(x, series, 1), x)
    jumps = np.concatenate([piece - piece.mean() for piece in np.split(series, places)])
    a, b = float(line @ line), float(jumps @ jumps)
    if abs(a - b) < 0.1 * max(a, b):
        return "drift or step"
    return "drift" if a < b else "step"


def growths(run: RunData) -> tuple[Growth, ...]:
    """Return how the memory of each worker changed in each long steady phase."""
    health, found = run.health, []
    for phase, window in steady_windows(run).items():
        inside = (health.t_ns > window.start_ns) & (health.t_ns <= window.end_ns) & (health.rss_bytes > 0)
        for worker in dict.fromkeys(health.worker[inside]):
            mine = inside & np.equal(health.worker, worker)
            minute = ((health.t_ns[mine] - window.start_ns) / 60e9).astype(np.int64)
            counts = np.bincount(minute)
            sums = np.bincount(minute, health.rss_bytes[mine])
            means: FloatArray = (sums[counts > 0] / counts[counts > 0]).astype(np.float64)
            if len(means) < LEAST_WINDOWS:
                continue
            change, lo, hi = rise(means / means[0])
            per_hour = float(means[0]) * change / (len(means) / 60)
            found.append(Growth(phase, str(worker), per_hour, change, lo, hi))
    return tuple(found)


def periodic_stalls(run: RunData) -> tuple[Stalls, ...]:
    """Return the rhythm of long gaps of each long steady phase that has one."""
    found = []
    for phase, window in steady_windows(run).items():
        first, last = int(window.start_ns // 1e9), int(window.end_ns // 1e9)
        largest = run.flow.longest_gap_ns[first:last]
        times = first + np.flatnonzero(_outstanding(largest)).astype(np.float64)
        period, p_value = rhythm(times - first, float(last - first))
        if p_value < 0.01:
            found.append(Stalls(phase, period, p_value, len(times)))
    return tuple(found)


def _outstanding(largest_ns: FloatArray) -> FloatArray:
    """Return which seconds have a gap far beyond the usual largest gap of a second."""
    seen = largest_ns > 0
    if not seen.any():
        return np.zeros(len(largest_ns))
    logs = np.log(np.where(seen, largest_ns, 1.0))
    middle = float(np.median(logs[seen]))
    spread = 1.4826 * float(np.median(np.abs(logs[seen] - middle)))
    return (seen & (logs > middle + 4 * spread)).astype(np.float64)
