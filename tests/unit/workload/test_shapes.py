"""Shapes become the rate curves that their words promise."""

import numpy as np
import pytest

from servebench.core.errors import SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.load import parse_workload
from servebench.workload.model import Phase, Segment, Workload
from servebench.workload.schedule import plan

M_SMALL = [
    *(0.84, 0.71, 0.73, 0.68, 0.71, 0.66, 0.68, 0.85, 1.02, 1.05, 1.13, 1.09),
    *(1.06, 1.07, 1.06, 1.05, 1.09, 1.08, 1.01, 1.23, 1.46, 1.40, 1.27, 1.06),
]


def workload(*phases: str, arrivals: str = "{process: constant}") -> Workload:
    lines = "\n".join(f"    - {phase}" for phase in phases)
    text = (
        "name: shapes\nprompts: {source: {kind: mt-bench}}\n"
        f"load:\n  kind: open\n  arrivals: {arrivals}\n  phases:\n{lines}\n"
    )
    return parse_workload(text, "shapes.yaml")


def only_phase(phase: str) -> Phase:
    return workload(phase).phases[0]


def level(seconds: int, rate: float) -> Segment:
    return Segment(duration_ns=seconds * NS_PER_S, from_per_s=rate, to_per_s=rate)


def rate_per_s(phase: Phase, at_s: float) -> float:
    borders = np.cumsum([0, *(segment.duration_ns for segment in phase.segments)]) / NS_PER_S
    index = int(np.searchsorted(borders, at_s, side="right")) - 1
    segment = phase.segments[index]
    share = (at_s - borders[index]) / (segment.duration_ns / NS_PER_S)
    return float(segment.from_per_s + share * (segment.to_per_s - segment.from_per_s))


def test_a_ramp_is_one_straight_line() -> None:
    phase = only_phase("{name: up, shape: ramp, from_per_s: 1, to_per_s: 9, duration: 60s}")
    assert phase.segments == (Segment(duration_ns=60 * NS_PER_S, from_per_s=1.0, to_per_s=9.0),)


def test_a_spike_has_its_base_before_and_after_the_peak() -> None:
    phase = only_phase(
        "{name: hit, shape: spike, base_per_s: 2, peak_per_s: 50, before: 1m, length: 10s, recovery: 2m}"
    )
    assert phase.segments == (level(60, 2), level(10, 50), level(120, 2))
    assert phase.duration_ns == 190 * NS_PER_S


def test_a_soak_is_a_level_that_keeps_its_name() -> None:
    phase = only_phase("{name: night, shape: soak, rate_per_s: 3, duration: 8h}")
    assert (phase.shape, phase.segments) == ("soak", (level(8 * 3600, 3),))


def test_a_day_squeezed_into_a_run_has_the_hours_of_its_profile() -> None:
    # 24 minutes: hour h of the profile is minute h; the middle of each minute has the hour's own rate.
    phase = only_phase("{name: day, shape: diurnal, mean_per_s: 10, profile: m-small, duration: 24m}")
    mean = np.mean(M_SMALL)
    middles = [rate_per_s(phase, 60 * hour + 30) for hour in range(24)]
    assert middles == pytest.approx([10 * part / mean for part in M_SMALL], rel=1e-9)
    assert len(plan(workload("{name: day, shape: diurnal, mean_per_s: 10, duration: 24m}"))) == 14_400


def test_the_profile_s_own_swing_is_kept() -> None:
    swings = {}
    for name in ("m-small", "m-large", "deepseek-r1", "ragpulse"):
        phase = only_phase(f"{{name: day, shape: diurnal, mean_per_s: 10, profile: {name}, duration: 24m}}")
        rates = [rate_per_s(phase, 60 * hour + 30) for hour in range(24)]
        assert np.mean(rates) == pytest.approx(10)
        swings[name] = round(max(rates) / min(rates), 1)
    assert swings == {"m-small": 2.2, "m-large": 1.5, "deepseek-r1": 4.9, "ragpulse": 21.1}


def test_a_day_begins_where_it_is_told_and_repeats_after_its_period() -> None:
    shape = "shape: diurnal, mean_per_s: 6, profile: [1, 3], period: 20s"
    whole = only_phase(f"{{name: day, {shape}, duration: 40s}}")
    later = only_phase(f"{{name: day, {shape}, start: 7s, duration: 33s}}")
    for at_s in (0.5, 3.0, 5.0, 9.9, 15.0, 19.0):
        assert rate_per_s(whole, at_s) == pytest.approx(rate_per_s(whole, at_s + 20))
        assert rate_per_s(later, at_s) == pytest.approx(rate_per_s(whole, at_s + 7))
    assert [rate_per_s(whole, at_s) for at_s in (5, 15)] == pytest.approx([3, 9])


@pytest.mark.parametrize(
    ("phase", "place"),
    [
        ("{name: d, shape: diurnal, mean_per_s: 1, profile: [1], duration: 1m}", "profile"),
        ("{name: d, shape: diurnal, mean_per_s: 1, profile: [0, 0], duration: 1m}", "profile"),
        ("{name: d, shape: diurnal, mean_per_s: 1, period: 1ms, duration: 1h}", "duration"),
        ("{name: d, shape: diurnal, mean_per_s: 1, period: 1h, start: 1h, duration: 1h}", "start"),
        ("{name: d, shape: ramp, from_per_s: 1, to_per_s: -1, duration: 1h}", "to_per_s"),
        ("{name: d, shape: steady, rate_per_s: 1, duration: 1h, arrivals: {process: gamma}}", "arrivals.cv"),
        ("{name: d, shape: steady, rate_per_s: 1, duration: 1h, arrivals: {process: weibull}}", "arrivals"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_at_its_key(phase: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        workload(phase)
    assert [fault.place for fault in caught.value.faults] == [f"load.phases[0].{place}"]


@pytest.mark.parametrize(
    ("phase", "place", "words"),
    [
        ("{name: d, shape: steady, rate_per_s: 1000000, duration: 30d}", "", "2,592,000,000,000 requests"),
        (
            "{name: d, shape: steady, rate_per_s: 0.1, duration: 300d, "
            "arrivals: {process: onoff, on: 1ms, off: 1ms, inside: {process: poisson}}}",
            "",
            "episodes",
        ),
        (
            "{name: d, shape: burst, base_per_s: 1, peak_per_s: 2, every: 2ns, length: 1ns, duration: 1h}",
            ".duration",
            "periods",
        ),
    ],
    ids=["requests", "episodes", "bursts"],
)
def test_a_slip_of_a_unit_is_refused_before_it_fills_the_memory(phase: str, place: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        workload(phase)
    assert [fault.place for fault in caught.value.faults] == [f"load.phases[0]{place}"]


def test_a_phase_may_have_a_law_of_its_own() -> None:
    even = "{name: even, shape: steady, rate_per_s: 20, duration: 60s, arrivals: {process: constant}}"
    wild = "{name: wild, shape: steady, rate_per_s: 20, duration: 60s}"
    schedule = plan(workload(even, wild, arrivals="{process: gamma, cv: 3}"))
    first = schedule.intended_ns[schedule.phase == 0]
    gaps = np.diff(schedule.intended_ns[schedule.phase == 1])
    assert np.abs(first - np.arange(1200) * (NS_PER_S // 20)).max() <= 1
    assert gaps.std() / gaps.mean() > 2
