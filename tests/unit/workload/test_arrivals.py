"""Arrivals keep their law: counts, gaps and dispersion against numpy's and the textbook's numbers."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from servebench.core.units import NS_PER_S
from servebench.workload.arrivals import CHUNK, arrivals
from servebench.workload.model import Segment

SEEDS = range(20)
MOST_MISSES = 4
"""Of 20 tests at the 5 % level, more than 4 fail with probability 0.3 % when the law holds."""


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def segment(seconds: float, start: float, end: float | None = None, step: int | None = None) -> Segment:
    return Segment(
        duration_ns=round(seconds * NS_PER_S), from_per_s=start, to_per_s=start if end is None else end, step=step
    )


def ks_distance_from_exponential(gaps: npt.NDArray[np.float64]) -> float:
    """sqrt(n) D against the exponential law with the sample's own mean."""
    n = len(gaps)
    law = 1 - np.exp(-np.sort(gaps) / gaps.mean())
    ranks = np.arange(1, n + 1) / n
    return float(math.sqrt(n) * max(np.max(ranks - law), np.max(law - ranks + 1 / n)))


@pytest.mark.parametrize(
    ("rate", "seconds", "count"), [(10.0, 3.0, 30), (1.1, 50.0, 55), (1 / 3, 30.0, 10), (7.0, 0.5, 4), (0.0, 5.0, 0)]
)
def test_constant_arrivals_stand_at_k_over_rate_and_end_before_the_phase_does(
    rate: float, seconds: float, count: int
) -> None:
    due = arrivals("constant", [segment(seconds, rate)], generator(0))
    expected = [int(k / rate * NS_PER_S) for k in range(count)]
    assert len(due.offset_ns) == count
    assert np.abs(due.offset_ns - np.array(expected, dtype=np.int64)).max(initial=0) <= 1
    assert (due.offset_ns < seconds * NS_PER_S).all()


def test_gaps_of_constant_arrivals_do_not_vary() -> None:
    gaps = np.diff(arrivals("constant", [segment(100, 7.3)], generator(0)).offset_ns)
    assert gaps.std() / gaps.mean() < 1e-8


def test_constant_arrivals_follow_a_ramp_by_its_integral() -> None:
    # From 0 to 10/s in 10 s the integral is t^2 / 2, so arrival k stands at sqrt(2 k).
    due = arrivals("constant", [segment(10, 0, 10)], generator(0))
    assert np.allclose(due.offset_ns / NS_PER_S, np.sqrt(2 * np.arange(50)), atol=1e-8)


def test_a_falling_ramp_to_zero_is_followed_to_its_end() -> None:
    # From 10 to 0/s in 10 s the integral is 10 t - t^2 / 2, reached k at 10 - sqrt(100 - 2 k).
    due = arrivals("constant", [segment(10, 10, 0)], generator(0))
    assert np.allclose(due.offset_ns / NS_PER_S, 10 - np.sqrt(100 - 2 * np.arange(50)), atol=1e-7)


@pytest.mark.parametrize("process", ["constant", "poisson"])
def test_no_arrival_falls_into_a_stretch_of_rate_zero(process: str) -> None:
    segments = [segment(2, 50), segment(3, 0), segment(2, 50), segment(1, 0)]
    times_s = arrivals(process, segments, generator(3)).offset_ns / NS_PER_S  # type: ignore[arg-type] # parametrised
    assert ((times_s < 2) | ((times_s >= 5) & (times_s < 7))).all()
    assert 150 < len(times_s) < 250


def test_each_arrival_carries_the_step_of_its_time() -> None:
    due = arrivals("poisson", [segment(4, 20, step=0), segment(4, 60, step=1), segment(4, 5)], generator(5))
    windows = np.minimum(due.offset_ns // (4 * NS_PER_S), 2)
    assert (due.step == np.array([0, 1, -1])[windows]).all()


def test_counts_of_poisson_arrivals_vary_as_their_mean() -> None:
    misses = 0
    for seed in SEEDS:
        n = len(arrivals("poisson", [segment(200, 20)], generator(seed)).offset_ns)
        misses += abs(n - 4000) > 1.96 * math.sqrt(4000)
    assert misses <= MOST_MISSES


def test_gaps_of_poisson_arrivals_are_exponential() -> None:
    cv_misses = ks_misses = 0
    for seed in SEEDS:
        gaps = np.diff(arrivals("poisson", [segment(200, 20)], generator(seed)).offset_ns).astype(np.float64)
        cv_misses += abs(gaps.std() / gaps.mean() - 1) > 1.96 / math.sqrt(len(gaps))
        ks_misses += ks_distance_from_exponential(gaps) > 1.087
    assert cv_misses <= MOST_MISSES
    assert ks_misses <= MOST_MISSES


def test_counts_of_poisson_arrivals_per_window_have_dispersion_one() -> None:
    misses = 0
    for seed in SEEDS:
        times_ns = arrivals("poisson", [segment(200, 20)], generator(seed)).offset_ns
        counts = np.bincount(times_ns // NS_PER_S, minlength=200)
        chi_square = 199 * counts.var(ddof=1) / counts.mean()
        misses += abs(chi_square - 199) > 1.96 * math.sqrt(2 * 199)
    assert misses <= MOST_MISSES


def test_poisson_arrivals_on_a_curve_are_exponential_on_the_curve_s_own_time() -> None:
    segments = [segment(60, 2, 30), segment(30, 30), segment(60, 30, 5), segment(30, 80)]
    borders_s = np.cumsum([0, 60, 30, 60, 30])
    grid_s = np.linspace(0, 180, 1_800_001)
    rate = np.interp(grid_s, borders_s[:4], [2.0, 30.0, 30.0, 5.0])
    rate[grid_s >= 150] = 80
    mass = np.concatenate([[0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(grid_s))])
    misses = 0
    for seed in SEEDS:
        times_s = arrivals("poisson", segments, generator(seed)).offset_ns / NS_PER_S
        gaps = np.diff(np.interp(times_s, grid_s, mass))
        misses += ks_distance_from_exponential(gaps) > 1.087
    assert misses <= MOST_MISSES


def test_a_longer_phase_begins_with_the_arrivals_of_a_shorter_one() -> None:
    short = arrivals("poisson", [segment(50, 20)], generator(9)).offset_ns
    long = arrivals("poisson", [segment(500, 20)], generator(9)).offset_ns
    assert (long[: len(short)] == short).all()


def test_arrivals_go_on_past_a_chunk_of_draws() -> None:
    due = arrivals("poisson", [segment(1000, 3 * CHUNK / 1000)], generator(2)).offset_ns
    assert abs(len(due) - 3 * CHUNK) < 5 * math.sqrt(3 * CHUNK)
    assert (np.diff(due) >= 0).all()
