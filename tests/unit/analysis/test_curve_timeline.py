"""Levels and series of runs that are simple enough to count by hand."""

from pathlib import Path

import numpy as np
import pytest
from tests.builders import MS, RunSpec, S, row, small_run, steady, write_run

from servebench.analysis.curve import curve
from servebench.analysis.source import load_run
from servebench.analysis.timeline import timeline
from servebench.analysis.windows import phase_windows, sent_outside
from servebench.shards.manifest import StepRecord


def test_each_step_of_a_phase_is_a_level_with_its_own_rates(tmp_path: Path) -> None:
    steps = [
        StepRecord(index=0, start_ns=0, end_ns=10 * S, rate_per_s=1),
        StepRecord(index=1, start_ns=10 * S, end_ns=20 * S, rate_per_s=2),
    ]
    rows = [row(k, sent_ns=k * S, step=0) for k in range(10)]
    rows += [row(10 + k, sent_ns=10 * S + k * S // 2, step=1, ttft_ns=200 * MS) for k in range(20)]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 20, steps=steps)])))
    first, second = curve(run)
    assert (first.level.offered_per_s, first.achieved_per_s, first.rows) == (1, 1, 10)
    assert (second.level.offered_per_s, second.achieved_per_s, second.rows) == (2, 2, 20)
    assert (first.latency["ttft"].p50, second.latency["ttft"].p50) == (100, 200)
    assert first.in_flight_mean == pytest.approx(0.13)  # one request a second that lasts 130 ms
    assert second.in_flight_mean == pytest.approx(0.46)


def test_a_phase_without_steps_is_one_level_at_its_mean_rate(tmp_path: Path) -> None:
    (point,) = curve(load_run(small_run(tmp_path / "run", count=20)))
    assert (point.level.phase, point.level.step, point.level.offered_per_s) == ("load", None, 1)
    assert point.record()["ttft_p95_ms"] is None


def test_a_stop_cuts_the_phase_and_leaves_out_those_that_never_began(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S) for k in range(5)]
    phases = [steady("load", 0, 20), steady("later", 20, 40)]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=phases, manifest={"stop_ns": 5 * S})))
    assert phase_windows(run) == {"load": (0, 5 * S)}


def test_the_timeline_counts_each_second(tmp_path: Path) -> None:
    series = timeline(load_run(small_run(tmp_path / "run", count=3)))
    assert series.bin_s == 1
    assert series.sent_per_s.tolist() == [1, 1, 1]
    assert series.answered_per_s.tolist() == [1, 1, 1]
    assert series.output_tokens_per_s.tolist() == [4, 4, 4]
    assert series.in_flight == pytest.approx([0.13, 0.13, 0.13])
    assert series.ttft_p50_ms.tolist() == [100, 100, 100]


def test_a_long_run_gets_wider_bins_and_loses_nothing(tmp_path: Path) -> None:
    run = load_run(small_run(tmp_path / "run", count=50))
    series = timeline(run, max_bins=10)
    assert len(series.start_s) <= 11
    assert np.sum(series.sent_per_s) * series.bin_s == 50


def test_rows_sent_after_their_phase_are_counted(tmp_path: Path) -> None:
    rows = [row(0, sent_ns=5 * S), row(1, sent_ns=10 * S + 3 * MS, intended_ns=10 * S - 1)]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)])))
    assert sent_outside(run) == 1
