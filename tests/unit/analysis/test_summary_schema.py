"""The published schema of summary.json, held against summaries of all kinds by a validator of another project."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import pytest
from tests.builders import Row, RunSpec, busy_run, row, small_run, steady, write_run

from servebench.analysis.merge import merge
from servebench.analysis.summary_schema import summary_json_schema
from servebench.workload.model import Objective


def failed_row(seq: int) -> Row:
    return row(seq, sent_ns=seq * 10**9, outcome="http_error", error_class="http_503", http_status=503)


def write_with(folder: Path, rows: list[Row]) -> Path:
    objectives = [
        Objective(metric="tpot", quantile=0.95, limit=50e6),
        Objective(metric="error_rate", quantile=None, limit=0.01),
    ]
    return write_run(folder, RunSpec(rows=rows, phases=[steady("load", 0, 20)], objectives=objectives))


RUNS: dict[str, Callable[[Path], Path]] = {
    "busy": busy_run,
    "small": small_run,
    "no rows": lambda folder: write_with(folder, []),
    "one row": lambda folder: write_with(folder, [row(0, sent_ns=0)]),
    "one token each": lambda folder: write_with(folder, [row(k, sent_ns=k, tokens=1) for k in range(5)]),
    "all failed": lambda folder: write_with(folder, [failed_row(k) for k in range(5)]),
}


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.filterwarnings("ignore")
def test_a_summary_has_the_published_form(kind: str, tmp_path: Path) -> None:
    folder = RUNS[kind](tmp_path / "run")
    (folder / "requests").mkdir(exist_ok=True)
    merge(folder)
    jsonschema_rs.validator_for(summary_json_schema()).validate(json.loads((folder / "summary.json").read_bytes()))


@pytest.mark.parametrize(
    ("place", "value"),
    [("rows", -1), ("rows", "5"), ("verdict", None), ("surprise", 1), ("objectives", [{"metric": "ttft"}])],
)
def test_what_has_another_form_is_refused(place: str, value: object, tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    merge(folder)
    summary = json.loads((folder / "summary.json").read_bytes()) | {place: value}
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validator_for(summary_json_schema()).validate(summary)


def test_the_schema_is_one() -> None:
    jsonschema_rs.meta.validate(summary_json_schema())
