"""What a notebook sees."""

import warnings
from pathlib import Path

import pytest
from tests.builders import RunSpec, S, busy_run, events, query, row, small_run, steady, write_run

import servebench
from servebench.analysis.run import InvalidRunWarning
from servebench.core.errors import InputError


def test_chunks_are_one_row_per_event(tmp_path: Path) -> None:
    folder = busy_run(tmp_path / "run")
    (truth,) = query(f"select sum(len(chunk_ns)) from read_parquet('{folder}/requests/*.parquet')")
    frame = servebench.open_run(folder).chunks()
    assert len(frame) == truth[0]
    assert list(frame.columns) == [
        "seq", "attempt", "chunk", "ns", "delay_ns", "kind", "tokens", "read", "choice", "worker", "phase",
    ]  # fmt: skip
    assert frame["chunk"].iloc[0] == 0
    assert frame["delay_ns"].isna().all()


def test_requests_carry_the_metrics_of_each_row_in_ns(tmp_path: Path) -> None:
    frame = servebench.open_run(small_run(tmp_path / "run", count=3)).requests
    assert frame["ttft_ns"].tolist() == [100e6] * 3
    assert frame["tpot_ns_per_token"].tolist() == [10e6] * 3
    assert frame["sent_ns"].tolist() == [0, S, 2 * S]


def test_one_metric_can_be_asked_for_and_a_misspelt_one_lists_the_known(tmp_path: Path) -> None:
    run = servebench.open_run(small_run(tmp_path / "run", count=3))
    assert run.table(metric="tpot")["p50"].tolist() == [10, 10]
    with pytest.raises(InputError, match="chunk_gap"):
        run.table(metric="tpott")


def test_an_invalid_run_warns_once_at_open(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq, outcome="timeout") | events() for seq in range(3)]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 1)]))
    with pytest.warns(InvalidRunWarning, match="no measured request") as caught:
        run = servebench.open_run(folder)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.table()


def test_a_valid_run_opens_without_a_word_and_shows_a_card(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = servebench.open_run(small_run(tmp_path / "run", count=3))
    assert "VALID" in repr(run)
    assert "planned 3, rows 3, lost 0" in repr(run)


def test_the_card_shows_text_of_the_run_as_text(tmp_path: Path) -> None:
    phase = steady("load", 0, 3)
    rows = [row(seq, sent_ns=seq * S) for seq in range(3)]
    spec = RunSpec(rows=rows, phases=[phase], manifest={"stop_cause": "<img src=x>"})
    with pytest.warns(InvalidRunWarning):
        html = servebench.open_run(write_run(tmp_path / "run", spec))._repr_html_()
    assert "<img" not in html
    assert "&lt;img" in html


def test_reading_writes_nothing(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run", count=3)
    before = sorted(folder.rglob("*"))
    servebench.open_run(folder).table()
    assert sorted(folder.rglob("*")) == before


def test_a_plot_of_the_report_is_a_figure_and_a_misspelt_one_lists_the_known(tmp_path: Path) -> None:
    run = servebench.open_run(small_run(tmp_path / "run", count=20))
    assert run.plot("ecdf-ttft").data[0].name == "load (n 20)"
    with pytest.raises(InputError, match="throughput"):
        run.plot("thruput")


def test_the_card_names_verdict_objectives_rows_planned_lost_phases_and_the_next_call(tmp_path: Path) -> None:
    card = repr(servebench.open_run(busy_run(tmp_path / "run")))
    for word in (
        "verdict",
        "objective",
        "TTFT p95 < 800 ms",
        "planned",
        "rows",
        "lost 0",
        "warmup, ramp, burst",
        "run.table()",
    ):
        assert word in card
