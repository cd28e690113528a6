"""What leaves a run in the forms of others, read by readers that are not ours."""

import json
from pathlib import Path

import pytest
from tests.builders import RunSpec, S, busy_run, events, query, row, steady, write_run

from servebench.analysis.digest import examine
from servebench.analysis.exports.events import write_chunks
from servebench.analysis.exports.vllm import vllm_result
from servebench.analysis.source import load_run


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_every_event_is_one_row_that_duckdb_reads(tmp_path: Path, form: str) -> None:
    folder = busy_run(tmp_path / "run")
    path = tmp_path / f"chunks.{form}"
    rows = write_chunks(load_run(folder), path, "parquet" if form == "parquet" else "csv")
    reader = f"read_parquet('{path}')" if form == "parquet" else f"read_csv('{path}')"
    (truth,) = query(f"""
        select count(*), sum(ns), count(*) filter (kind = 'content') from (
            select unnest(chunk_ns) as ns, unnest(chunk_kind) as kind
            from read_parquet('{folder}/requests/*.parquet'))
        """)
    (found,) = query(f"select count(*), sum(ns), count(*) filter (kind = 'content') from {reader}")
    assert found == truth
    assert rows == truth[0]
    assert query(f"select count(*) from {reader} where tokens is not null or delay_ns is not null") == [(0,)]
    assert not path.with_name(path.name + ".tmp").exists()


def test_a_worker_name_in_csv_is_no_formula(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", RunSpec(rows=[row(0, sent_ns=0, worker="=1+1")], phases=[steady("load", 0, 1)], parts=1)
    )
    write_chunks(load_run(folder), tmp_path / "chunks.csv", "csv")
    assert "'=1+1" in (tmp_path / "chunks.csv").read_text()


def test_the_result_file_of_vllm_holds_its_numbers_and_its_lists(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S, input_tokens=20 + k) | {"end_ns": k * S + 140_000_000} for k in range(3)]
    rows.append(row(3, sent_ns=3 * S, outcome="http_error", end_ns=3 * S + 5) | events())
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 4)]))
    found = json.loads(vllm_result(examine(folder)))
    assert (found["completed"], found["failed"], found["num_prompts"]) == (3, 1, 4)
    assert found["ttfts"] == [0.1, 0.1, 0.1]
    assert found["itls"] == [[0.01] * 3] * 3
    assert found["input_lens"] == [20, 21, 22]
    assert found["output_lens"] == [4, 4, 4]
    assert found["mean_ttft_ms"] == pytest.approx(100)
    assert found["median_tpot_ms"] == pytest.approx(10)
    assert found["p99_itl_ms"] == pytest.approx(10)
    assert found["date"] == "20260903-121203"
    assert found["total_output_tokens"] == 12


def test_a_run_without_an_answer_has_a_result_file_without_nan(tmp_path: Path) -> None:
    rows = [row(0, sent_ns=0, outcome="timeout", end_ns=S) | events()]
    text = vllm_result(examine(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 2)])))).decode()
    assert "NaN" not in text
    assert json.loads(text)["mean_ttft_ms"] is None
