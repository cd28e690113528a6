"""First and later turns of conversations are told apart in the tables."""

import csv
from pathlib import Path

import pytest
from tests.builders import MS, RunSpec, S, query, row, small_run, steady, write_run

from servebench.analysis.merge import merge

TTFT = """
    select if(turn > 0, 'later', 'first') as turns, count(*), quantile_cont(v, 0.5) from (
        select turn, (list_min(list_transform(
            list_filter(list_zip(chunk_ns, chunk_kind), lambda x: x[2] = 'content'), lambda x: x[1])) - sent_ns) / 1e6
        as v from read_parquet('{folder}/requests/*.parquet') where outcome = 'ok' and measured)
    group by turns
"""


def test_each_metric_has_a_row_of_first_and_one_of_later_turns_as_duckdb_computes_them(tmp_path: Path) -> None:
    rows = [
        row(k, sent_ns=k * S, ttft_ns=(400 if k % 3 == 0 else 90 + k) * MS, phase="main", session=k // 3, turn=k % 3)
        for k in range(30)
    ]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("main", 0, 31)]))
    merge(folder)
    lines = list(csv.DictReader((folder / "tables" / "turns.csv").read_text("utf-8").splitlines()))
    found = {line["turns"]: line for line in lines if line["metric"] == "ttft"}
    truth = query(TTFT.format(folder=folder))
    assert (
        {turns: int(found[turns]["n"]) for turns in found}
        == {turns: n for turns, n, _ in truth}
        == {
            "first": 10,
            "later": 20,
        }
    )
    for turns, _, p50 in truth:
        assert float(found[turns]["p50"]) == pytest.approx(p50)


def test_a_run_without_conversations_has_no_such_table(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    merge(folder)
    assert not (folder / "tables" / "turns.csv").exists()
