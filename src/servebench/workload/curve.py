"""Know a rate over time as a piecewise linear curve, its integral, and the inverse of that.

The integral of a piecewise linear rate is piecewise quadratic; its inverse has a closed form.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.units import NS_PER_S
from servebench.workload.model import Segment

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Due(NamedTuple):
    """Arrivals of one phase: int64 ns from its start, sorted; int32 level of each, -1 = the phase has no levels."""

    offset_ns: Ints
    step: npt.NDArray[np.int32]


class Curve(NamedTuple):
    """Rate segments as columns. `mass` has one entry more than the others: the integral up to each border."""

    start_ns: Ints
    duration_ns: Ints
    rate_per_s: Floats
    slope_per_s2: Floats
    step: npt.NDArray[np.int32]
    mass: Floats

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "Curve":
        """Return the curve of a workload's segments."""
        steps = [-1 if segment.step is None else segment.step for segment in segments]
        return cls._built(
            np.array([segment.duration_ns for segment in segments], dtype=np.int64),
            np.array([segment.from_per_s for segment in segments], dtype=np.float64),
            np.array([segment.to_per_s for segment in segments], dtype=np.float64),
            np.array(steps, dtype=np.int32),
        )

    @classmethod
    def _built(cls, duration_ns: Ints, begin: Floats, end: Floats, step: npt.NDArray[np.int32]) -> "Curve":
        duration_s = duration_ns / NS_PER_S
        return cls(
            start_ns=np.cumsum(duration_ns) - duration_ns,
            duration_ns=duration_ns,
            rate_per_s=begin,
            slope_per_s2=np.divide(end - begin, duration_s, out=np.zeros_like(begin), where=duration_s > 0),
            step=step,
            mass=np.concatenate([[0.0], np.cumsum((begin + end) / 2 * duration_s)]),
        )

    @property
    def end_ns(self) -> int:
        """Length of the whole curve."""
        return int(self.duration_ns.sum())

    def scaled(self, factor: float) -> "Curve":
        """Return the curve with every rate times a factor."""
        return self._replace(
            rate_per_s=self.rate_per_s * factor, slope_per_s2=self.slope_per_s2 * factor, mass=self.mass * factor
        )

    def switched(self, borders_ns: Ints, *, begins_on: bool, factor: float) -> "Curve":
        """Return the curve with every rate times `factor` in on episodes and 0 in the others.

        Episodes alternate; `borders_ns` are their inner borders, sorted, inside the curve.
        """
        starts = np.union1d(self.start_ns, borders_ns)
        starts = starts[starts < self.end_ns]
        at = np.searchsorted(self.start_ns, starts, side="right") - 1
        # Segments without length share their start with the next one, which side=right finds.
        duration_ns = np.diff(np.concatenate([starts, [self.end_ns]]))
        is_on = (np.searchsorted(borders_ns, starts, side="right") % 2 == 0) == begins_on
        gain = np.where(is_on, factor, 0.0)
        begin = self.rate_per_s[at] + self.slope_per_s2[at] * ((starts - self.start_ns[at]) / NS_PER_S)
        end = begin + self.slope_per_s2[at] * (duration_ns / NS_PER_S)
        # A rate that falls to zero may end a rounding error below it.
        return self._built(duration_ns, np.maximum(begin, 0.0) * gain, np.maximum(end, 0.0) * gain, self.step[at])

    def inverse(self, units: Floats) -> Due:
        """Return the times at which the integral reaches `units`, each below the total."""
        # side=right steps over segments without mass, whose border is the same number twice.
        at = np.searchsorted(self.mass, units, side="right") - 1
        at = np.minimum(at, self._last_with_mass())
        rest = units - self.mass[at]
        rate = self.rate_per_s[at]
        under_root = np.maximum(rate * rate + 2 * self.slope_per_s2[at] * rest, 0.0)
        below = rate + np.sqrt(under_root)
        # The root of slope/2 x^2 + rate x = rest in the form that cancels nothing; 0/0 only at the segment's start.
        seconds = np.divide(2 * rest, below, out=np.zeros_like(rest), where=below > 0)
        inside = np.minimum((seconds * NS_PER_S).astype(np.int64), self.duration_ns[at] - 1)
        return Due(self.start_ns[at] + np.maximum(inside, 0), self.step[at])

    def _last_with_mass(self) -> int:
        gains = np.flatnonzero(np.diff(self.mass) > 0)
        return int(gains[-1]) if len(gains) else 0
