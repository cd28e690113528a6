"""The steps of answers stand in the tables of the run that made them, and add up to the time of its answers."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.builders import MS, RUN_ID, RunSpec, S, row, steady, write_run

from servebench.analysis.digest import examine
from servebench.analysis.merge import merge
from servebench.analysis.report import write_report
from servebench.analysis.run import open_run
from servebench.analysis.source import load_run
from servebench.analysis.steps import means_ms
from servebench.analysis.tables import percentile_table
from servebench.cli.main import cli
from servebench.core.errors import InputError
from servebench.shards.parts import PartIdentity, write_table_part
from servebench.shards.span_schema import SpanRow, span_table

WORKER = "w0-aaaaaaaa"
IDENTITY = PartIdentity(run_id=RUN_ID, worker=WORKER, epoch_monotonic_ns=0, epoch_unix_ns=0, boot_id="b")


def answer(seq: int, *steps: tuple[str, int, int], whole_ms: int = 100, attempt: int = 0) -> list[SpanRow]:
    """Return an answer's rows that begins 1 ms after its request was sent; steps are (name, from ms, to ms)."""
    at, asked = seq * S + MS, f"7c1e-{seq}-{attempt}"
    made = [
        SpanRow(seq, number, 0, "question", name, at + begin * MS, at + end * MS, None, asked)
        for number, (name, begin, end) in enumerate(steps, start=1)
    ]
    return [*made, SpanRow(seq, 0, None, "question", "question", at, at + whole_ms * MS, None, asked)]


def write_spans(folder: Path, rows: list[SpanRow]) -> None:
    table = span_table(rows, run_id=RUN_ID, worker=WORKER, epoch_monotonic_ns=0)
    (folder / "spans").mkdir()
    write_table_part(folder / "spans", 0, table, IDENTITY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two phases, answers of 130 ms; the second phase has a step more, one request failed, one has no spans."""
    rows = [row(k, sent_ns=k * S, phase="a" if k < 4 else "b") for k in range(8)]
    rows[3] |= {"outcome": "stream_error", "error_class": "ValueError"}
    made = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("a", 0, 4), steady("b", 4, 8)]))
    spans = [line for k in range(4) for line in answer(k, ("search", 0, 20), ("model", 20, 100))]
    spans += [line for k in range(4, 7) for line in answer(k, ("search", 0, 10), ("tool", 10, 20), ("model", 20, 90))]
    write_spans(made, spans)
    return made


def test_own_times_stand_in_the_table_by_phase_and_over_answers_that_had_the_step(folder: Path) -> None:
    table = percentile_table(load_run(folder))

    def said(step: str, phase: str) -> tuple[int, object]:
        found = table.find(f"step:{step}", phase)
        assert found is not None
        return found.n, found.mean

    assert said("search", "a") == (3, pytest.approx(20.0))
    assert said("search", "b") == (3, pytest.approx(10.0))
    assert said("tool", "a") == (0, None)
    assert said("tool", "b") == (3, pytest.approx(10.0))
    assert said("model", "all") == (6, pytest.approx((3 * 80 + 3 * 70) / 6))
    # What no step covers: 130 ms from sent to end, and the answer without spans is all other.
    assert said("other", "a") == (3, pytest.approx(30.0))
    assert said("other", "b") == (4, pytest.approx((3 * 40 + 130) / 4))


def test_the_means_of_the_steps_add_up_to_the_mean_time_of_the_answers(folder: Path) -> None:
    run = load_run(folder)
    for phase in ("a", "b"):
        means = means_ms(run.steps, run.measured & (run.phase == phase))
        e2e = percentile_table(run).find("e2e", phase)
        assert e2e is not None
        assert sum(means.values()) == pytest.approx(e2e.mean)
    assert means_ms(run.steps, run.measured & (run.phase == "none")) == {}


def test_a_run_of_requests_has_no_steps(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S) for k in range(3)]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 3)])))
    assert run.steps == {}
    assert not any(line.metric.startswith("step:") for line in percentile_table(run).rows)


def test_two_answers_of_one_request_add_up_and_those_of_other_runs_do_not_count(tmp_path: Path) -> None:
    rows = [row(0, sent_ns=0), row(1, sent_ns=S)]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 2)]))
    twice = [line._replace(answer_id=9) for line in answer(0, ("model", 30, 60))]
    strange = [line._replace(answer_id=10) for line in answer(7, ("model", 0, 5))]
    alone = [line._replace(answer_id=11, request_id=None) for line in answer(1, ("model", 0, 50))]
    write_spans(folder, [*answer(0, ("model", 0, 25)), *twice, *strange, *alone])
    run = load_run(folder)
    assert means_ms(run.steps, run.seq == 0) == {"model": pytest.approx(55.0), "other": pytest.approx(75.0)}
    assert means_ms(run.steps, run.seq == 1)["model"] == 0


def test_a_notebook_asks_for_one_step_and_a_misspelt_one_lists_those_of_the_run(folder: Path) -> None:
    run = open_run(folder)
    found = run.table(metric="step:model")
    assert dict(zip(found["phase"], found["mean"], strict=True)) == pytest.approx({"a": 80.0, "b": 70.0, "all": 75.0})
    with pytest.raises(InputError, match="step:model, step:search, step:tool, step:other"):
        run.table(metric="step:modle")


def test_merge_report_and_table_show_the_steps(folder: Path) -> None:
    merge(folder)
    with (folder / "tables" / "percentiles.csv").open(encoding="utf-8", newline="") as file:
        lines = {(line["metric"], line["phase"]): line for line in csv.DictReader(file)}
    assert float(lines["step:model", "b"]["mean"]) == pytest.approx(70.0)
    page = write_report(folder, examine(folder)).read_text(encoding="utf-8")
    assert "Where the time of an answer goes" in page
    assert "step: search" in page
    shown = CliRunner().invoke(cli, ["table", str(folder), "--format", "md"])
    assert shown.exit_code in {0, 3}
    assert "| step:tool | ms | b | 3 | 10.0 |" in shown.stdout


def test_a_damaged_part_of_spans_is_a_fault_of_the_run(folder: Path) -> None:
    part = next((folder / "spans").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:200])
    run = load_run(folder)
    assert run.steps == {}
    assert any(fault.startswith("spans/") for fault in run.faults)


def test_throughput_of_prompts_that_nobody_counted_is_undefined(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S, input_tokens=None) for k in range(3)]
    table = percentile_table(load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 3)]))))
    for metric in ("input_token_throughput", "total_token_throughput"):
        found = table.find(metric, "all")
        assert found is not None
        assert found.mean is None
