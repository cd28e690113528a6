"""What answers cost is printed with what is not known, and not without a word for a run that must not be used."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.builders import RunSpec, S, row, small_run, steady, write_run

from servebench.cli.main import cli, main


def test_prices_are_shared_among_the_answers_of_a_run_that_is_not_merged_yet(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")  # 20 answers in 20 s, 4 output tokens each
    done = CliRunner().invoke(cli, ["cost", str(folder), "--hour-price", "3.6", "--output-price", "1000", "--json"])
    assert done.exit_code == 0, done.output
    lines = {line["name"]: line["value"] for line in json.loads(done.stdout)["lines"]}
    assert lines["hardware"] == 3.6 * 20 / 3600
    assert lines["output tokens"] == 80 * 1000 / 1e6
    assert lines["cost per answer"] == (0.02 + 0.08) / 20
    assert lines["cost per accepted answer"] is None


def test_a_run_that_is_invalid_is_said_to_be_so_with_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(k, sent_ns=k * S, intended_ns=(k - 1) * S) for k in range(1, 10)]  # each a second late
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)]))
    with pytest.raises(SystemExit) as ended:
        main(["cost", str(folder), "--hour-price", "3.6"])
    said = capsys.readouterr()
    assert ended.value.code == 3
    assert "INVALID: do not use these numbers" in said.err
    assert "cost per answer" in said.out
