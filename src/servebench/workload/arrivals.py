"""Know when requests are due: arrivals of a process whose rate follows a curve.

Time rescaling: if u_1 < u_2 < ... are arrivals of a process with rate one, then t_k = L^-1(u_k) are arrivals of the
same process with rate r(t), where L(t) is the integral of r from 0 to t. The rate is piecewise linear, so L is
piecewise quadratic and its inverse has a closed form; a stretch of rate zero has no mass: no arrival falls into it.

constant: u_k = k for k = 0, 1, ..., so the first arrival is at the very start of a phase, and a rate r over T seconds
gives r*T arrivals (rounded up) with equal gaps. poisson: u is the running sum of exponential gaps, the first of which
comes before the first arrival. Arrivals lie in [0, duration).

The same bytes must come out on every machine, for the schedule's hash: the draws are ziggurat tables, sums run in
order, and the inverse uses only + - * / sqrt, which IEEE 754 rounds exactly.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.units import NS_PER_S
from servebench.workload.model import Segment

CHUNK = 65_536
_WHOLE = 1e-9
"""An expected count this close above a whole number is that number: 0.1/s over 30 s is 3 arrivals, not 4."""


class Due(NamedTuple):
    """Arrivals of one phase: int64 ns from its start, sorted; int32 level of each, -1 = the phase has no levels."""

    offset_ns: npt.NDArray[np.int64]
    step: npt.NDArray[np.int32]


def arrivals(
    process: Literal["constant", "poisson"], segments: Sequence[Segment], generator: np.random.Generator
) -> Due:
    """Return the arrivals of a process over rate segments; `generator` is not used by `constant`."""
    curve = _Curve.of(segments)
    total = float(curve.mass[-1])
    units = _constant_units(total) if process == "constant" else _poisson_units(total, generator)
    return curve.inverse(units)


def expected_count(segments: Sequence[Segment]) -> float:
    """Return the integral of the rate: the mean number of arrivals."""
    return float(_Curve.of(segments).mass[-1])


def _constant_units(total: float) -> npt.NDArray[np.float64]:
    return np.arange(max(int(np.ceil(total - _WHOLE)), 0), dtype=np.float64)


def _poisson_units(total: float, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    chunks: list[npt.NDArray[np.float64]] = []
    reached = 0.0
    while reached < total:
        # The chunk's size is fixed: the draws must not depend on how many are wanted.
        units = reached + np.cumsum(generator.standard_exponential(CHUNK))
        chunks.append(units)
        reached = float(units[-1])
    if not chunks:
        return np.empty(0, dtype=np.float64)
    units = np.concatenate(chunks)
    return units[: np.searchsorted(units, total, side="left")]


class _Curve(NamedTuple):
    """Rate segments as columns. `mass` has one entry more than the others: the integral up to each border."""

    start_ns: npt.NDArray[np.int64]
    duration_ns: npt.NDArray[np.int64]
    rate_per_s: npt.NDArray[np.float64]
    slope_per_s2: npt.NDArray[np.float64]
    step: npt.NDArray[np.int32]
    mass: npt.NDArray[np.float64]

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "_Curve":
        duration_ns = np.array([segment.duration_ns for segment in segments], dtype=np.int64)
        begin = np.array([segment.from_per_s for segment in segments], dtype=np.float64)
        end = np.array([segment.to_per_s for segment in segments], dtype=np.float64)
        duration_s = duration_ns / NS_PER_S
        steps = [-1 if segment.step is None else segment.step for segment in segments]
        return cls(
            start_ns=np.cumsum(duration_ns) - duration_ns,
            duration_ns=duration_ns,
            rate_per_s=begin,
            slope_per_s2=np.divide(end - begin, duration_s, out=np.zeros_like(begin), where=duration_s > 0),
            step=np.array(steps, dtype=np.int32),
            mass=np.concatenate([[0.0], np.cumsum((begin + end) / 2 * duration_s)]),
        )

    def inverse(self, units: npt.NDArray[np.float64]) -> Due:
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
