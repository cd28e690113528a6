"""What numbers and bars look like on the terminal."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.cli.figures import UNDEFINED, bar, figure, minutes, sparkline


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (41.84, "41.8"),
        (612.4, "612"),
        (1480.4, "1,480"),
        (0.4, "0.400"),
        (9.996, "10.0"),
        (99.96, "100"),
        (999.6, "1,000"),
        (0.0, "0"),
        (-2.345, "-2.35"),
        (None, UNDEFINED),
        (math.nan, UNDEFINED),
    ],
)
def test_a_figure_has_three_significant_digits_and_never_shows_undefined_as_a_number(
    value: float | None, shown: str
) -> None:
    assert figure(value) == shown


@given(st.floats(min_value=1e-3, max_value=1e9))
def test_a_figure_is_within_half_a_unit_of_its_third_digit(value: float) -> None:
    shown = Decimal(figure(value).replace(",", ""))
    exact = Decimal(value)
    unit = Decimal(10) ** max(exact.adjusted() - 2, -10)
    assert abs(shown - exact) <= max(unit, Decimal(1) if value >= 100 else unit) / 2 * Decimal("1.0000001")


def test_minutes_turn_into_hours_and_unknown_stays_a_dash() -> None:
    assert [minutes(59.9), minutes(123), minutes(3723), minutes(None)] == ["00:59", "02:03", "1:02:03", UNDEFINED]


def test_a_sparkline_rises_from_zero_and_leaves_gaps_where_nothing_was_measured() -> None:
    assert sparkline([0.0, 4.0, 8.0, None], 4) == "▁▅█ "
    assert sparkline([], 3) == "   "
    assert sparkline([0.0, 0.0], 2) == "▁▁"
    assert sparkline([8.0, 4.0], 2, unicode=False).isascii()


@given(st.floats(min_value=-1, max_value=2), st.integers(1, 60))
def test_a_bar_keeps_its_width_whatever_the_share(share: float, width: int) -> None:
    assert len(bar(share, width)) == width
    assert len(bar(None, width, unicode=False)) == width
