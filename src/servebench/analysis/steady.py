"""Know whether a steady phase was steady: where its settling seems to end, and how sure that is. Warns, never cuts.

MSER-5 on the end-to-end times in sending order, kept only where the part before differs from the rest by three standard
errors. Above 80 % of saturation one warning in five is false, which the words say.
"""

from typing import NamedTuple

import numpy as np

from servebench.analysis.source import RunData
from servebench.analysis.windows import phase_windows
from servebench.metrics import formulas
from servebench.metrics.columns import FloatArray

BATCH = 5
LEAST = 200
"""Answers that the check wants."""
_WARN_SHARE = 0.1
_SURE = 3.0
_STEADY_SHAPES = frozenset({"steady", "soak"})


class Settling(NamedTuple):
    """Finding about one phase: from which second of the run on it seems steady; None = nowhere."""

    phase: str
    begins_s: float | None

    @property
    def sentence(self) -> str:
        """Return what to say, with the way out."""
        if self.begins_s is None:
            return (
                f"phase {self.phase} never seems to become steady: it is too short for its load, or the load is more "
                "than the service can do"
            )
        return (
            f"phase {self.phase} seems to become steady only at {self.begins_s:.0f} s; declare a longer warm-up "
            "(measured: false), or the phase is too short for its load"
        )


def settling(run: RunData) -> tuple[Settling, ...]:
    """Return a finding for each measured steady phase that does not look steady from its start."""
    shapes = {phase.name: phase.shape for phase in run.manifest.phases if not phase.steps}
    found = []
    for name in phase_windows(run, measured_only=True):
        if shapes.get(name) not in _STEADY_SHAPES:
            continue
        sent, values = _series(run, name)
        cut = guarded_cut(values) if len(values) >= LEAST else 0
        if cut is None or cut > _WARN_SHARE * len(values):
            found.append(Settling(name, None if cut is None else float(sent[cut] / 1e9)))
    return tuple(found)


def _series(run: RunData, phase: str) -> tuple[FloatArray, FloatArray]:
    e2e = formulas.e2e_ns(run.columns)
    rows = np.flatnonzero(np.equal(run.phase, phase) & ~run.spoiled & ~np.isnan(e2e))
    rows = rows[np.argsort(run.columns.sent_ns[rows], kind="stable")]
    return run.columns.sent_ns[rows], e2e[rows]


def mser_cut(x: FloatArray) -> int | None:
    """Return where to cut so that the standard error of the rest is least; None = at the half, the run is too short."""
    count = len(x) // BATCH
    means = x[: count * BATCH].reshape(count, BATCH).mean(axis=1)
    left = count - np.arange(count - BATCH)
    sums, squares = (np.cumsum(part[::-1])[::-1][: count - BATCH] for part in (means, means**2))
    spread = (squares - sums**2 / left) / left**2
    half = count // 2
    place = int(spread[: half + 1].argmin())
    return None if place >= half else place * BATCH


def guarded_cut(x: FloatArray) -> int | None:
    """Return MSER's cut where what lies before it differs from the rest by three standard errors, else 0."""
    cut = mser_cut(x)
    if cut is None or cut < BATCH:
        return cut
    rest = x[cut:]
    size = len(rest) // 20
    variance = size * float(rest[: 20 * size].reshape(20, size).mean(axis=1).var(ddof=1))
    return cut if abs(float(x[:cut].mean() - rest.mean())) > _SURE * np.sqrt(variance / cut) else 0
