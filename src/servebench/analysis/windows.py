"""Know the stretches of a run that numbers are about: phases as they ran, and the load levels in them.

A row belongs to the phase of its intended time (column `phase`), so its latency is found there however late it was
sent or ended; `sent_outside` counts such rows. Rates count what happens inside the half-open window of the phase.
"""

from typing import NamedTuple

import numpy as np

from servebench.analysis.source import RunData
from servebench.metrics.columns import BoolArray, Window, distinct
from servebench.shards.manifest import PhaseRecord


class Level(NamedTuple):
    """A stretch of one phase at one offered load; `step` None where the phase has no levels."""

    phase: str
    step: int | None
    window: Window
    offered_per_s: float
    measured: bool


def end_of_load_ns(run: RunData) -> float:
    """Return when no more requests were planned: the stop, else the last thing that any row tells of.

    inf where neither is known.
    """
    if run.manifest.stop_ns is not None:
        return float(run.manifest.stop_ns)
    if run.manifest.stop_cause is not None or not len(run.seq):
        return float("inf")
    c = run.columns
    return float(np.nanmax(np.concatenate((c.dispatched_ns, c.sent_ns, c.intended_ns, c.end_ns)), initial=0.0))


def window_of(phase: PhaseRecord, end_ns: float) -> Window | None:
    """Return the part of a phase before `end_ns`, None where it never began.

    A phase whose end nobody wrote down (its master died) lasts until `end_ns`.
    """
    end = min(float(phase.end_ns), end_ns) if phase.end_ns > phase.start_ns else end_ns
    return Window(float(phase.start_ns), end) if end > phase.start_ns else None


def phase_windows(run: RunData, *, measured_only: bool = False) -> dict[str, Window]:
    """Return the window of each phase that ran, in order."""
    end = end_of_load_ns(run)
    found = {phase.name: window_of(phase, end) for phase in run.manifest.phases if phase.measured or not measured_only}
    return {name: window for name, window in found.items() if window is not None}


def levels(run: RunData) -> tuple[Level, ...]:
    """Return the load levels of all phases that ran; a phase without steps is one level at its mean planned rate."""
    end = end_of_load_ns(run)
    found: list[Level] = []
    for phase in run.manifest.phases:
        for step in phase.steps:
            until = float(step.end_ns) if step.end_ns > step.start_ns else end
            window = Window(float(step.start_ns), min(until, end))
            if window.end_ns > window.start_ns:
                found.append(Level(phase.name, step.index, window, step.rate_per_s, phase.measured))
        whole = window_of(phase, end)
        if not phase.steps and whole is not None:
            found.append(Level(phase.name, None, whole, _mean_offered(run, phase, whole), phase.measured))
    return tuple(found)


def _mean_offered(run: RunData, phase: PhaseRecord, window: Window) -> float:
    """Return planned requests per second: by the plan if the phase ran whole, else by the rows of it."""
    whole = window.end_ns >= phase.end_ns
    rows = len(distinct(run.seq[run.phase == phase.name]))
    return (phase.planned if whole and phase.planned is not None else rows) / window.seconds


def rows_of(run: RunData, level: Level) -> BoolArray:
    """Return which rows were planned for a level."""
    mine: BoolArray = np.asarray(run.phase == level.phase, dtype=bool)
    return mine if level.step is None else mine & (run.step == level.step)


def sent_outside(run: RunData) -> int:
    """Return how many measured rows were sent outside the window of the phase they were planned for."""
    total = 0
    for name, window in phase_windows(run, measured_only=True).items():
        sent = run.columns.sent_ns[run.phase == name]
        total += int(np.sum((sent < window.start_ns) | (sent >= window.end_ns)))
    return total
