"""Each rule of the verdict at its limit."""

from dataclasses import replace
from typing import Any, TypeVar

import pytest

from servebench.analysis.accounting import Accounting
from servebench.analysis.verdict import Facts, PhaseFacts, exit_code, judge, lag_limit_ns, phase_planned
from servebench.shards.manifest import Verdict

PHASE = PhaseFacts(
    name="load",
    planned=1000,
    lost=0,
    dispatched=1000,
    lagging=0,
    lag_limit_ns=5e6,
    seconds=100,
    spoiled_seconds=0,
)
BOOKS = Accounting(planned=1000, rows=1000, distinct=1000, duplicates=0, beyond=0, unnamed=0, lost=(), lost_by_phase={})
FACTS = Facts(
    engine="plan",
    stop_cause="finished",
    accounting=BOOKS,
    part_faults=(),
    ok=1000,
    impossible=0,
    objectives="met",
    marks=(),
    phases=(PHASE,),
)


T = TypeVar("T", PhaseFacts, Accounting)


def changed(facts: T, field: str, value: int) -> T:
    values: dict[str, Any] = {field: value}
    return replace(facts, **values)


def test_a_clean_run_is_valid_without_reasons() -> None:
    assert judge(FACTS) == Verdict(valid=True, status="valid", objectives="met", reasons=[])


@pytest.mark.parametrize(
    ("field", "allowed", "refused", "word"),
    [
        ("lost", 10, 11, "were lost"),
        ("lagging", 10, 11, "late"),
        ("spoiled_seconds", 5, 6, "spoiled by this client"),
    ],
)
def test_a_phase_is_invalid_above_its_limit_and_not_at_it(field: str, allowed: int, refused: int, word: str) -> None:
    at_limit = replace(FACTS, phases=(changed(PHASE, field, allowed),))
    above = replace(FACTS, phases=(changed(PHASE, field, refused),))
    assert judge(at_limit).valid
    verdict = judge(above)
    assert verdict.status == "invalid"
    assert word in verdict.reasons[0]
    assert str(refused) in verdict.reasons[0]


@pytest.mark.parametrize("field", ["duplicates", "beyond", "unnamed"])
def test_books_that_do_not_balance_are_invalid(field: str) -> None:
    assert judge(replace(FACTS, accounting=changed(BOOKS, field, 1))).status == "invalid"


def test_no_good_answer_is_invalid() -> None:
    assert judge(replace(FACTS, ok=0)).status == "invalid"


def test_a_stop_by_the_user_or_a_dead_master_is_interrupted() -> None:
    assert judge(replace(FACTS, stop_cause="user")).status == "interrupted"
    assert judge(replace(FACTS, stop_cause=None)).status == "interrupted"


def test_stopping_an_interactive_run_by_hand_is_its_normal_end() -> None:
    assert judge(replace(FACTS, engine="tokens", stop_cause="user")).valid


def test_a_stop_by_a_fault_is_invalid_and_names_it() -> None:
    verdict = judge(replace(FACTS, stop_cause="every worker was lost"))
    assert verdict.status == "invalid"
    assert "every worker was lost" in verdict.reasons[0]


def test_an_unusable_part_is_a_mark() -> None:
    verdict = judge(replace(FACTS, part_faults=("requests/part-x.parquet unreadable",)))
    assert verdict.valid
    assert "part-x.parquet" in verdict.reasons[0]


def test_the_lag_limit_is_five_milliseconds_or_a_tenth_of_the_mean_gap() -> None:
    assert lag_limit_ns(seconds=100, planned=10_000) == 5e6
    assert lag_limit_ns(seconds=100, planned=100) == 100e6


@pytest.mark.parametrize(
    ("status", "objectives", "strict", "code"),
    [
        ("valid", "met", False, 0),
        ("valid", "none", False, 0),
        ("valid", "missed", False, 1),
        ("valid", "undecided", False, 0),
        ("valid", "undecided", True, 1),
        ("invalid", "met", False, 3),
        ("interrupted", "missed", False, 130),
    ],
)
def test_exit_codes(status: str, objectives: str, strict: bool, code: int) -> None:
    verdict = Verdict(valid=status == "valid", status=status, objectives=objectives)
    assert exit_code(verdict, strict=strict) == code


def test_an_early_stop_cuts_the_plans_sizes_off_in_order() -> None:
    assert phase_planned([10, 20, 30], [0, 0, 0], 25) == (10, 15, 0)
    assert phase_planned([None, None], [4, 5], 9) == (4, 5)


def test_marks_stand_beside_a_valid_verdict() -> None:
    verdict = judge(replace(FACTS, marks=("phase load was not steady",)))
    assert verdict.valid
    assert verdict.reasons == ["phase load was not steady"]


def test_a_run_that_ended_because_an_objective_was_out_of_reach_is_missed_and_its_numbers_hold() -> None:
    verdict = judge(replace(FACTS, stop_cause="out of reach: TTFT p95 < 800 ms", objectives="undecided"))
    assert (verdict.valid, verdict.objectives, exit_code(verdict)) == (True, "missed", 1)
    assert verdict.reasons[0].startswith("ended early by stop.objectives, out of reach: TTFT p95 < 800 ms")


def test_a_run_that_its_errors_ended_has_no_numbers_to_use() -> None:
    verdict = judge(replace(FACTS, stop_cause="stop rule: 500 requests failed"))
    assert (verdict.status, exit_code(verdict)) == ("invalid", 3)
    assert verdict.reasons == ["the run was stopped: stop rule: 500 requests failed"]
