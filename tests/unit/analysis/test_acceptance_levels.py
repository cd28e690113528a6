"""Accepted answers by load level and phase, their reasons, goodput, and the objective on their share."""

import csv
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.builders import MS, Row, RunSpec, S, query, row, small_run, steady, write_run

from servebench.analysis.digest import examine
from servebench.analysis.merge import merge
from servebench.analysis.objectives import assess
from servebench.analysis.report import write_report
from servebench.analysis.run import open_run
from servebench.analysis.tables import percentile_table
from servebench.shards.manifest import StepRecord, read_manifest
from servebench.workload.model import Objective

JSON = "json: the text is no JSON"
BROKEN = "not checked: KeyError: 'lost'"


def checked(seq: int, accepted: bool | None, reason: str | None, **given: object) -> Row:
    made = row(seq, sent_ns=seq * S, accepted=accepted, accept_reason=reason, **given)  # type: ignore[arg-type]
    if accepted is not None:
        made["validated_ns"] = made["end_ns"] + 2 * MS
    return made


def rows_of_two_levels() -> list[Row]:
    """Return ten answers at the lower level, all accepted, and ten at the upper: 6 accepted, 3 refused, 1 open."""
    lower = [checked(seq, True, None, step=0) for seq in range(10)]
    upper = [checked(seq, True, None, step=1) for seq in range(10, 16)]
    upper += [checked(16, False, JSON, step=1), checked(17, False, JSON, step=1), checked(18, False, "empty", step=1)]
    return [*lower, *upper, checked(19, None, BROKEN, step=1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    steps = [
        StepRecord(index=0, start_ns=0, end_ns=10 * S, rate_per_s=1),
        StepRecord(index=1, start_ns=10 * S, end_ns=20 * S, rate_per_s=2),
    ]
    phase = steady("load", 0, 20, steps=steps, shape="steps")
    return write_run(tmp_path / "run", RunSpec(rows=rows_of_two_levels(), phases=[phase]))


def test_acceptance_stands_by_load_level_with_its_interval(folder: Path) -> None:
    lower, upper = examine(folder).digest.acceptance.levels
    assert (lower.checked, lower.accepted, lower.unchecked, lower.share) == (10, 10, 0, 1.0)
    assert (upper.ok, upper.checked, upper.accepted, upper.unchecked) == (10, 9, 6, 1)
    assert upper.share == pytest.approx(6 / 9)
    assert upper.lo is not None
    assert upper.hi is not None
    assert upper.lo < 6 / 9 < upper.hi
    assert lower.level.offered_per_s == 1
    # All ended within their level but the last of each, so nothing else than seconds decides.
    assert lower.goodput_per_s == pytest.approx(1.0)
    assert upper.goodput_per_s == pytest.approx(0.6)


def test_reasons_are_counted_and_those_of_failed_checks_kept_apart(folder: Path) -> None:
    found = examine(folder).digest
    assert [tuple(item) for item in found.acceptance.reasons] == [
        (JSON, True, 2),
        ("empty", True, 1),
        (BROKEN, False, 1),
    ]
    assert found.standouts[0] == f"84.2 % of 19 checked answers were accepted; of the 3 others 2 for: {JSON}"
    assert found.manifest.verdict is not None
    assert found.manifest.verdict.valid
    assert (
        f"1 answers could not be checked and are in no share of accepted ones ({BROKEN})"
        in found.manifest.verdict.reasons
    )


def test_tables_hold_the_share_and_the_time_to_a_validated_answer_as_duckdb_counts_them(folder: Path) -> None:
    table = percentile_table(examine(folder).run)
    share, validated, e2e = (table.find(name, "all") for name in ("accepted_share", "time_to_validated", "e2e"))
    assert share is not None
    assert validated is not None
    assert e2e is not None
    ((accepted, n),) = query(f"select avg(accepted::int), count(accepted) from '{folder}/requests/*.parquet'")
    assert share.n == n
    assert share.mean == pytest.approx(100 * accepted)
    ((p50,),) = query(
        f"select median(validated_ns - sent_ns) / 1e6 from '{folder}/requests/*.parquet' where validated_ns > 0"
    )
    assert validated.p50 == pytest.approx(p50)
    assert validated.n == 19
    assert e2e.p50 is not None
    assert validated.p50 == pytest.approx(e2e.p50 + 2)


def test_summary_report_and_notebook_tell_of_it(folder: Path) -> None:
    merge(folder)
    summary = json.loads((folder / "summary.json").read_text())
    assert [level["accepted_share"] for level in summary["acceptance"]["levels"]] == [
        1.0,
        pytest.approx(6 / 9, abs=1e-6),
    ]
    assert summary["acceptance"]["reasons"][0] == {"reason": JSON, "refused": True, "n": 2}
    page = write_report(folder).read_text(encoding="utf-8")
    assert "Accepted answers by load level" in page
    assert "Why answers were not accepted" in page
    frame = open_run(folder).requests
    assert frame["accepted"].sum() == 16
    assert np.isclose(frame["validation_time_ns"].dropna(), 2 * MS).all()
    with (folder / "tables" / "percentiles.csv").open(newline="") as file:
        assert "accepted_share" in {line["metric"] for line in csv.DictReader(file)}


def test_a_run_that_asks_nothing_has_no_acceptance_and_no_goodput(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    found = examine(folder)
    assert found.digest.acceptance.levels == ()
    share, goodput = (found.digest.table.find(name, "all") for name in ("accepted_share", "goodput"))
    assert share is not None
    assert goodput is not None
    assert (share.mean, share.n, goodput.mean) == (None, 0, None)
    assert "Accepted answers" not in write_report(folder).read_text(encoding="utf-8")


def flags(ones: int, zeros: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(1).permutation(np.array([1.0] * ones + [0.0] * zeros))


@pytest.mark.parametrize(
    ("ones", "zeros", "state"),
    [
        (2000, 0, "met"),
        (1999, 1, "met"),
        (198_190, 1_810, "close"),
        (1979, 21, "undecided"),
        (1900, 100, "missed"),
        (10, 0, "undecided"),
    ],
)
def test_a_lower_limit_of_a_share_is_met_or_missed_by_its_interval(ones: int, zeros: int, state: str) -> None:
    objective = Objective(metric="accepted_share", quantile=None, limit=0.99, at_least=True)
    (result,) = assess([objective], {}, {"accepted_share": flags(ones, zeros)})
    assert result.state == state
    assert result.sentence == "accepted > 99 %"


def test_an_objective_on_answers_that_nobody_checked_is_not_met(tmp_path: Path) -> None:
    objective = Objective(metric="accepted_share", quantile=None, limit=0.99, at_least=True)
    folder = small_run(tmp_path / "run", objectives=[objective])
    (result,) = examine(folder).digest.objectives
    assert (result.state, result.measured) == ("too few samples", None)


def test_unchecked_answers_are_neither_useful_nor_useless(folder: Path) -> None:
    manifest = read_manifest(folder)
    objective = Objective(metric="e2e", quantile=0.95, limit=1e12)
    workload = manifest.workload | {"objectives": [msgspec.to_builtins(objective)]}
    spec = RunSpec(rows=rows_of_two_levels(), phases=manifest.phases, manifest={"workload": workload})
    run = examine(write_run(folder.parent / "again", spec)).run
    assert np.nansum(run.columns.good) == 16
    assert np.isnan(run.columns.good).sum() == 1
