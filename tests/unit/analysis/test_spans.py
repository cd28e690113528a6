"""The parts of an answer add up to its time, whatever its steps do; recorded steps are found again."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import query

from servebench.analysis.spans import Span, breakdowns, own_times
from servebench.cli.main import cli
from servebench.core.errors import ShardError
from servebench.loadgen.spans import Spans


def test_a_step_has_what_no_step_inside_it_has_and_the_rest_is_other() -> None:
    spans = [Span(1, 0, "retrieval", 10, 40), Span(2, 1, "embed", 10, 15), Span(3, 0, "model", 50, 90)]
    assert own_times(0, 100, spans) == {"other": 30, "embed": 5, "retrieval": 25, "model": 40}


def test_steps_side_by_side_share_their_time_and_one_name_adds_up() -> None:
    spans = [
        Span(1, 0, "tool a", 0, 60),
        Span(2, 0, "tool b", 0, 20),
        Span(3, 0, "model", 60, 80),
        Span(4, 0, "model", 80, 100),
    ]
    assert own_times(0, 100, spans) == {"tool a": 50, "tool b": 10, "model": 40}


def test_what_lies_outside_the_answer_does_not_count() -> None:
    assert own_times(10, 20, [Span(1, 0, "model", 0, 15)]) == {"model": 5, "other": 5}
    assert own_times(10, 10, [Span(1, 0, "model", 10, 10)]) == {}


SPANS = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 5)), max_size=6)


@given(SPANS)
def test_the_parts_add_up_to_the_whole(drawn: list[tuple[int, int, int]]) -> None:
    spans = [
        Span(number, min(parent, number - 1), f"step {number % 3}", min(a, b), max(a, b))
        for number, (a, b, parent) in enumerate(drawn, start=1)
    ]
    found = own_times(0, 100, spans)
    assert sum(found.values()) == pytest.approx(100)
    assert min(found.values()) >= 0


def lose(number: int) -> None:
    raise KeyError(number)


def record(folder: Path, answers: int) -> list[dict[str, object]]:
    """Record answers of a search and a model call with a step inside, every fifth of which raises; return Locust's."""
    told: list[dict[str, object]] = []
    spans = Spans(folder, fire=lambda **event: told.append(event))
    for number in range(answers):
        try:
            with spans.answer("question") as answer:
                with answer.span("search"):
                    pass
                with answer.span("model") as model, model.span("stream"):
                    if number % 5 == 4:
                        lose(number)
        except KeyError:
            continue
    spans.close()
    return told


def test_answers_and_their_steps_are_recorded_with_what_they_raised(tmp_path: Path) -> None:
    told = record(tmp_path / "rag", 10)
    assert [event["name"] for event in told] == ["question"] * 10
    assert sum(isinstance(event["exception"], KeyError) for event in told) == 2
    rows = query(
        f"select span, number, parent, count(*), count(error), min(end_ns - start_ns) >= 0 "
        f"from '{tmp_path}/rag/spans/*.parquet' group by all order by number"
    )
    assert rows == [
        ("question", 0, None, 10, 2, True),
        ("search", 1, 0, 10, 0, True),
        ("model", 2, 0, 10, 2, True),
        ("stream", 3, 2, 10, 2, True),
    ]


def test_the_breakdown_leaves_out_what_raised_and_its_means_add_up(tmp_path: Path) -> None:
    record(tmp_path / "rag", 10)
    (found,) = breakdowns(tmp_path / "rag")
    assert (found.answer, found.ok, found.failed, found.p95) == ("question", 8, 2, None)
    assert {part.span for part in found.parts} == {"search", "model", "stream", "other"}
    assert found.mean is not None
    assert sum(part.mean for part in found.parts) == pytest.approx(found.mean)
    assert sum(part.share for part in found.parts) == pytest.approx(1)


def test_several_processes_record_into_one_folder(tmp_path: Path) -> None:
    record(tmp_path / "rag", 3)
    record(tmp_path / "rag", 4)
    (found,) = breakdowns(tmp_path / "rag")
    assert found.ok == 7


def test_the_command_prints_and_draws_and_a_folder_without_spans_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "rag", 4)
    page = tmp_path / "rag.html"
    shown = CliRunner().invoke(cli, ["spans", str(tmp_path / "rag"), "--html", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "question" in shown.stdout
    assert "search" in shown.stdout
    assert "Where the time of an answer goes" in page.read_text(encoding="utf-8")
    read = json.loads(CliRunner().invoke(cli, ["spans", str(tmp_path / "rag"), "--format", "json"]).stdout)
    assert [row["span"] for row in read[:1]] == [None]
    assert sum(row["share"] for row in read[1:]) == pytest.approx(1, abs=1e-4)
    with pytest.raises(ShardError):
        breakdowns(tmp_path)
