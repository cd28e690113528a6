"""The command `export`: where it writes, what it prints, its exit codes."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.builders import RunSpec, row, small_run, steady, write_run

from servebench.cli.export import export
from servebench.core.errors import InputError


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("parquet", "chunks.parquet"),
        ("csv", "chunks.csv"),
        ("vllm", "vllm-result.json"),
        ("llm-d", "llm-d/benchmark_report_v0.2,_stage_0.yaml"),
        ("genai-bench", "genai-bench/experiment_metadata.json"),
    ],
)
def test_the_path_is_all_that_goes_to_stdout(tmp_path: Path, form: str, name: str) -> None:
    run = small_run(tmp_path / "run")
    done = CliRunner().invoke(export, [str(run), "--format", form], standalone_mode=False)
    assert done.return_value == 0
    assert Path(done.stdout.strip()) == run / Path(name).parts[0]
    assert (run / name).stat().st_size > 0


def test_an_invalid_run_is_written_with_its_exit_code(tmp_path: Path) -> None:
    spec = RunSpec(rows=[row(0, sent_ns=0)], phases=[steady("load", 0, 1)], manifest={"planned": 50})
    run = write_run(tmp_path / "run", spec)
    done = CliRunner().invoke(export, [str(run), "--out", str(tmp_path / "x.parquet")], standalone_mode=False)
    assert done.return_value == 3
    assert (tmp_path / "x.parquet").exists()


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    done = CliRunner().invoke(export, [str(run), "--out", str(tmp_path / "no" / "x")], standalone_mode=False)
    assert isinstance(done.exception, InputError)


@pytest.mark.parametrize(("form", "name"), [("llm-d", "run.json"), ("vllm", "requests")])
def test_a_file_does_not_take_the_place_of_a_folder_nor_a_folder_that_of_a_file(
    tmp_path: Path, form: str, name: str
) -> None:
    run = small_run(tmp_path / "run")
    done = CliRunner().invoke(export, [str(run), "--format", form, "--out", str(run / name)], standalone_mode=False)
    assert isinstance(done.exception, InputError)
    assert "is there already" in str(done.exception)
