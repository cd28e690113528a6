"""Intervals on streams whose true percentiles are known; seeded, so the counts are fixed."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from tests.queue_streams import stream

from servebench.metrics.intervals import (
    needed_effective,
    quantile_interval,
    share_interval,
    vif_of_flags,
    vif_of_quantile,
)

Z95 = 1.6448536269514722


def coverage(samples: npt.NDArray[np.float64], q: float, truth: float) -> tuple[int, int]:
    """Return how many streams got an interval, and how many of those hold the truth."""
    found = [quantile_interval(x, q) for x in samples]
    given = [item for item in found if item.lo is not None and item.hi is not None]
    return len(given), sum((item.lo or 0) <= truth <= (item.hi or 0) for item in given)


@pytest.mark.parametrize(("q", "truth"), [(0.5, 1.0), (0.95, math.exp(Z95))])
def test_independent_requests_are_covered_as_often_as_promised(q: float, truth: float) -> None:
    samples = np.random.default_rng(11).lognormal(0, 1, (400, 1_000))
    given, hit = coverage(samples, q, truth)
    assert given == 400
    assert 0.94 <= hit / given <= 1.0


def test_requests_of_a_busy_service_are_covered_too() -> None:
    rng = np.random.default_rng(12)
    truth = float(np.quantile(stream(rng, 40, 20_000, 0.7).ttft, 0.95))
    samples = stream(rng, 100, 10_000, 0.7).ttft
    given, hit = coverage(samples, 0.95, truth)
    assert given >= 95
    assert hit / given >= 0.90
    naive = math.sqrt(0.95 * 0.05 / 10_000)
    off = [abs(float(np.mean(x <= truth)) - 0.95) > 1.96 * naive for x in samples]
    assert np.mean(off) > 0.3, "as if independent, the same streams are mostly missed"


def test_at_the_border_of_refusal_few_of_all_runs_are_given_a_wrong_interval() -> None:
    truth = 0.7614  # of 12 million requests, standard error 0.0014
    samples = stream(np.random.default_rng(13), 400, 1_000, 0.7).ttft
    given, hit = coverage(samples, 0.9, truth)
    assert 0.1 <= given / len(samples) <= 0.5
    assert (given - hit) / len(samples) <= 0.1 + 0.015  # one standard error of 400 runs


def test_a_short_run_of_a_busy_service_gets_no_interval() -> None:
    samples = stream(np.random.default_rng(13), 60, 1_000, 0.9).ttft
    given, hit = coverage(samples, 0.95, math.nan)
    assert (given, hit) == (0, 0)


@pytest.mark.parametrize(("q", "n"), [(0.5, 100), (0.9, 100), (0.95, 200), (0.99, 1_000), (0.999, 10_000)])
def test_an_interval_needs_ten_effective_requests_beyond_the_quantile(q: float, n: int) -> None:
    assert needed_effective(q) == n
    short = quantile_interval(np.random.default_rng(1).uniform(size=n - 1), q)
    assert (short.lo, short.hi) == (None, None)


def test_runs_of_equal_flags_inflate_the_variance_by_their_length() -> None:
    flags = np.repeat(np.random.default_rng(2).integers(0, 2, 4_000), 10).astype(np.float64)
    assert vif_of_flags(flags) == pytest.approx(10, rel=0.25)
    assert vif_of_flags(np.ones(50)) == 1


def test_a_tail_borrows_the_correlation_of_lower_levels() -> None:
    rng = np.random.default_rng(3)
    busy = np.repeat(rng.uniform(size=500), 20) + rng.exponential(0.2, 10_000)
    own = vif_of_flags((busy <= np.quantile(busy, 0.99)).astype(np.float64))
    assert vif_of_quantile(busy, 0.99) > own


def test_no_failure_in_n_still_allows_three_in_n() -> None:
    found = share_interval(np.zeros(300))
    assert found.lo == 0
    assert found.hi == pytest.approx(1 - 0.025 ** (1 / 300))
    assert share_interval(np.ones(300)).hi == 1
    assert share_interval(np.empty(0)).hi is None


def test_a_share_of_independent_requests_is_covered() -> None:
    flags = (np.random.default_rng(4).uniform(size=(400, 500)) < 0.04).astype(np.float64)
    found = [share_interval(row) for row in flags]
    hits = [(item.lo or 0) <= 0.04 <= (item.hi or 0) for item in found]
    assert np.mean(hits) >= 0.94


def test_a_constant_series_has_itself_as_interval() -> None:
    found = quantile_interval(np.full(500, 7.0), 0.95)
    assert (found.lo, found.hi, found.n_eff) == (7, 7, 500)
