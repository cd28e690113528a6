"""Know when requests are due: arrivals of a process whose rate follows a curve.

Time rescaling: if u_1 < u_2 < ... are arrivals of a process with rate one, then t_k = L^-1(u_k) are arrivals of the
same process with rate r(t), where L(t) is the integral of r from 0 to t (see `curve`). A stretch of rate zero has no
mass: no arrival falls into it.

constant: u_k = k for k = 0, 1, ..., so the first arrival is at the very start of a phase, and a rate r over T seconds
gives r*T arrivals (rounded up) with equal gaps. poisson, gamma, weibull: u is the running sum of gaps with mean one.
The first gap is what remains of a gap that an observer finds running (for length-biased gaps g: a uniform share of
g), so that the mean count is the integral of the rate from the first second on, however large the CV is. onoff: the
curve is switched off outside its episodes and raised inside. mix: the sum of independent clients.

The same bytes must come out on every machine, for the schedule's hash: the draws of exponentials are ziggurat tables,
sums run in order, and the inverse uses only + - * / sqrt, which IEEE 754 rounds exactly. Gamma and Weibull gaps go
through the C library's pow, whose last bit differs between machines: they are rounded to 2^-30 of the mean gap.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from servebench.workload.curve import Curve, Due
from servebench.workload.model import Arrivals, Segment

CHUNK = 65_536
SMALL_CHUNK = 4096
"""Draws at a time: of exponential gaps, and of the others, which cost more and of which often few are wanted."""
_WHOLE = 1e-9
"""An expected count this close above a whole number is that number: 0.1/s over 30 s is 3 arrivals, not 4."""
_EPISODES = 1024
_GRAIN = 2.0**30

Floats = npt.NDArray[np.float64]


def arrivals(law: Arrivals, segments: Sequence[Segment], generator: np.random.Generator) -> Due:
    """Return the arrivals of a process over rate segments; `generator` is not used by `constant`."""
    return _arrivals(law, Curve.of(segments), generator)


def expected_count(segments: Sequence[Segment]) -> float:
    """Return the integral of the rate: the mean number of arrivals."""
    return float(Curve.of(segments).mass[-1])


def unit_gaps(law: Arrivals, count: int, generator: np.random.Generator) -> Floats:
    """Return gaps with mean one of constant, poisson, gamma or weibull arrivals.

    Raises ValueError for onoff and mix, whose gaps do not stand alone.
    """
    if law.process == "constant":
        return np.ones(count, dtype=np.float64)
    if law.process == "poisson":
        return generator.standard_exponential(count)
    if law.process == "gamma" and law.cv is not None:
        shape = law.cv**-2
        return _rounded(generator.standard_gamma(shape, count) / shape)
    if law.process == "weibull" and law.shape is not None:
        return _rounded(generator.weibull(law.shape, count) / math.gamma(1 + 1 / law.shape))
    msg = f"{law.process} has no law of single gaps"
    raise ValueError(msg)


def weibull_cv(shape: float) -> float:
    """Return the coefficient of variation of a Weibull law with this shape."""
    # Over gamma values of their logarithm: gamma(1 + 2/shape) itself leaves the range of floats for small shapes.
    return math.sqrt(math.expm1(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)))


def weibull_shape(cv: float) -> float:
    """Return the Weibull shape that has a coefficient of variation; the inverse of `weibull_cv`, to 12 digits."""
    low, high = 0.05, 200.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        if weibull_cv(middle) > cv:
            low = middle
        else:
            high = middle
    return float(f"{math.sqrt(low * high):.12g}")


def _arrivals(law: Arrivals, curve: Curve, generator: np.random.Generator) -> Due:
    if law.process == "mix":
        return _mixed(law, curve, generator)
    if law.process == "onoff" and law.inside is not None:
        episodes, gaps = generator.spawn(2)
        borders, begins_on = _episodes(law, curve.end_ns, episodes)
        return _arrivals(law.inside, curve.switched(borders, begins_on=begins_on, factor=1 / _share_on(law)), gaps)
    total = float(curve.mass[-1])
    units = _constant_units(total) if law.process == "constant" else _units(law, total, generator)
    return curve.inverse(units)


def _mixed(law: Arrivals, curve: Curve, generator: np.random.Generator) -> Due:
    """Return the sum of the clients' arrivals, in order of time; at one time in the order of the clients."""
    total = sum(client.weight for client in law.clients)
    parts = [
        _arrivals(client.arrivals, curve.scaled(client.weight / total), own)
        for client, own in zip(law.clients, generator.spawn(len(law.clients)), strict=True)
    ]
    offset_ns = np.concatenate([part.offset_ns for part in parts])
    order = np.argsort(offset_ns, kind="stable")
    return Due(offset_ns[order], np.concatenate([part.step for part in parts])[order])


def _constant_units(total: float) -> Floats:
    return np.arange(max(int(np.ceil(total - _WHOLE)), 0), dtype=np.float64)


def _units(law: Arrivals, total: float, generator: np.random.Generator) -> Floats:
    """Return the running sum of unit gaps below `total`."""
    first = _first_gap(law, generator)
    chunks = [] if first is None else [np.array([first], dtype=np.float64)]
    reached = 0.0 if first is None else first
    while reached < total:
        # The chunk's size is fixed: the draws must not depend on how many are wanted.
        chunks.append(reached + np.cumsum(unit_gaps(law, CHUNK if first is None else SMALL_CHUNK, generator)))
        reached = float(chunks[-1][-1])
    units = np.concatenate(chunks) if chunks else np.empty(0, dtype=np.float64)
    return units[: np.searchsorted(units, total, side="left")]


def _first_gap(law: Arrivals, generator: np.random.Generator) -> float | None:
    """Return what an observer who comes in the middle of the process waits for the first arrival.

    None for poisson: the rest of an exponential gap is like a whole one, so no other first gap is wanted.
    """
    if law.process == "gamma" and law.cv is not None:
        shape = law.cv**-2
        found = generator.standard_gamma(shape + 1) / shape
    elif law.process == "weibull" and law.shape is not None:
        found = generator.standard_gamma(1 + 1 / law.shape) ** (1 / law.shape) / math.gamma(1 + 1 / law.shape)
    else:
        return None
    return float(np.rint(found * generator.random() * _GRAIN) / _GRAIN)


def _share_on(law: Arrivals) -> float:
    on_ns, off_ns = law.on_ns or 0, law.off_ns or 0
    return on_ns / (on_ns + off_ns)


def _episodes(law: Arrivals, duration_ns: int, generator: np.random.Generator) -> tuple[npt.NDArray[np.int64], bool]:
    """Return where episodes end inside [0, duration), and whether the first one is on.

    The first is on with the share of time that is on; how long it lasts from there is exponential like all others.
    """
    begins_on = bool(generator.random() < _share_on(law))
    on_ns, off_ns = float(law.on_ns or 0), float(law.off_ns or 0)
    means = np.array([on_ns, off_ns] if begins_on else [off_ns, on_ns])
    ends: list[Floats] = []
    reached = 0.0
    while reached < duration_ns:
        lengths = generator.standard_exponential((_EPISODES, 2)) * means
        ends.append(reached + np.cumsum(lengths.ravel()))
        reached = float(ends[-1][-1])
    if not ends:
        return np.empty(0, dtype=np.int64), begins_on
    borders = np.concatenate(ends).astype(np.int64)
    return borders[: np.searchsorted(borders, duration_ns, side="left")], begins_on


def _rounded(gaps: Floats) -> Floats:
    rounded: Floats = np.rint(gaps * _GRAIN) / _GRAIN
    return rounded
