"""A long steady phase over time: drift, a step, stalls in a rhythm, memory; each made by hand in 40 minutes of rows."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.builders import MS, RUN_ID, Row, RunSpec, S, row, steady, write_run

from servebench.analysis.digest import examine
from servebench.analysis.soak import Drift, drifts, growths, periodic_stalls
from servebench.analysis.source import load_run
from servebench.shards.health_schema import HealthRow, health_table

MINUTES = 40


def rows_of(rng: np.random.Generator, *, drift: float = 0.0, step: float = 0.0, every_s: float = 0.0) -> list[Row]:
    """Return a request a second; `every_s`: the request sent then has a gap of 900 ms."""
    count = 60 * MINUTES
    level = np.exp(np.log1p(drift) * np.arange(count) / count + np.log1p(step) * (np.arange(count) >= 0.6 * count))
    ttft = 100 * rng.lognormal(0, 0.1, count) * level
    made = [
        row(k, sent_ns=k * S, ttft_ns=int(ttft[k] * MS), tokens=3, gap_ns=20 * MS, phase="soak") for k in range(count)
    ]
    for k in np.arange(7, count, every_s).astype(int) if every_s else ():
        stamps = made[k]["chunk_ns"]
        made[k]["chunk_ns"] = [stamps[0], stamps[1], stamps[2] + 900 * MS, stamps[3] + 900 * MS]
        made[k]["end_ns"] = stamps[3] + 900 * MS
    return made


def run_of(folder: Path, rows: list[Row], shape: str = "soak") -> Path:
    return write_run(folder, RunSpec(rows=rows, phases=[steady("soak", 0, 60 * MINUTES, shape=shape)]))


def of(found: tuple[Drift, ...], metric: str, quantile: str) -> Drift:
    return next(item for item in found if (item.metric, item.quantile) == (metric, quantile))


def test_a_drift_is_told_with_its_interval(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", rows_of(np.random.default_rng(1), drift=0.2))
    found = of(drifts(load_run(folder)), "ttft", "p50")
    assert found.lo is not None
    assert found.hi is not None
    assert found.lo < 0.2 < found.hi
    assert found.kind in {"drift", "drift or step"}
    assert any("TTFT p50 in soak drifts by +" in text for text in examine(folder).digest.findings.sentences)


def test_a_step_is_told_with_its_moment(tmp_path: Path) -> None:
    found = of(drifts(load_run(run_of(tmp_path / "run", rows_of(np.random.default_rng(2), step=0.3)))), "ttft", "p50")
    assert found.kind == "step"
    assert found.steps_s[0] == pytest.approx(0.6 * 60 * MINUTES, abs=120)


def test_an_even_phase_neither_drifts_nor_jumps(tmp_path: Path) -> None:
    run = load_run(run_of(tmp_path / "run", rows_of(np.random.default_rng(3))))
    assert {item.kind for item in drifts(run)} == {"none"}
    assert periodic_stalls(run) == ()


def test_stalls_that_come_back_are_told_with_their_period(tmp_path: Path) -> None:
    run = load_run(run_of(tmp_path / "run", rows_of(np.random.default_rng(4), every_s=30)))
    (found,) = periodic_stalls(run)
    assert found.period_s == pytest.approx(30, rel=0.02)
    assert found.events == pytest.approx(60 * MINUTES / 30, abs=2)


@pytest.mark.parametrize("shape", ["diurnal", "burst"])
def test_load_that_changes_is_not_judged_over_time(tmp_path: Path, shape: str) -> None:
    run = load_run(run_of(tmp_path / "run", rows_of(np.random.default_rng(5), drift=0.5), shape))
    assert drifts(run) == ()
    assert periodic_stalls(run) == ()


def test_memory_of_the_client_that_grows_is_told(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", rows_of(np.random.default_rng(6)))
    rng = np.random.default_rng(7)
    rows = [
        HealthRow(
            t_ns=(second + 1) * S,
            span_ns=S,
            hub_lag_p50_ns=None,
            hub_lag_p99_ns=None,
            hub_lag_max_ns=None,
            hub_lag_idle_ns=None,
            cpu_share=0.2,
            rss_bytes=int(100e6 * (1 + 0.3 * second / (60 * MINUTES)) + rng.normal(0, 1e6)),
            gc_pauses=0,
            gc_pause_max_ns=None,
            inflight=1,
            sent=1,
            reads=1,
            read_delay_p99_ns=None,
            dispatch_lag_p99_ns=None,
            dispatch_lag_max_ns=None,
            spoiled=False,
        )
        for second in range(60 * MINUTES)
    ]
    stamped = health_table(rows, run_id=RUN_ID, worker="w0-aaaaaaaa").replace_schema_metadata(
        {"run_id": RUN_ID, "worker": "w0-aaaaaaaa", "schema_version": "1.0"}
    )
    (folder / "health").mkdir()
    pq.write_table(stamped, folder / "health" / "part-w0-aaaaaaaa-000000.parquet")
    (found,) = growths(load_run(folder))
    assert found.grows
    assert found.change == pytest.approx(0.3, abs=0.03)
    assert found.bytes_per_hour == pytest.approx(0.3 * 100e6 * 60 / MINUTES, rel=0.25)
