"""What answers cost: sums done by hand, idle time, energy, and what is not known."""

import numpy as np
import pytest

from servebench.analysis.cost import Bill, Prices, Used, _busy_seconds, _energy_j, bill
from servebench.analysis.engine import Source, Telemetry, Track
from servebench.metrics.columns import Window

TOOK = Used(
    seconds=3_600.0,
    busy_seconds=2_700.0,
    ended=1_000,
    ok=900,
    accepted=600,
    good=None,
    input=2e6,
    cached=5e5,
    output=1e6,
    good_tokens=8e5,
    uncounted=0,
    energy_j=None,
)


def figures(found: Bill) -> dict[str, float | None]:
    return {line.name: line.value for line in found.lines}


def test_tokens_are_charged_at_their_three_prices() -> None:
    prices = Prices(input_tokens=1.0, cached_tokens=0.1, output_tokens=4.0, request=0.001)
    found = figures(bill(TOOK, prices))
    assert found["input tokens"] == pytest.approx(1.5)
    assert found["cached tokens"] == pytest.approx(0.05)
    assert found["output tokens"] == pytest.approx(4.0)
    assert found["requests"] == pytest.approx(1.0)
    assert found["in all"] == pytest.approx(6.55)
    assert found["cost per answer"] == pytest.approx(6.55 / 900)
    assert found["cost per accepted answer"] == pytest.approx(6.55 / 600)
    assert found["cost per million good output tokens"] == pytest.approx(6.55 / 0.8)


def test_an_hour_is_paid_for_idle_or_not() -> None:
    found = bill(TOOK, Prices(hour=8.0))
    assert figures(found)["in all"] == pytest.approx(8.0)
    assert figures(found)["of it while nothing was asked"] == pytest.approx(2.0)
    assert any("25.0 % of the measured time" in note for note in found.notes)


def test_energy_and_electricity_follow_from_a_stated_power() -> None:
    found = figures(bill(TOOK, Prices(power_w=500.0, kwh=0.3)))
    assert found["energy in all"] == pytest.approx(500.0)
    assert found["electricity"] == pytest.approx(0.15)
    assert found["energy per answer"] == pytest.approx(500.0 / 900)


def test_what_is_not_known_is_a_gap_with_its_reason() -> None:
    found = bill(TOOK, Prices(kwh=0.3))
    gaps = {line.name: line.missing for line in found.lines if line.value is None}
    assert gaps["electricity"] == "no power was read"
    assert "no power was read" in gaps["energy in all"]
    assert "neither objectives nor checks" in gaps["cost per good answer"]
    assert gaps["cost per answer"]
    assert not any(line.value == 0 for line in found.lines)


def test_full_price_for_cached_tokens_and_uncounted_requests_are_said() -> None:
    took = Used(**{**{name: getattr(TOOK, name) for name in TOOK.__slots__}, "uncounted": 40})
    found = bill(took, Prices(input_tokens=1.0))
    assert figures(found)["cached tokens"] == pytest.approx(0.5)
    assert any("40 of 1,000 requests have no token counts" in note for note in found.notes)
    assert any("charged at the full price" in note for note in found.notes)


def test_busy_time_is_the_union_of_requests_inside_the_window() -> None:
    start = np.array([0.0, 1.0, 5.0, np.nan, 9.0]) * 1e9
    end = np.array([2.0, 3.0, 6.0, 4.0, 14.0]) * 1e9
    assert _busy_seconds(start, end, Window(0.5e9, 10e9)) == pytest.approx(2.5 + 1.0 + 1.0)
    assert _busy_seconds(start[:0], end[:0], Window(0.0, 1e9)) == 0.0


def test_measured_power_is_integrated_and_stretched_over_what_was_not_read() -> None:
    t_ns = np.arange(0.0, 9.0) * 1e9
    ramp = Track(t_ns, 100.0 + 10.0 * np.arange(9.0))
    counter = Track(t_ns, 50.0 * np.arange(9.0))
    telemetry = Telemetry(
        hardware=(
            Source(address="a", dialect="dcgm", tracks={"gpu_power": ramp}, missing=()),
            Source(address="b", dialect="node", tracks={"package_joules": counter}, missing=()),
        )
    )
    assert _energy_j(telemetry, [Window(0.0, 8e9)]) == pytest.approx(8 * 140.0 + 400.0)
    assert _energy_j(telemetry, [Window(0.0, 10e9)]) == pytest.approx((8 * 140.0 + 400.0) * 10 / 8)
    assert _energy_j(telemetry, [Window(20e9, 30e9)]) is None
    assert _energy_j(Telemetry(), [Window(0.0, 1e9)]) is None
