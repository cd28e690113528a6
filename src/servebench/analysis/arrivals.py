"""Know whether the load that was sent is the load that was planned: rate, regularity, dispersion at three scales."""

from typing import NamedTuple

import numpy as np

from servebench.analysis.numbers import plain
from servebench.analysis.source import RunData
from servebench.analysis.windows import phase_windows
from servebench.metrics.columns import FloatArray

SCALES_S: tuple[int, ...] = (1, 10, 60)
CV_TOLERANCE = 0.02
IDC_TOLERANCE = 0.05
LAG_TOLERANCE = 0.1
_LEAST_WINDOWS = 10


class Regularity(NamedTuple):
    """One series of times: per second, variation of its gaps (1 = Poisson), dispersion of its counts at SCALES_S.

    NaN where there are too few times or windows.
    """

    per_s: float
    cv: float
    idc: tuple[float, ...]


class Arrivals(NamedTuple):
    """Planned and sent load of one phase. `worst`: largest difference of requests planned and sent up to a moment.

    `lag_p99_ms`: of sent - intended. `mean_gap_ms` of the plan. Shed requests are planned and not sent.
    """

    phase: str
    planned: Regularity
    sent: Regularity
    planned_n: int
    sent_n: int
    worst: int
    lag_p99_ms: float
    mean_gap_ms: float

    def record(self) -> dict[str, str | int | float | None]:
        """Return a plain object for JSON and CSV."""
        found: dict[str, str | int | float | None] = {"phase": self.phase}
        for name, one, n in (("planned", self.planned, self.planned_n), ("sent", self.sent, self.sent_n)):
            found |= {f"{name}_n": n, f"{name}_per_s": plain(one.per_s), f"{name}_cv": plain(one.cv)}
            found |= {f"{name}_idc_{s}s": plain(value) for s, value in zip(SCALES_S, one.idc, strict=True)}
        return found | {"worst_difference": self.worst, "send_lag_p99_ms": plain(self.lag_p99_ms)}

    @property
    def faults(self) -> tuple[str, ...]:
        """Return what differs by more than its tolerance, in words."""
        found = []
        if _differs(self.sent.cv, self.planned.cv, CV_TOLERANCE):
            found.append(f"CV of gaps {_figure(self.sent.cv)}, planned {_figure(self.planned.cv)}")
        for scale, sent, planned in zip(SCALES_S, self.sent.idc, self.planned.idc, strict=True):
            if _differs(sent, planned, IDC_TOLERANCE):
                found.append(f"dispersion at {scale} s {_figure(sent)}, planned {_figure(planned)}")
        if self.lag_p99_ms > max(1.0, LAG_TOLERANCE * self.mean_gap_ms):
            found.append(f"send lag p99 {self.lag_p99_ms:.3g} ms at a mean gap of {self.mean_gap_ms:.3g} ms")
        return tuple(found)

    @property
    def sentence(self) -> str | None:
        """Return what to say, None when the load was as planned."""
        faults = self.faults
        if not faults:
            return None
        return (
            f"load of phase {self.phase} was sent other than planned: {'; '.join(faults)}. Add workers: --workers N, "
            "or free the machine"
        )


def _figure(value: float) -> str:
    """Return three digits; whole ns leave constant gaps a variation of some 1e-9, which is none."""
    return f"{0.0 if abs(value) < 5e-4 else value:.3g}"


def _differs(sent: float, planned: float, tolerance: float) -> bool:
    """Return whether two numbers differ; below 1 (more even than Poisson) the tolerance is that of 1."""
    return abs(sent - planned) > tolerance * max(planned, 1.0)


def arrivals(run: RunData) -> tuple[Arrivals, ...]:
    """Return planned against sent of each measured phase that has a schedule and two requests."""
    found = []
    for name, window in phase_windows(run, measured_only=True).items():
        mine = np.equal(run.phase, name) & ~np.isnan(run.columns.intended_ns) & (run.attempt == 0)
        mine &= run.columns.intended_ns < window.end_ns
        intended, sent = run.columns.intended_ns[mine], run.columns.sent_ns[mine]
        known = ~np.isnan(sent)
        if np.sum(known) < 2 or len(intended) < 2:
            continue
        lag = (sent - intended)[known] / 1e6
        plan, real = np.sort(intended), np.sort(sent[known])
        found.append(
            Arrivals(
                phase=name,
                planned=regularity(plan, window.start_ns, window.seconds),
                sent=regularity(real, window.start_ns, window.seconds),
                planned_n=len(plan),
                sent_n=len(real),
                worst=_worst(plan, real),
                lag_p99_ms=float(np.quantile(lag, 0.99)),
                mean_gap_ms=1e3 * window.seconds / len(plan),
            )
        )
    return tuple(found)


def regularity(times_ns: FloatArray, start_ns: float, seconds: float) -> Regularity:
    """Return rate, CV and dispersion of sorted times within a window."""
    gaps = np.diff(times_ns)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    cv = float(gaps.std()) / mean if mean > 0 else float("nan")
    per_s = len(times_ns) / seconds if seconds > 0 else float("nan")
    return Regularity(per_s, cv, tuple(_dispersion(times_ns, start_ns, seconds, scale) for scale in SCALES_S))


def _dispersion(times_ns: FloatArray, start_ns: float, seconds: float, scale_s: int) -> float:
    """Return variance / mean of the counts in whole windows; NaN below ten windows or without a request."""
    count = int(seconds // scale_s)
    if count < _LEAST_WINDOWS:
        return float("nan")
    counts, _ = np.histogram(times_ns, bins=start_ns + 1e9 * scale_s * np.arange(count + 1))
    mean = float(counts.mean())
    return float(counts.var(ddof=1)) / mean if mean > 0 else float("nan")


def _worst(planned: FloatArray, sent: FloatArray) -> int:
    """Return the largest |planned up to t - sent up to t|."""
    moments = np.concatenate((planned, sent))
    difference = np.searchsorted(planned, moments, side="right") - np.searchsorted(sent, moments, side="right")
    return int(np.abs(difference).max())
