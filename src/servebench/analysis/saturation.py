"""Know at which rate a service saturates: the plateau of min(offered, c) over the levels of a staircase.

The first quarter of each level is left out, the rest is cut into slices; an interval comes from drawing slices anew
within each level. docs/methods.md has bias and coverage.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.analysis.numbers import bounds, significant
from servebench.analysis.source import RunData
from servebench.analysis.windows import Level, levels
from servebench.metrics.columns import FloatArray
from servebench.metrics.formulas import e2e_ns

LEAST_LEVELS = 6
SLICES = 6
_SETTLING = 0.25
_KEPT_UP = 0.95
_COLLAPSE = 0.95
_COPIES = 400
_WIDER = 1.25
"""The bootstrap half-width is multiplied by this; calibrated on simulated staircases."""
_SEED = 20_260_903
_SHORT = 100
"""Levels shorter than this many mean answers are noise."""


class Saturation(NamedTuple):
    """What a staircase says of one phase. Rates are per second.

    `plateau` with its 95 % interval is None where no two neighbouring levels fell behind (`departs` None too): then
    the service was not saturated up to `highest`. `collapse`: the last level achieved over 5 % less than the best.
    `short`: levels are shorter than 100 mean answers. `growing`: offered rates of the levels in which the queue grew.
    """

    phase: str
    highest: float
    plateau: float | None
    lo: float | None
    hi: float | None
    departs: float | None
    collapse: bool
    short: bool
    growing: tuple[float, ...]

    @property
    def sentence(self) -> str:
        """Return the finding in words."""
        if self.plateau is None or self.lo is None or self.hi is None:
            return f"Not saturated up to {significant(self.highest)} req/s (phase {self.phase})."
        text = (
            f"Saturates at {significant(self.plateau)} req/s {bounds(self.lo, self.hi)} (phase {self.phase}); answers "
            f"fall behind from {significant(self.departs)} req/s offered on."
        )
        if self.collapse:
            text += " Beyond that it answers less than at its best."
        return text + (" The levels are short for it: take it as a rough figure." if self.short else "")


def saturations(run: RunData) -> tuple[Saturation, ...]:
    """Return the finding of each measured phase that climbs at least six levels."""
    tracks: dict[str, list[Level]] = {}
    for level in levels(run):
        if level.measured and level.step is not None:
            tracks.setdefault(level.phase, []).append(level)
    climbs = ((phase, sorted(track, key=lambda level: level.offered_per_s)) for phase, track in tracks.items())
    return tuple(_saturation(run, phase, track) for phase, track in climbs if len(track) >= LEAST_LEVELS)


def _saturation(run: RunData, phase: str, track: Sequence[Level]) -> Saturation:
    offered, achieved = _slices(run, track)
    rates, done = offered.mean(axis=1), achieved.mean(axis=1)
    departs = departure(rates, done)
    best = int(done.argmax())
    collapse = bool(done[-1] < _COLLAPSE * done[best])
    found: tuple[float, float, float] | None = None
    if departs is not None:
        stop = best + 1 if collapse else len(rates)
        found = plateau_interval(offered[:stop], achieved[:stop])
    duration = e2e_ns(run.columns)[run.columns.ok]
    typical_s = float(np.nanmean(duration)) / 1e9 if len(duration) else 0.0
    return Saturation(
        phase=phase,
        highest=float(rates[-1]),
        plateau=found[0] if found else None,
        lo=found[1] if found else None,
        hi=found[2] if found else None,
        departs=None if departs is None else float(rates[departs]),
        collapse=collapse,
        short=min(level.window.seconds for level in track) < _SHORT * typical_s,
        growing=tuple(float(rate) for rate, grows in zip(rates, _grow(run, track), strict=True) if grows),
    )


def _slices(run: RunData, track: Sequence[Level]) -> tuple[FloatArray, FloatArray]:
    """Return offered and achieved rate per level and slice; failed answers count as achieved."""
    c = run.columns
    planned = np.sort(np.where(np.isnan(c.intended_ns), c.sent_ns, c.intended_ns))
    ended = np.sort(c.end_ns[c.ok | c.failed])
    offered, achieved = [], []
    for level in track:
        start, end = level.window
        edges = np.linspace(start + _SETTLING * (end - start), end, SLICES + 1)
        offered.append(np.diff(np.searchsorted(planned, edges)) / np.diff(edges / 1e9))
        achieved.append(np.diff(np.searchsorted(ended, edges)) / np.diff(edges / 1e9))
    return np.array(offered), np.array(achieved)


def departure(offered: FloatArray, achieved: FloatArray) -> int | None:
    """Return the first of two neighbouring levels that achieve less than 95 % of what was offered; None without."""
    behind = achieved < _KEPT_UP * offered
    both = np.flatnonzero(behind & np.append(behind[1:], False))
    return int(both[0]) if len(both) else None


def plateau(offered: FloatArray, achieved: FloatArray) -> FloatArray:
    """Return the c of the least squares of achieved = min(offered, c), for each row of curves (copies, levels)."""
    tried = np.linspace(0.3, 1.1, 400)[:, None, None] * achieved.max()
    squares = ((achieved - np.minimum(offered, tried)) ** 2).sum(axis=2)
    found: FloatArray = tried[:, 0, 0][squares.argmin(axis=0)]
    return found


def plateau_interval(offered: FloatArray, achieved: FloatArray) -> tuple[float, float, float]:
    """Return the plateau and its 95 % interval from rates per level and slice, shape (levels, slices)."""
    centre = float(plateau(offered.mean(axis=1)[None], achieved.mean(axis=1)[None])[0])
    rng = np.random.default_rng(_SEED)
    pick: npt.NDArray[np.int64] = rng.integers(0, offered.shape[1], (_COPIES, *offered.shape))
    copies = plateau(
        np.take_along_axis(offered[None], pick, axis=2).mean(axis=2),
        np.take_along_axis(achieved[None], pick, axis=2).mean(axis=2),
    )
    lo, hi = np.quantile(copies, (0.025, 0.975))
    half = _WIDER * float(hi - lo) / 2
    return centre, centre - half, centre + half


def _grow(run: RunData, track: Sequence[Level]) -> list[bool]:
    """Return for each level whether more requests were open at its end than chance explains."""
    c = run.columns
    sent, closed = np.sort(c.sent_ns), np.sort(np.nan_to_num(c.end_ns[~np.isnan(c.sent_ns)], nan=np.inf))
    found = []
    for level in track:
        start, end = level.window
        moments = np.array([start + _SETTLING * (end - start), end])
        before = np.searchsorted(sent, moments)
        opened = before - np.searchsorted(closed, moments)
        limit = max(3 * np.sqrt(max(float(opened[0]), 1.0)), 0.05 * float(before[1] - before[0]))
        found.append(bool(opened[1] - opened[0] > limit))
    return found
