"""The paired interval on simulated pairs of runs; seeded, so the counts are fixed."""

import numpy as np
import numpy.typing as npt
import pytest
from tests.queue_streams import CAPACITY_PER_S, gaps, service, waits

from servebench.analysis.compare.paired import absolute, holm, pairs_wanted, relative, word

Floats = npt.NDArray[np.float64]


def p95_e2e(rng: np.random.Generator, plan: tuple[Floats, Floats, Floats], slower: float, flicker: float) -> Floats:
    """Return p95 E2E of each trial of one arm: the plan's own arrivals and answers, 5 % jitter, a speed of its own."""
    at, *parts = plan
    factor = slower * np.exp(rng.normal(0, flicker, (len(at), 1)))
    prefill, decode = (part * rng.lognormal(0, 0.05, part.shape) * factor for part in parts)
    e2e = waits(at, prefill + decode) + prefill + decode
    found: Floats = np.quantile(e2e[:, 200:], 0.95, axis=1)
    return found


def simulated(rng: np.random.Generator, trials: int, pairs: int, slower: float) -> tuple[Floats, Floats]:
    """Return p95 of both arms, shape (pairs, trials); each pair replays one schedule at 70 % of capacity."""
    base, candidate = [], []
    for _ in range(pairs):
        plan = (np.cumsum(gaps(rng, trials, 700, 0.7 * CAPACITY_PER_S), axis=1), *service(rng, trials, 700))
        base.append(p95_e2e(rng, plan, 1.0, 0.02))
        candidate.append(p95_e2e(rng, plan, slower, 0.02))
    return np.array(base), np.array(candidate)


def differs(base: Floats, candidate: Floats) -> list[bool]:
    found = [relative(a, b) for a, b in zip(base.T, candidate.T, strict=True)]
    return [item.lo is not None and item.hi is not None and (item.lo > 0 or item.hi < 0) for item in found]


def test_equal_systems_differ_in_about_five_percent_of_comparisons() -> None:
    assert 0.02 <= np.mean(differs(*simulated(np.random.default_rng(21), 300, 5, 1.0))) <= 0.08


def test_a_service_that_is_ten_percent_slower_is_found() -> None:
    base, candidate = simulated(np.random.default_rng(22), 100, 5, 1.1)
    assert np.mean(differs(base, candidate)) >= 0.95
    found = [relative(a, b) for a, b in zip(base.T, candidate.T, strict=True)]
    truth = float(np.exp(np.mean(np.log(candidate / base)))) - 1
    covered = [(item.lo or 0) <= truth <= (item.hi or 0) for item in found]
    assert np.mean(covered) >= 0.9


def test_two_pairs_give_no_interval() -> None:
    found = relative(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    assert found.change == pytest.approx(1)
    assert (found.lo, found.hi, found.p_value, found.detectable) == (None, None, None, None)
    assert word(found, 0.05) == "inconclusive"


def test_a_pair_with_an_undefined_number_drops_out() -> None:
    assert absolute(np.array([1.0, np.nan, 2.0, 3.0]), np.array([1.0, 1.0, 2.5, 3.0])).pairs == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([0.20, 0.21, 0.19, 0.20], "differs"),
        ([0.020, 0.021, 0.019, 0.020], "differs, by less than the margin"),
        ([0.01, -0.01, 0.005, -0.005], "same within the margin"),
        ([0.3, -0.2, 0.1, -0.1], "inconclusive"),
    ],
)
def test_the_word_follows_the_interval_and_the_margin(changes: list[float], said: str) -> None:
    base = np.full(4, 100.0)
    found = relative(base, base * (1 + np.array(changes)))
    assert word(found, 0.05) == said
    if said == "differs":
        assert word(found, 0.05, certain=False) == "inconclusive"


def test_the_pairs_that_would_decide_grow_with_the_square_of_the_width() -> None:
    found = relative(np.full(4, 100.0), np.array([110.0, 90.0, 105.0, 96.0]))
    assert found.lo is not None
    assert found.hi is not None
    wanted = pairs_wanted(found, 0.05)
    assert wanted == int(np.ceil(4 * ((found.hi - found.lo) / 2 / 0.05) ** 2))
    assert pairs_wanted(relative(np.ones(2), np.ones(2)), 0.05) is None


def test_holm_steps_down_from_the_smallest() -> None:
    assert holm([0.04, 0.001, None, 0.02]) == [True, True, False, True]
    assert holm([0.04, 0.03, 0.012]) == [False, False, True]
    assert holm([]) == []
