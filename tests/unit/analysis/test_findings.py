"""What a run shows over time and load, on simulated services whose truth is known; seeded."""

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from tests.builders import RunSpec, S, row, steady, workload, write_run
from tests.queue_streams import CAPACITY_PER_S, MEAN_TOKENS, TOKEN_S, gaps, service, stream, waits

from servebench.analysis.arrivals import arrivals
from servebench.analysis.digest import examine
from servebench.analysis.recovery import planned_spikes, recoveries
from servebench.analysis.saturation import departure, plateau_interval, saturations
from servebench.analysis.source import load_run
from servebench.analysis.steady import guarded_cut, settling
from servebench.shards.manifest import StepRecord
from servebench.workload.model import Phase, Segment

Floats = npt.NDArray[np.float64]
RATES = np.arange(0.5, 1.31, 0.1)
CALM_RATES = np.arange(0.2, 0.71, 0.1)


def staircase(rng: np.random.Generator, seconds: float, rates: Floats = RATES) -> tuple[Floats, Floats, list[int]]:
    """Return arrivals and ends of a queue that is loaded with rising rates, and how many requests each level has."""
    counts = [int(rate * CAPACITY_PER_S * seconds) for rate in rates]
    between = [gaps(rng, 1, n, rate * CAPACITY_PER_S) for n, rate in zip(counts, rates, strict=True)]
    at = np.cumsum(np.concatenate(between, axis=1), axis=1)
    prefill, decode = service(rng, *at.shape)
    return at[0], (at + waits(at, prefill + decode) + prefill + decode)[0], counts


def sliced(at: Floats, end: Floats, counts: list[int]) -> tuple[Floats, Floats]:
    edges = np.concatenate(([0], np.cumsum(counts)))
    offered, achieved = [], []
    for first, last in zip(edges[:-1], edges[1:] - 1, strict=True):
        cuts = np.linspace(at[first] + 0.25 * (at[last] - at[first]), at[last], 7)
        offered.append(np.diff(np.searchsorted(at, cuts)) / np.diff(cuts))
        achieved.append(np.diff(np.searchsorted(np.sort(end), cuts)) / np.diff(cuts))
    return np.array(offered), np.array(achieved)


def test_the_plateau_of_a_staircase_is_the_capacity_and_its_interval_covers_it() -> None:
    rng = np.random.default_rng(41)
    found = []
    for _ in range(40):
        offered, achieved = sliced(*staircase(rng, 180))
        if departure(offered.mean(axis=1), achieved.mean(axis=1)) is not None:
            found.append(plateau_interval(offered, achieved))
    assert len(found) >= 38
    assert np.mean([centre for centre, _, _ in found]) == pytest.approx(CAPACITY_PER_S, rel=0.015)
    assert np.mean([lo <= CAPACITY_PER_S <= hi for _, lo, hi in found]) >= 0.9


def staircase_run(folder: Path, rates: Floats) -> Path:
    at, end, counts = staircase(np.random.default_rng(42), 120, rates)
    step = np.repeat(np.arange(len(counts)), counts)
    rows = [
        row(
            k,
            sent_ns=int(at[k] * S),
            ttft_ns=int((end[k] - at[k]) * S) - 1,
            tokens=2,
            gap_ns=1,
            step=int(step[k]),
            phase="climb",
        )
        for k in range(len(at))
    ]
    borders = [*(at[cut] for cut in np.concatenate(([0], np.cumsum(counts)))[:-1]), at[-1]]
    steps = [
        StepRecord(
            index=index,
            start_ns=int(borders[index] * S),
            end_ns=int(borders[index + 1] * S),
            rate_per_s=float(rate * CAPACITY_PER_S),
        )
        for index, rate in enumerate(rates)
    ]
    phase = steady("climb", steps[0].start_ns / S, steps[-1].end_ns / S, shape="steps", steps=steps)
    return write_run(folder, RunSpec(rows=rows, phases=[phase]))


def test_a_run_up_a_staircase_names_its_saturation(tmp_path: Path) -> None:
    examined = examine(staircase_run(tmp_path / "run", RATES))
    (found,) = examined.digest.findings.saturation
    assert found.lo is not None
    assert found.hi is not None
    assert found.lo <= CAPACITY_PER_S <= found.hi
    assert found.departs is not None
    assert found.departs >= 0.95 * CAPACITY_PER_S
    assert found.growing
    bounded = [point.latency["e2e"] for point in examined.digest.curve if point.latency["e2e"].p95_lo is not None]
    assert all((row.p95_lo or 0) < (row.p95 or 0) < (row.p95_hi or 0) for row in bounded)
    assert any(text.startswith("Saturates at") for text in examined.digest.standouts)


def test_a_climb_that_stops_early_is_not_saturated(tmp_path: Path) -> None:
    (found,) = saturations(load_run(staircase_run(tmp_path / "run", CALM_RATES)))
    assert found.plateau is None
    assert found.sentence.startswith("Not saturated up to")


def test_five_levels_are_too_few_to_say(tmp_path: Path) -> None:
    assert saturations(load_run(staircase_run(tmp_path / "run", RATES[4:]))) == ()


def test_a_stationary_service_is_rarely_called_unsteady() -> None:
    e2e = stream(np.random.default_rng(31), 200, 2_000, 0.5).e2e
    cuts = [guarded_cut(x) for x in e2e]
    assert np.mean([cut is None or cut > 200 for cut in cuts]) <= 0.08


def slow_start(rng: np.random.Generator, trials: int, decay_s: float) -> tuple[Floats, Floats, Floats]:
    """Return arrivals, TTFT and E2E of a service at half load that is twice as slow at first."""
    at = np.cumsum(gaps(rng, trials, 1_000, 0.5 * CAPACITY_PER_S), axis=1)
    prefill, decode = (part * (1 + np.exp(-at / decay_s)) for part in service(rng, *at.shape))
    ttft = waits(at, prefill + decode) + prefill
    return at, ttft, ttft + decode


def test_a_service_that_starts_slow_is_mostly_found_out() -> None:
    _, _, e2e = slow_start(np.random.default_rng(33), 100, 60)
    cuts = [guarded_cut(x) for x in e2e]
    assert np.mean([cut is None or cut > 100 for cut in cuts]) >= 0.7


def test_a_phase_that_is_not_steady_marks_the_verdict(tmp_path: Path) -> None:
    at, ttft, e2e = (part[0] for part in slow_start(np.random.default_rng(34), 1, 120))
    rows = [
        row(k, sent_ns=int(at[k] * S), ttft_ns=int(ttft[k] * S), tokens=2, gap_ns=int((e2e - ttft)[k] * S))
        for k in range(1_000)
    ]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, at[-1] + 1)]))
    (found,) = settling(load_run(folder))
    assert found.begins_s is None or 50 < found.begins_s < 450
    verdict = examine(folder).digest.manifest.verdict
    assert verdict is not None
    assert verdict.valid
    assert any("steady" in reason for reason in verdict.reasons)


def spiky_run(folder: Path, calm_s: float, spikes: int = 1, every_s: float = 300) -> tuple[Path, list[float]]:
    """Write a run at 30 % of capacity with spikes to twice it, 25 s long; return when each queue was empty again."""
    rng = np.random.default_rng(71)
    base, peak, length = 0.3 * CAPACITY_PER_S, 2 * CAPACITY_PER_S, 25.0
    segments: list[tuple[float, float]] = []
    for _ in range(spikes):
        segments += [(calm_s if not segments else every_s - length, base), (length, peak)]
    segments.append((every_s - length, base))
    times, start = [], 0.0
    for duration, rate in segments:
        times.append(start + np.sort(rng.uniform(0, duration, rng.poisson(rate * duration))))
        start += duration
    at = np.concatenate(times)[None]
    prefill, decode = service(rng, *at.shape)
    wait = waits(at, prefill + decode)
    rows = [
        row(
            k,
            sent_ns=int(at[0, k] * S),
            ttft_ns=int((wait + prefill)[0, k] * S),
            tokens=2,
            gap_ns=int(decode[0, k] * S),
            phase="spikes",
        )
        for k in range(at.shape[1])
    ]
    planned = Phase(
        name="spikes",
        shape="burst",
        duration_ns=int(start * S),
        segments=tuple(Segment(duration_ns=int(d * S), from_per_s=r, to_per_s=r) for d, r in segments),
    )
    manifest = {"workload": msgspec.to_builtins(workload([planned]))}
    spec = RunSpec(rows=rows, phases=[steady("spikes", 0, start, shape="burst")], manifest=manifest)
    write_run(folder, spec)
    truth = []
    for spike in planned_spikes(load_run(folder)):
        waiting = at[0][(at[0] >= spike.end_s) & (at[0] < spike.until_s) & (wait[0] > 0)]
        first_free = at[0][(at[0] > spike.end_s) & (wait[0] == 0)]
        truth.append(float(first_free[0] - spike.end_s) if len(waiting) else 0.0)
    return folder, truth


def test_the_time_to_get_over_a_spike_is_that_until_the_queue_is_empty(tmp_path: Path) -> None:
    folder, truth = spiky_run(tmp_path / "run", calm_s=240, spikes=6)
    (found,) = recoveries(load_run(folder))
    assert found.refused is None
    errors = [time - real for time, real in zip(found.times_s, truth, strict=True) if time is not None]
    assert len(errors) == 6
    assert all(-5 <= error <= 30 for error in errors)
    assert abs(float(np.median(errors))) <= 10
    assert found.mean_s is not None
    assert found.lo_s is not None
    assert found.hi_s is not None
    assert found.lo_s < found.mean_s < found.hi_s


def test_recovery_needs_two_calm_minutes_before_the_first_spike(tmp_path: Path) -> None:
    folder, _ = spiky_run(tmp_path / "run", calm_s=100)
    (found,) = recoveries(load_run(folder))
    assert found.refused is not None
    assert "100" in found.sentence


def test_the_fluid_time_to_empty_the_queue_agrees(tmp_path: Path) -> None:
    _, truth = spiky_run(tmp_path / "run", calm_s=240, spikes=6)
    assert float(np.mean(truth)) == pytest.approx((2 - 1) * 25 / (1 - 0.3), rel=0.5)
    assert pytest.approx(8 / (0.1 + TOKEN_S * MEAN_TOKENS)) == CAPACITY_PER_S


def arriving_run(folder: Path, lag_s: Floats, n: int = 3_000) -> Path:
    at = np.cumsum(np.random.default_rng(81).exponential(0.1, n))
    rows = [
        row(k, sent_ns=int((at[k] + lag_s[k]) * S), intended_ns=int(at[k] * S), tokens=2, gap_ns=1) for k in range(n)
    ]
    return write_run(folder, RunSpec(rows=rows, phases=[steady("load", 0, float(at[-1]) + 0.1)]))


def test_load_that_was_sent_as_planned_has_no_fault(tmp_path: Path) -> None:
    (found,) = arrivals(load_run(arriving_run(tmp_path / "run", np.full(3_000, 1e-4))))
    assert found.sentence is None
    assert found.planned.cv == pytest.approx(1, abs=0.06)
    assert found.planned.idc[0] == pytest.approx(1, abs=0.25)
    assert found.planned.per_s == pytest.approx(10, rel=0.06)


def test_load_that_was_sent_in_clumps_is_said_with_both_numbers(tmp_path: Path) -> None:
    at = np.cumsum(np.random.default_rng(81).exponential(0.1, 3_000))
    (found,) = arrivals(load_run(arriving_run(tmp_path / "run", np.ceil(at / 2) * 2 - at)))
    assert found.sentence is not None
    assert "CV of gaps" in found.sentence
    assert "send lag p99" in found.sentence
    assert found.worst >= 10
    assert found.sent_n == found.planned_n == 3_000


def test_a_phase_of_levels_or_without_a_peak_has_no_spike(tmp_path: Path) -> None:
    levels = tuple(Segment(duration_ns=S, from_per_s=r, to_per_s=r, step=k) for k, r in enumerate((5.0, 20.0)))
    even = tuple(Segment(duration_ns=S, from_per_s=5, to_per_s=5) for _ in range(2))
    planned = [
        Phase(name="levels", shape="steps", duration_ns=2 * S, segments=levels),
        Phase(name="even", shape="burst", duration_ns=2 * S, segments=even),
    ]
    phases = [steady("levels", 0, 2, shape="steps"), steady("even", 2, 4, shape="burst")]
    rows = [row(0, sent_ns=S, phase="levels"), row(1, sent_ns=3 * S, phase="even")]
    manifest = {"workload": msgspec.to_builtins(workload(planned))}
    write_run(tmp_path / "run", RunSpec(rows=rows, phases=phases, manifest=manifest))
    assert planned_spikes(load_run(tmp_path / "run")) == ()
