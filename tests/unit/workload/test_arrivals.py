"""Arrivals keep their law: counts, gaps and dispersion against numpy's and the textbook's numbers."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from servebench.core.units import NS_PER_S
from servebench.workload.arrivals import CHUNK, arrivals, unit_gaps, weibull_cv, weibull_shape
from servebench.workload.model import Arrivals, Client, Segment

SEEDS = range(20)
MOST_MISSES = 4
"""Of 20 tests at the 5 % level, more than 4 fail with probability 0.3 % when the law holds."""

CONSTANT, POISSON = Arrivals(process="constant"), Arrivals(process="poisson")


def gamma(cv: float) -> Arrivals:
    return Arrivals(process="gamma", cv=cv)


def weibull(cv: float) -> Arrivals:
    return Arrivals(process="weibull", shape=weibull_shape(cv))


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
    due = arrivals(CONSTANT, [segment(seconds, rate)], generator(0))
    expected = [int(k / rate * NS_PER_S) for k in range(count)]
    assert len(due.offset_ns) == count
    assert np.abs(due.offset_ns - np.array(expected, dtype=np.int64)).max(initial=0) <= 1
    assert (due.offset_ns < seconds * NS_PER_S).all()


def test_gaps_of_constant_arrivals_do_not_vary() -> None:
    gaps = np.diff(arrivals(CONSTANT, [segment(100, 7.3)], generator(0)).offset_ns)
    assert gaps.std() / gaps.mean() < 1e-8


def test_constant_arrivals_follow_a_ramp_by_its_integral() -> None:
    # From 0 to 10/s in 10 s the integral is t^2 / 2, so arrival k stands at sqrt(2 k).
    due = arrivals(CONSTANT, [segment(10, 0, 10)], generator(0))
    assert np.allclose(due.offset_ns / NS_PER_S, np.sqrt(2 * np.arange(50)), atol=1e-8)


def test_a_falling_ramp_to_zero_is_followed_to_its_end() -> None:
    # From 10 to 0/s in 10 s the integral is 10 t - t^2 / 2, reached k at 10 - sqrt(100 - 2 k).
    due = arrivals(CONSTANT, [segment(10, 10, 0)], generator(0))
    assert np.allclose(due.offset_ns / NS_PER_S, 10 - np.sqrt(100 - 2 * np.arange(50)), atol=1e-7)


@pytest.mark.parametrize("law", [CONSTANT, POISSON, gamma(2), weibull(2)], ids=lambda law: law.process)
def test_no_arrival_falls_into_a_stretch_of_rate_zero(law: Arrivals) -> None:
    segments = [segment(2, 50), segment(3, 0), segment(2, 50), segment(1, 0)]
    times_s = arrivals(law, segments, generator(3)).offset_ns / NS_PER_S
    assert ((times_s < 2) | ((times_s >= 5) & (times_s < 7))).all()
    assert 120 < len(times_s) < 290


def test_each_arrival_carries_the_step_of_its_time() -> None:
    due = arrivals(POISSON, [segment(4, 20, step=0), segment(4, 60, step=1), segment(4, 5)], generator(5))
    windows = np.minimum(due.offset_ns // (4 * NS_PER_S), 2)
    assert (due.step == np.array([0, 1, -1])[windows]).all()


def test_counts_of_poisson_arrivals_vary_as_their_mean() -> None:
    misses = 0
    for seed in SEEDS:
        n = len(arrivals(POISSON, [segment(200, 20)], generator(seed)).offset_ns)
        misses += abs(n - 4000) > 1.96 * math.sqrt(4000)
    assert misses <= MOST_MISSES


def test_gaps_of_poisson_arrivals_are_exponential() -> None:
    cv_misses = ks_misses = 0
    for seed in SEEDS:
        gaps = np.diff(arrivals(POISSON, [segment(200, 20)], generator(seed)).offset_ns).astype(np.float64)
        cv_misses += abs(gaps.std() / gaps.mean() - 1) > 1.96 / math.sqrt(len(gaps))
        ks_misses += ks_distance_from_exponential(gaps) > 1.087
    assert cv_misses <= MOST_MISSES
    assert ks_misses <= MOST_MISSES


def test_counts_of_poisson_arrivals_per_window_have_dispersion_one() -> None:
    misses = 0
    for seed in SEEDS:
        times_ns = arrivals(POISSON, [segment(200, 20)], generator(seed)).offset_ns
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
        times_s = arrivals(POISSON, segments, generator(seed)).offset_ns / NS_PER_S
        gaps = np.diff(np.interp(times_s, grid_s, mass))
        misses += ks_distance_from_exponential(gaps) > 1.087
    assert misses <= MOST_MISSES


def test_a_longer_phase_begins_with_the_arrivals_of_a_shorter_one() -> None:
    short = arrivals(POISSON, [segment(50, 20)], generator(9)).offset_ns
    long = arrivals(POISSON, [segment(500, 20)], generator(9)).offset_ns
    assert (long[: len(short)] == short).all()


def test_arrivals_go_on_past_a_chunk_of_draws() -> None:
    due = arrivals(POISSON, [segment(1000, 3 * CHUNK / 1000)], generator(2)).offset_ns
    assert abs(len(due) - 3 * CHUNK) < 5 * math.sqrt(3 * CHUNK)
    assert (np.diff(due) >= 0).all()


def ks_distance(values: npt.NDArray[np.float64], law: npt.NDArray[np.float64]) -> float:
    """sqrt(n) D of a sample against a large sample of the law, both scaled to their own means."""
    n = len(values)
    at = np.searchsorted(np.sort(law / law.mean()), np.sort(values / values.mean())) / len(law)
    ranks = np.arange(1, n + 1) / n
    return float(math.sqrt(n) * max(np.max(ranks - at), np.max(at - ranks + 1 / n)))


@pytest.mark.parametrize(("cv", "spread"), [(0.5, 0.80), (2.0, 1.6)])
def test_gaps_of_gamma_arrivals_have_their_cv_and_follow_the_law(cv: float, spread: float) -> None:
    # sd(CV) sqrt(n) / CV is 0.80 at CV 0.5 and 1.4 to 1.6 at CV 2; KS at 5 % with the sample's own mean: 1.217 at CV 2.
    law = np.random.default_rng(1).gamma(cv**-2, size=400_000)
    rate_misses = cv_misses = ks_misses = 0
    for seed in SEEDS:
        times_ns = arrivals(gamma(cv), [segment(200, 20)], generator(seed)).offset_ns
        gaps = np.diff(times_ns).astype(np.float64)
        n = len(times_ns)
        rate_misses += abs(n - 4000) > 1.96 * cv * math.sqrt(4000)
        cv_misses += abs(gaps.std() / gaps.mean() - cv) > 1.96 * cv * spread / math.sqrt(n)
        ks_misses += ks_distance(gaps, law) > 1.217
    assert max(rate_misses, cv_misses, ks_misses) <= MOST_MISSES


@pytest.mark.parametrize("shape", [0.5, 2.0])
def test_gaps_of_weibull_arrivals_follow_the_law(shape: float) -> None:
    # Raised to the shape, Weibull gaps are exponential.
    rate_misses = ks_misses = 0
    cv = math.sqrt(math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1)
    for seed in SEEDS:
        times_ns = arrivals(Arrivals(process="weibull", shape=shape), [segment(200, 20)], generator(seed)).offset_ns
        rate_misses += abs(len(times_ns) - 4000) > 1.96 * cv * math.sqrt(4000)
        ks_misses += ks_distance_from_exponential(np.diff(times_ns).astype(np.float64) ** shape) > 1.087
    assert max(rate_misses, ks_misses) <= MOST_MISSES


@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 2.0, 10.0])
def test_the_shape_for_a_weibull_cv_gives_that_cv(cv: float) -> None:
    assert weibull_cv(weibull_shape(cv)) == pytest.approx(cv, rel=1e-9)
    gaps = unit_gaps(weibull(cv), 200_000, generator(1))
    assert gaps.std() == pytest.approx(cv, rel=0.35 if cv > 5 else 0.05)


@pytest.mark.parametrize("law", [gamma(4), weibull(4)], ids=lambda law: law.process)
def test_bursty_arrivals_have_their_rate_from_the_first_second_on(law: Arrivals) -> None:
    # A renewal process begun at an arrival would have (CV^2 - 1) / 2 = 7.5 more than the 20 of these two seconds.
    counts = [len(arrivals(law, [segment(2, 10)], generator(seed)).offset_ns) for seed in range(2000)]
    assert abs(np.mean(counts) - 20) < 4 * np.std(counts) / math.sqrt(2000)


def dispersion(times_ns: npt.NDArray[np.int64], seconds: int, window_s: int) -> float:
    counts = np.bincount(times_ns // (window_s * NS_PER_S), minlength=seconds // window_s)
    return float(counts.var(ddof=1) / counts.mean())


def code(inside: Arrivals) -> Arrivals:
    """On/off as the Azure code trace: 16.7 s on, 43.2 s off."""
    return Arrivals(process="onoff", on_ns=16_700_000_000, off_ns=43_200_000_000, inside=inside)


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (code(gamma(0.15**-0.5)), (12.3, 57, 127)),
        (code(POISSON), (7.4, 52, 130)),
        (gamma(0.25**-0.5), (3.3, 3.9, 4.1)),
        (Arrivals(process="weibull", shape=0.45), (3.8, 6.0, 6.9)),
    ],
    ids=["code", "interrupted poisson", "gamma 0.25", "weibull 0.45"],
)
def test_dispersion_grows_with_the_window_as_it_was_measured_for_each_model(
    law: Arrivals, expected: tuple[float, float, float]
) -> None:
    hours = 20
    rows = []
    for seed in range(6):
        times_ns = arrivals(law, [segment(hours * 3600, 2.57)], generator(seed)).offset_ns
        rows.append([dispersion(times_ns, hours * 3600, window) for window in (1, 10, 60)])
    assert np.mean(rows, axis=0) == pytest.approx(expected, rel=0.12)


def test_on_off_arrivals_leave_the_share_of_time_empty_that_is_off_and_keep_the_mean_rate() -> None:
    # On a fifth of the time at 200/s; whole empty 100-ms windows lie in the off episodes of 8 s on average.
    law = Arrivals(process="onoff", on_ns=2 * NS_PER_S, off_ns=8 * NS_PER_S, inside=CONSTANT)
    counts, empty = [], []
    for seed in SEEDS:
        times_ns = arrivals(law, [segment(2000, 40)], generator(seed)).offset_ns
        windows = np.bincount(times_ns // (NS_PER_S // 10), minlength=20_000)
        counts.append(len(times_ns) / 2000)
        empty.append(np.mean(windows == 0))
        assert set(np.unique(windows[windows > 0])) <= set(range(1, 22))
    assert np.mean(counts) == pytest.approx(40, rel=0.05)
    assert np.mean(empty) == pytest.approx(0.8, abs=0.02)


def test_on_off_arrivals_follow_a_curve_within_their_episodes() -> None:
    law = Arrivals(process="onoff", on_ns=NS_PER_S // 10, off_ns=NS_PER_S // 10, inside=CONSTANT)
    times_s = arrivals(law, [segment(1000, 0, 100)], generator(1)).offset_ns / NS_PER_S
    halves = np.histogram(times_s, bins=[0, 500, 1000])[0]
    assert halves == pytest.approx([12_500, 37_500], rel=0.05)


def test_a_mix_is_the_sum_of_its_clients_by_weight_in_order_of_time() -> None:
    clients = (
        Client(name="even", weight=3, arrivals=CONSTANT),
        Client(name="bursty", weight=1, arrivals=gamma(3)),
    )
    due = arrivals(Arrivals(process="mix", clients=clients), [segment(100, 40, step=2)], generator(4))
    assert (np.diff(due.offset_ns) >= 0).all()
    assert (due.step == 2).all()
    even_ns = np.array([int(k / 30 * NS_PER_S) for k in range(3000)])
    assert np.isin(even_ns, np.concatenate([due.offset_ns - 1, due.offset_ns, due.offset_ns + 1])).all()
    assert abs(len(due.offset_ns) - 4000) < 4 * 3 * math.sqrt(1000)


def test_eight_hours_with_a_million_arrivals_are_the_same_twice_and_not_for_another_seed() -> None:
    first, again, other = (arrivals(gamma(2), [segment(8 * 3600, 35)], generator(seed)).offset_ns for seed in (1, 1, 2))
    assert (first == again).all()
    assert len(first) > 900_000
    assert first[:100].tolist() != other[:100].tolist()


@pytest.mark.parametrize("law", [gamma(2), gamma(0.3), weibull(2)], ids=["gamma 2", "gamma 0.3", "weibull"])
def test_gaps_are_rounded_so_that_the_last_bit_of_a_machine_s_pow_does_not_show(law: Arrivals) -> None:
    grains = unit_gaps(law, 10_000, generator(3)) * 2.0**30
    assert (grains == np.rint(grains)).all()
    assert len(np.unique(grains)) > 9_000
