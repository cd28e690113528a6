"""Distributions against exact sums and closed forms."""

from fractions import Fraction
from math import atan, comb, pi, sqrt

import pytest

from servebench.metrics.distributions import (
    beta_below,
    beta_quantile,
    normal_above,
    normal_quantile,
    student_above,
    student_quantile,
)


@pytest.mark.parametrize(("k", "n"), [(1, 1), (3, 10), (57, 60), (190, 200), (500, 1000)])
@pytest.mark.parametrize("x", [Fraction(1, 20), Fraction(1, 2), Fraction(19, 20)])
def test_the_beta_distribution_is_a_binomial_sum(k: int, n: int, x: Fraction) -> None:
    exact = sum(comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(k, n + 1))
    assert beta_below(float(x), k, n - k + 1) == pytest.approx(float(exact), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("p", [0.0182, 0.5, 0.975])
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 3.5), (950.0, 51.0), (99_000.0, 1_001.0)])
def test_a_beta_quantile_leads_back(p: float, a: float, b: float) -> None:
    assert beta_below(beta_quantile(p, a, b), a, b) == pytest.approx(p, rel=1e-8)


@pytest.mark.parametrize("t", [-3.0, 0.0, 0.5, 12.7])
def test_students_t_with_one_and_two_degrees_has_a_closed_form(t: float) -> None:
    assert student_above(t, 1) == pytest.approx(0.5 - atan(t) / pi, abs=1e-12)
    assert student_above(t, 2) == pytest.approx(0.5 - t / (2 * sqrt(2 + t * t)), abs=1e-12)


@pytest.mark.parametrize(("p", "df"), [(0.975, 1.0), (0.975, 4.0), (0.1, 19.0), (0.8, 2.5)])
def test_a_t_quantile_leads_back(p: float, df: float) -> None:
    assert 1 - student_above(student_quantile(p, df), df) == pytest.approx(p, rel=1e-9)
    assert student_quantile(0.5, df) == 0


def test_many_degrees_of_freedom_are_normal() -> None:
    assert student_quantile(0.975, 1e7) == pytest.approx(normal_quantile(0.975), rel=1e-6)
    assert normal_above(normal_quantile(0.975)) == pytest.approx(0.025, rel=1e-9)
