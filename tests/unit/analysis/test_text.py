"""The summary at the end of a run, read as a user reads it."""

from pathlib import Path

import pytest
from tests.builders import RunSpec, S, busy_run, events, row, small_run, steady, write_run

from servebench.analysis.digest import examine
from servebench.analysis.numbers import clock, plain, significant
from servebench.analysis.text import summary_lines


def test_the_summary_fits_thirty_lines_of_eighty_columns(tmp_path: Path) -> None:
    lines = summary_lines(examine(busy_run(tmp_path / "run")).digest, "runs/a", report="runs/a/report.html")
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("? VALID, objectives undecided")
    assert any("n is worth" in line for line in lines), "TTFT of rising load has no interval"
    assert lines[-1] == "Next     servebench table runs/a --by phase"
    assert any("–1" in line for line in lines)  # noqa: RUF001 - the dash shown
    assert any("p999 needs 10,000 samples" in line for line in lines)


def test_a_path_with_blanks_is_quoted_in_the_next_command(tmp_path: Path) -> None:
    lines = summary_lines(examine(small_run(tmp_path / "run")).digest, "my runs/a")
    assert lines[-1] == "Next     servebench table 'my runs/a' --by phase"


def test_an_invalid_run_shows_reasons_and_no_numbers_unless_asked(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq * S) for seq in range(50)]
    spec = RunSpec(rows=rows, phases=[steady("load", 0, 100)], manifest={"planned": 100, "planned_total": 100})
    found = examine(write_run(tmp_path / "run", spec)).digest
    hidden, shown = summary_lines(found, "a"), summary_lines(found, "a", show_invalid=True)
    assert hidden[0].startswith("! INVALID: do not use these numbers")
    assert any("50 of 100" in line for line in hidden)
    assert not any("TTFT" in line for line in hidden)
    assert any("TTFT" in line for line in shown)


def test_control_characters_of_the_server_do_not_reach_the_terminal(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq * S, model="\x1b[2Jm") for seq in range(20)]
    lines = summary_lines(
        examine(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 20)]))).digest, "a"
    )
    assert not any("\x1b" in line for line in lines)


def test_a_run_without_any_answer_is_still_summarised(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=None, outcome="shed") | events() for seq in range(20)]
    found = examine(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 20)]))).digest
    assert any("no measured request was answered" in line for line in summary_lines(found, "a"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.3243, "0.324"),
        (9.996, "10.0"),
        (41.84, "41.8"),
        (612.4, "612"),
        (1209.7, "1,210"),
        (1234567.0, "1,230,000"),
        (-124.2, "-124"),
        (-1e-13, "0"),
        (4e-10, "0"),
        (2e-9, "0.000000002"),
        (float("inf"), "–"),  # noqa: RUF001 - the dash shown
        (float("nan"), "–"),  # noqa: RUF001 - the dash shown
        (None, "–"),  # noqa: RUF001 - the dash shown
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert significant(value) == text


def test_what_is_left_of_a_difference_is_no_negative_zero() -> None:
    assert str(plain(-1e-13)) == "0.0"
    assert str(plain(0.1234567)) == "0.123457"


def test_lengths_of_time_read_as_minutes_and_hours() -> None:
    assert clock(570) == "09:30"
    assert clock(4170) == "1:09:30"


def test_a_long_headline_takes_two_lines(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq * S, model="organisation/a-model-with-a-long-name") for seq in range(20)]
    spec = RunSpec(rows=rows, phases=[steady("load", 0, 20)], manifest={"name": "a-run-with-a-rather-long-name"})
    lines = summary_lines(examine(write_run(tmp_path / "run", spec)).digest, "a")
    assert lines[0] == "✓ VALID, no objectives set"
    assert max(map(len, lines)) <= 80


def test_many_reasons_are_cut_with_a_word_where_the_others_are(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    for number in range(9):
        (folder / "requests" / f"part-bad-{number}.parquet").write_bytes(b"PAR1")
    lines = summary_lines(examine(folder).digest, "a")
    assert "  - and 5 more in run.json" in lines
