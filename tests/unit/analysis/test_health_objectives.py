"""Seconds that the client spoiled, and objectives at their limits."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.builders import RUN_ID, S, small_run

from servebench.analysis.digest import examine
from servebench.analysis.objectives import assess, overall, quantile_label
from servebench.analysis.report import write_report
from servebench.shards.health_schema import HealthRow, health_table
from servebench.workload.model import Objective

MEASURED = {"ttft": np.random.default_rng(5).permutation(np.linspace(1e6, 100e6, 1000))}


def write_health(folder: Path, worker: str, spoiled: set[int], seconds: int) -> None:
    rows = [
        HealthRow(
            t_ns=(second + 1) * S,
            span_ns=S,
            hub_lag_p50_ns=100_000,
            hub_lag_p99_ns=40_000_000 if second in spoiled else 1_000_000,
            hub_lag_max_ns=50_000_000,
            hub_lag_idle_ns=500_000,
            cpu_share=0.4,
            rss_bytes=100_000_000,
            gc_pauses=0,
            gc_pause_max_ns=None,
            inflight=1,
            sent=1,
            reads=5,
            read_delay_p99_ns=None,
            dispatch_lag_p99_ns=None,
            dispatch_lag_max_ns=None,
            spoiled=second in spoiled,
        )
        for second in range(seconds)
    ]
    (folder / "health").mkdir(exist_ok=True)
    table = health_table(rows, run_id=RUN_ID, worker=worker)
    stamped = table.replace_schema_metadata({"run_id": RUN_ID, "worker": worker, "schema_version": "1.0"})
    pq.write_table(stamped, folder / "health" / f"part-{worker}-000000.parquet")


@pytest.mark.parametrize(
    ("first", "second", "clean", "valid"),
    [(set(), set(), 40, True), ({3}, {3, 7}, 38, True), ({1, 2}, {3}, 37, False)],
    ids=["clean", "two seconds, one of them on both workers", "three seconds of forty"],
)
def test_a_second_is_spoiled_when_any_worker_was_the_limit(
    tmp_path: Path, first: set[int], second: set[int], clean: int, valid: bool
) -> None:
    folder = small_run(tmp_path / "run", count=40)
    write_health(folder, "w0-aaaaaaaa", first, 40)
    write_health(folder, "w1-bbbbbbbb", second, 40)
    found = examine(folder).digest
    assert found.client.known
    assert (found.client.clean_s, found.client.seconds) == (clean, 40)
    assert found.manifest.verdict is not None
    assert found.manifest.verdict.valid is valid
    assert 'data-plot="hub-lag"' in write_report(folder).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("limit_ms", "state", "word"),
    [(200, "met", "met"), (100, "close", "met"), (95, "undecided", "undecided"), (50, "missed", "missed")],
)
def test_an_objective_is_met_or_missed_when_the_whole_interval_says_so(limit_ms: float, state: str, word: str) -> None:
    results = assess([Objective(metric="ttft", quantile=0.95, limit=limit_ms * 1e6)], MEASURED, {})
    assert [result.state for result in results] == [state]
    assert results[0].measured == pytest.approx(np.quantile(MEASURED["ttft"], 0.95) / 1e6)
    assert overall(results) == word


def test_too_few_samples_leave_an_objective_undecided() -> None:
    results = assess([Objective(metric="ttft", quantile=0.999, limit=1e12)], MEASURED, {})
    assert results[0].state == "too few samples"
    assert results[0].measured is None
    assert overall(results) == "undecided"


def test_a_share_without_any_ended_request_is_undecided() -> None:
    results = assess([Objective(metric="error_rate", quantile=None, limit=0.01)], {}, {"error_rate": np.empty(0)})
    assert results[0].state == "too few samples"


def test_no_objectives_have_their_own_word() -> None:
    assert overall(()) == "none"


@pytest.mark.parametrize(("q", "label"), [(0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (0.999, "p999")])
def test_quantiles_are_labelled_as_people_write_them(q: float, label: str) -> None:
    assert quantile_label(q) == label


def test_the_bounds_of_a_percentile_lie_around_it() -> None:
    (result,) = assess([Objective(metric="ttft", quantile=0.95, limit=1e12)], MEASURED, {})
    assert result.measured is not None
    assert result.lo is not None
    assert result.hi is not None
    assert result.lo < result.measured < result.hi
    assert 500 < result.n_eff <= 1000


@pytest.mark.parametrize(
    ("errors", "n", "state"),
    [(0, 100, "undecided"), (0, 400, "met"), (30, 400, "missed"), (4, 400, "undecided")],
    ids=["too short for 1 %", "clean", "clearly over", "at the limit"],
)
def test_an_error_rate_is_judged_by_its_interval(errors: int, n: int, state: str) -> None:
    flags = np.zeros(n)
    flags[: errors * (n // max(errors, 1)) : n // max(errors, 1)] = errors > 0
    (result,) = assess([Objective(metric="error_rate", quantile=None, limit=0.01)], {}, {"error_rate": flags})
    assert result.measured == pytest.approx(100 * errors / n)
    assert result.state == state


def test_where_the_interval_is_refused_the_share_above_the_limit_decides_if_it_can() -> None:
    late = np.repeat([1e6, 1e6, 1e6, 9e6], 75)
    (result,) = assess([Objective(metric="ttft", quantile=0.95, limit=5e6)], {"ttft": late}, {})
    assert result.lo is None
    assert result.state in {"missed", "undecided"}
