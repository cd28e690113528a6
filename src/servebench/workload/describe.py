"""Know how to sum up a schedule: what would be sent, phase by phase.

Dispersion is the variance of the counts per window over their mean: 1 for Poisson arrivals at any window, 0 for
constant ones. Only whole windows of a phase count.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from servebench.core.units import NS_PER_S
from servebench.workload.lengths import NONE
from servebench.workload.schedule import PhasePlan, Schedule

WINDOWS_S = (1, 10, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSummary:
    """Token lengths asked for. None in place of this: none was asked for."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSummary:
    """One phase of a schedule.

    `sessions` counts what arrives by itself: requests, or conversations, whose later turns follow answers and have no
    planned time. `rate_per_s` is sessions over the length of the phase, and all about gaps is about them.
    `gap_cv` is the standard deviation of the gaps over their mean, None
    below two gaps or when all are 0. `dispersion` is by window in s; None with fewer than two whole windows or no
    request. `prompts` counts different prompts; `repeats` requests whose prompt and input length came before in the
    schedule, so that a prefix cache may know them whole.
    """

    name: str
    shape: str
    measured: bool
    start_ns: int
    end_ns: int
    n: int
    sessions: int
    rate_per_s: float
    gap_cv: float | None
    dispersion: dict[int, float | None]
    input_tokens: LengthSummary | None
    max_tokens: LengthSummary | None
    prompts: int
    repeats: int


def describe(schedule: Schedule) -> tuple[PhaseSummary, ...]:
    """Return one summary per phase, in order."""
    repeats = _repeats(schedule)
    edges = np.cumsum([0, *(phase.planned for phase in schedule.phases)])
    return tuple(
        _phase(schedule, phase, slice(int(first), int(last)), repeats)
        for phase, first, last in zip(schedule.phases, edges[:-1], edges[1:], strict=True)
    )


def gap_cv(times_ns: npt.NDArray[np.int64]) -> float | None:
    """Return the coefficient of variation of the gaps between sorted times; None below two gaps or when all are 0."""
    gaps = np.diff(times_ns)
    if len(gaps) < 2 or not gaps.any():
        return None
    return float(np.std(gaps) / np.mean(gaps))


def dispersion(offset_ns: npt.NDArray[np.int64], duration_ns: int, window_ns: int) -> float | None:
    """Return variance over mean of the counts in the whole windows of [0, duration).

    None with fewer than two windows or nothing in them.
    """
    windows = duration_ns // window_ns
    if windows < 2:
        return None
    numbers = offset_ns[offset_ns < windows * window_ns] // window_ns
    counts = np.bincount(numbers, minlength=windows)
    return float(np.var(counts, ddof=1) / np.mean(counts)) if counts.any() else None


def _phase(schedule: Schedule, phase: PhasePlan, rows: slice, repeats: npt.NDArray[np.bool_]) -> PhaseSummary:
    times_ns = schedule.due_ns[rows][schedule.turn[rows] == 0] - phase.start_ns
    duration_ns = phase.end_ns - phase.start_ns
    return PhaseSummary(
        name=phase.name,
        shape=phase.shape,
        measured=phase.measured,
        start_ns=phase.start_ns,
        end_ns=phase.end_ns,
        n=phase.planned,
        sessions=len(times_ns),
        rate_per_s=len(times_ns) * NS_PER_S / duration_ns,
        gap_cv=gap_cv(times_ns),
        dispersion={window: dispersion(times_ns, duration_ns, window * NS_PER_S) for window in WINDOWS_S},
        input_tokens=_lengths(schedule.input_tokens[rows]),
        max_tokens=_lengths(schedule.max_tokens[rows]),
        prompts=len(np.unique(schedule.prompt_id[rows])),
        repeats=int(np.count_nonzero(repeats[rows])),
    )


def _lengths(column: npt.NDArray[np.int32]) -> LengthSummary | None:
    asked = column[column != NONE]
    if not len(asked):
        return None
    p50, p90, p99 = (float(value) for value in np.quantile(asked, [0.5, 0.9, 0.99]))
    total = int(asked.sum(dtype=np.int64))
    return LengthSummary(mean=total / len(asked), p50=p50, p90=p90, p99=p99, max=int(asked.max()), total=total)


def _repeats(schedule: Schedule) -> npt.NDArray[np.bool_]:
    """Return which requests ask for a prompt at a length that came before."""
    pairs = np.stack([schedule.prompt_id, schedule.input_tokens.astype(np.int64)], axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    repeats = np.ones(len(schedule), dtype=np.bool_)
    repeats[first] = False
    return repeats
