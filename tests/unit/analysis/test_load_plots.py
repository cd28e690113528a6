"""The figures under load: what is drawn, what is left out, and what is said in its place."""

from pathlib import Path

import pytest
from tests.builders import MS, RunSpec, S, busy_run, row, steady, write_run

from servebench.analysis.digest import examine
from servebench.analysis.numbers import UNDEFINED
from servebench.analysis.plots.figure import Plot, axis_unit
from servebench.analysis.plots.spread import TABLE_QUANTILES, distributions
from servebench.analysis.plots.underload import load_plots
from servebench.shards.manifest import StepRecord


def plots(folder: Path) -> dict[str, Plot]:
    found = examine(folder).digest
    return {plot.name: plot for plot in load_plots(found.curve, found.objectives, found.findings.saturation)}


def levels_of_40(folder: Path, ttft_ns: int = 100 * MS) -> Path:
    steps = [StepRecord(index=k, start_ns=20 * k * S, end_ns=20 * (k + 1) * S, rate_per_s=2) for k in range(2)]
    rows = [row(k, sent_ns=k * S // 2, step=k // 40, ttft_ns=ttft_ns) for k in range(80)]
    return write_run(folder, RunSpec(rows=rows, phases=[steady("load", 0, 40, steps=steps)]))


def test_a_quantile_that_no_level_has_samples_for_gets_a_sentence_and_no_line(tmp_path: Path) -> None:
    plot = plots(levels_of_40(tmp_path / "run"))["ttft-load"]
    assert [trace.name for trace in plot.figure.data] == ["p50"]
    assert "p95 needs 200 samples: hidden at 2 of 2 levels." in plot.summary
    assert "p99 needs 1,000 samples: hidden at 2 of 2 levels." in plot.summary


def test_latency_above_9999_ms_is_drawn_in_seconds(tmp_path: Path) -> None:
    plot = plots(levels_of_40(tmp_path / "run", ttft_ns=12 * S))["ttft-load"]
    assert plot.figure.layout.yaxis.title.text == "TTFT (s)"
    assert list(plot.figure.data[0].y) == [12.0, 12.0]
    assert plot.data.rows[0][3] == "12.0"
    assert axis_unit("ms", 9_999) == ("ms", 1.0)


def test_the_throughput_figure_shows_answers_a_band_of_latency_and_requests_in_flight(tmp_path: Path) -> None:
    found = examine(busy_run(tmp_path / "run"))
    plot = plots(tmp_path / "run")["throughput"]
    climb = [point for point in found.digest.curve if point.level.phase == "ramp"]
    drawn = {axis: [t for t in plot.figure.data if t.yaxis == axis and t.legendgroup == "ramp"] for axis in ("y", "y2")}
    assert list(drawn["y"][0].y) == [round(point.achieved_per_s, 3) for point in climb]
    p50, p95, band = drawn["y2"]
    both = [point for point in climb if point.latency["ttft"].p95 is not None]
    assert list(p95.y) == [point.latency["ttft"].p95 for point in climb]
    assert list(band.x) == [p.level.offered_per_s for p in (*both, *reversed(both))]
    assert list(band.y)[: len(both)] == [y for y, top in zip(p50.y, p95.y, strict=True) if top is not None]
    (in_flight,) = [t for t in plot.figure.data if t.yaxis == "y3" and t.legendgroup == "ramp"]
    assert in_flight.y[0] == pytest.approx(climb[0].in_flight_mean, abs=5e-4)


def test_every_panel_of_the_throughput_figure_has_its_numbers_in_the_table(tmp_path: Path) -> None:
    plot = plots(busy_run(tmp_path / "run"))["throughput"]
    assert plot.data.head[0] == "series"
    assert {"answered /s", "in flight", "TTFT p50, ms", "TTFT p95, ms"} <= set(plot.data.head)
    assert all(len(cells) == len(plot.data.head) for cells in plot.data.rows)


def test_a_distribution_tells_no_quantile_for_which_samples_are_too_few(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq * S) for seq in range(150)]
    run = examine(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 150)]))).run
    told = {plot.name: plot.data.rows[0][2:] for plot in distributions(run)}
    shown = [q for q, cell in zip(TABLE_QUANTILES, told["ecdf-ttft"], strict=True) if cell != UNDEFINED]
    assert shown == [0.01, 0.1, 0.25, 0.5, 0.75, 0.9]
    shown = [q for q, cell in zip(TABLE_QUANTILES, told["ecdf-chunk_gap"], strict=True) if cell != UNDEFINED]
    assert shown == [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]
