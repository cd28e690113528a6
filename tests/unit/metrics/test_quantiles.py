"""Percentiles against published values of the linear rule."""

import math

import numpy as np
import pytest

from servebench.metrics import enough, needed, percentile


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([0.25], 0.99, 0.25),
        ([1.0, 2.0], 0.5, 1.5),
        ([1.0, 2.0], 0.99, 1.99),
        ([0.01, 0.02, 0.03], 0.99, 0.0298),
        ([585, 604, 625, 671, 5872, 6651], 0.5, 648.0),
        ([585, 604, 625, 671, 5872, 6651], 0.99, 6612.05),
    ],
)
def test_quantiles_interpolate_between_order_statistics(values: list[float], q: float, expected: float) -> None:
    assert percentile(np.array(values, dtype=np.float64), q) == pytest.approx(expected, rel=1e-12)


def test_nothing_has_no_quantile() -> None:
    assert math.isnan(percentile(np.empty(0), 0.5))


def test_a_quantile_given_as_percent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"p99 is 0\.99"):
        percentile(np.ones(3), 99)


@pytest.mark.parametrize(("q", "n"), [(0.5, 1), (0.9, 100), (0.95, 200), (0.99, 1000), (0.999, 10000)])
def test_a_quantile_is_shown_from_ten_samples_above_it(q: float, n: int) -> None:
    assert needed(q) == n
    assert enough(n, q)
    assert not enough(n - 1, q)
