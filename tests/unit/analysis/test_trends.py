"""Slope, step and rhythm on simulated series whose truth is known; seeded, so the counts are fixed."""

import numpy as np
import numpy.typing as npt
import pytest

from servebench.analysis.trends import rhythm, slope, steps

MINUTES = 480


def series(rng: np.random.Generator, phi: float, sd: float = 0.15) -> npt.NDArray[np.float64]:
    """Return a stationary series whose neighbours have correlation phi."""
    shocks = rng.normal(0, sd * np.sqrt(1 - phi**2), MINUTES + 200)
    values = np.zeros_like(shocks)
    for index in range(1, len(shocks)):
        values[index] = phi * values[index - 1] + shocks[index]
    return values[200:]


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_series_without_drift_is_rarely_said_to_drift(phi: float) -> None:
    rng = np.random.default_rng(61)
    found = [slope(series(rng, phi)) for _ in range(300)]
    flagged = [lo is not None and hi is not None and (lo > 0 or hi < 0) for _, lo, hi in found]
    assert np.mean(flagged) <= 0.09


def test_a_drift_of_twenty_percent_is_found_and_covered() -> None:
    rng = np.random.default_rng(62)
    drift = np.log1p(0.2) * np.linspace(0, 1, MINUTES)
    found = [slope(series(rng, 0.5) + drift) for _ in range(200)]
    bounds = [(lo, hi) for _, lo, hi in found if lo is not None and hi is not None]
    assert len(bounds) == 200
    assert np.mean([lo > 0 for lo, _ in bounds]) >= 0.95
    assert np.mean([lo <= 0.2 <= hi for lo, hi in bounds]) >= 0.9
    assert np.mean([change for change, _, _ in found]) == pytest.approx(0.2, abs=0.02)


def test_a_series_of_few_independent_points_gets_no_interval() -> None:
    change, lo, hi = slope(np.cumsum(np.random.default_rng(63).normal(0, 1, 60)))
    assert np.isfinite(change)
    assert (lo, hi) == (None, None)


def test_a_step_is_found_where_it_is() -> None:
    rng = np.random.default_rng(64)
    jump = np.log1p(0.2) * (np.arange(MINUTES) >= 300)
    found = [steps(series(rng, 0.5) + jump) for _ in range(100)]
    assert np.mean([any(abs(place - 300) <= 15 for place in places) for places in found]) >= 0.8


def test_noise_has_no_steps() -> None:
    rng = np.random.default_rng(65)
    assert np.mean([bool(steps(series(rng, 0.5))) for _ in range(150)]) <= 0.05


def stalls(rng: np.random.Generator, period: float | None) -> npt.NDArray[np.float64]:
    times = rng.uniform(0, 1_800, rng.poisson(25))
    if period is not None:
        regular = rng.uniform(0, period) + period * np.arange(int(1_800 / period))
        times = np.concatenate((times, regular + rng.normal(0, 0.03 * period, len(regular))))
    return np.sort(times)


def test_a_rhythm_among_random_stalls_is_found_with_its_period() -> None:
    rng = np.random.default_rng(66)
    found = [rhythm(stalls(rng, 30.0), 1_800) for _ in range(60)]
    assert all(p_value < 0.01 for _, p_value in found)
    assert np.mean([abs(period / 30 - 1) < 0.05 for period, _ in found]) >= 0.95


def test_random_stalls_have_no_rhythm() -> None:
    rng = np.random.default_rng(67)
    assert sum(rhythm(stalls(rng, None), 1_800)[1] < 0.01 for _ in range(150)) <= 2


def test_a_handful_of_stalls_says_nothing() -> None:
    period, p_value = rhythm(np.arange(7.0) * 30, 1_800)
    assert np.isnan(period)
    assert p_value == 1
