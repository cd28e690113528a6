"""Know what rows and phases cannot say without contradicting themselves; parts and manifests may be made by hand.

A run whose master died says less of its phases than its rows do; that is no contradiction.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from servebench.analysis.columns import floats
from servebench.analysis.numbers import count, significant
from servebench.analysis.source import RunData
from servebench.core.units import NS_PER_S
from servebench.shards.manifest import PhaseRecord, StepRecord

Span = TypeVar("Span", PhaseRecord, StepRecord)
_MOST_OUTSIDE = 0.5
"""Clocks of workers are put right after the plan, so single requests may lie a little beside their phase."""


def contradictions(run: RunData) -> tuple[str, ...]:
    """Return what makes the numbers of a run wrong whatever its rows are like; each with the way out."""
    return (*_of_phases(run.manifest.phases), *_of_rows(run))


def _of_phases(phases: Sequence[PhaseRecord]) -> Iterator[str]:
    """Yield what makes phases no partition of a run: a name twice, two phases or two levels at the same time."""
    for name, n in Counter(phase.name for phase in phases).items():
        if n > 1:
            yield f'{n} phases are named "{name}"; give each its own name in run.json'
    for one, other, shared in _overlaps(phases):
        yield (
            f"phases {one.name} and {other.name} overlap by {significant(shared)} s, which would count work twice; "
            "put their start_ns and end_ns in run.json right"
        )
    for phase in phases:
        for first, second, shared in _overlaps(phase.steps):
            yield (
                f"levels {first.index + 1} and {second.index + 1} of phase {phase.name} overlap by "
                f"{significant(shared)} s, which would count work twice; put their times in run.json right"
            )


def _overlaps(spans: Sequence[Span]) -> Iterator[tuple[Span, Span, float]]:
    """Yield two spans that follow each other and the seconds that they share."""
    written = sorted((span for span in spans if span.end_ns > span.start_ns), key=lambda span: span.start_ns)
    for one, other in pairwise(written):
        shared = min(one.end_ns, other.end_ns) - other.start_ns
        if shared > 0:
            yield one, other, shared / NS_PER_S


def _of_rows(run: RunData) -> Iterator[str]:
    """Yield what rows say of their phases that the phases do not say of themselves."""
    phases = {phase.name: phase for phase in run.manifest.phases}
    closed = run.manifest.stop_cause is not None
    # Later turns keep the phase of their conversation and follow the answer before them, past its end too.
    later = floats(run.table, "turn") > 0
    for name, n in sorted(Counter(run.phase.tolist()).items()):
        phase = phases.get(name)
        mine = run.phase == name
        if phase is None:
            if closed and run.measured[mine].any():
                yield f'{count(n)} rows are of a phase "{name}" that run.json does not name; put its phases right'
            continue
        other = int(np.sum(run.measured[mine] != phase.measured))
        if other:
            yield (
                f"{count(other)} rows of phase {name} say measured = {str(not phase.measured).lower()}, run.json says "
                f"{str(phase.measured).lower()}; put one of them right"
            )
        intended = run.columns.intended_ns[mine & ~later]
        outside = int(np.sum((intended < phase.start_ns) | (intended >= phase.end_ns)))
        if phase.end_ns > phase.start_ns and outside > _MOST_OUTSIDE * len(intended):
            yield (
                f"{count(outside)} of {count(len(intended))} requests of phase {name} were planned outside its time in "
                "run.json; put its start_ns and end_ns right"
            )
