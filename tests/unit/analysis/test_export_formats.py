"""What other tools' readers find in our exports; the readers themselves are asked where they are installed."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.builders import RunSpec, S, busy_run, events, query, row, steady, write_run

from servebench.analysis.digest import examine
from servebench.analysis.exports.genai import genai_experiment
from servebench.analysis.exports.llmd import llmd_reports
from servebench.analysis.exports.vllm import vllm_result


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_run(tmp_path_factory.mktemp("busy") / "run")


def test_llm_d_gets_a_report_per_load_level_with_the_numbers_of_duckdb(busy: Path) -> None:
    reports = [yaml.safe_load(content) for content in llmd_reports(examine(busy)).values()]
    assert [r["scenario"]["load"]["standardized"]["stage"] for r in reports] == list(range(5))
    assert [r["scenario"]["load"]["standardized"]["rate_qps"] for r in reports[:4]] == [4, 8, 16, 24]
    (truth,) = query(f"""
        select count(*), avg(v), quantile_cont(v, 0.95), max(v) from (
            select (chunk_ns[1] - sent_ns) / 1e6 as v
            from read_parquet('{busy}/requests/*.parquet') where phase = 'ramp' and step = 2 and outcome = 'ok')
        """)
    found = reports[2]["results"]["request_performance"]["aggregate"]
    ttft = found["latency"]["time_to_first_token"]
    assert ttft["units"] == "ms"
    assert [ttft[name] for name in ("mean", "p95", "max")] == pytest.approx(list(truth[1:]), rel=1e-9)
    (sent, failed) = query(f"""
        select count(*), count(*) filter (outcome <> 'ok')
        from read_parquet('{busy}/requests/*.parquet') where phase = 'ramp' and step = 2
        """)[0]
    assert (found["requests"]["total"], found["requests"]["failures"]) == (sent, failed)


def test_a_level_without_an_answer_leaves_out_what_is_undefined(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S, outcome="timeout", end_ns=k * S + 5) | events() for k in range(3)]
    examined = examine(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 4)])))
    (content,) = llmd_reports(examined).values()
    aggregate = yaml.safe_load(content)["results"]["request_performance"]["aggregate"]
    assert aggregate["latency"] == {}
    assert aggregate["requests"]["failures"] == 3
    assert b"NaN" not in content
    assert b"null" not in content.split(b'"native"')[0]


def test_llm_ds_own_reader_takes_our_reports(busy: Path) -> None:
    core = pytest.importorskip("llmd_benchmark_report.core", reason="llmd-benchmark-report is not installed")
    for content in llmd_reports(examine(busy)).values():
        report = core.yaml_str_to_benchmark_report(content.decode())
        assert report.results.request_performance.aggregate.requests.total > 0


def test_genai_bench_gets_a_file_per_level_whose_aggregates_are_those_of_its_rows(busy: Path) -> None:
    files = {name: json.loads(content) for name, content in genai_experiment(examine(busy)).items()}
    metadata = files.pop("experiment_metadata.json")
    assert metadata["traffic_scenario"] == ["ramp", "burst"]
    assert len(files) == 5
    assert {f["aggregated_metrics"]["num_concurrency"] for f in files.values()} <= set(metadata["num_concurrency"])
    for found in files.values():
        stats, rows = found["aggregated_metrics"]["stats"], found["individual_request_metrics"]
        assert len(rows) == found["aggregated_metrics"]["num_completed_requests"]
        for name in ("ttft", "tpot", "e2e_latency"):
            assert stats[name]["p95"] == pytest.approx(np.quantile([one[name] for one in rows], 0.95))
            assert all(one["e2e_latency"] >= one["ttft"] > 0 for one in rows)


def test_two_levels_of_one_concurrency_do_not_overwrite_each_other(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S, phase=("a", "b")[k // 10]) for k in range(20)]
    spec = RunSpec(rows=rows, phases=[steady("a", 0, 10), steady("b", 10, 20)])
    names = list(genai_experiment(examine(write_run(tmp_path / "run", spec))))
    assert sorted(names)[:2] == [
        "a_text-to-text_num_concurrency_1_time_10s.json",
        "b_text-to-text_num_concurrency_1_time_10s.json",
    ]


def test_errors_of_a_level_are_counted_by_status(busy: Path) -> None:
    files = {name: json.loads(content) for name, content in genai_experiment(examine(busy)).items()}
    (counts,) = query(f"""
        select count(*) filter (http_status = 503), count(*) filter (http_status is null and outcome <> 'ok')
        from read_parquet('{busy}/requests/*.parquet') where measured
        """)
    found = [f["aggregated_metrics"]["error_codes_frequency"] for f in files.values() if "aggregated_metrics" in f]
    assert sum(one.get("503", 0) for one in found) == counts[0]
    assert sum(one.get("-1", 0) for one in found) == counts[1]


def test_a_phase_name_is_no_path_in_a_file_name(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S, phase="../../x y") for k in range(5)]
    spec = RunSpec(rows=rows, phases=[steady("../../x y", 0, 5)])
    names = list(genai_experiment(examine(write_run(tmp_path / "run", spec))))
    assert all("/" not in name and " " not in name for name in names)


def test_vllms_file_has_the_spread_and_the_times_that_its_plots_want(busy: Path) -> None:
    found = json.loads(vllm_result(examine(busy)))
    assert found["std_ttft_ms"] == pytest.approx(1000 * float(np.std(found["ttfts"])), rel=1e-6)
    assert len(found["start_times"]) == len(found["latencies"]) == len(found["ttfts"]) == found["completed"]
