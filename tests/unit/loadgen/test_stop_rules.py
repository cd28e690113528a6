"""A run ends early by its workload's rules, and never one that could still have met its objectives."""

from typing import Any

import pytest
from tests.record_builders import EPOCH_NS, answer, ask, chunks, record

from servebench.loadgen.master.stop_rules import StopWatch
from servebench.loadgen.messages import Totals
from servebench.loadgen.progress import sum_totals
from servebench.loadgen.worker.live import LiveCounters
from servebench.shards.manifest import OUT_OF_REACH
from servebench.workload.model import Objective, StopRules, limit_key

TTFT = Objective(metric="ttft", quantile=0.95, limit=800e6)
ERRORS = Objective(metric="error_rate", quantile=None, limit=0.01)


def totals(ok: int, failed: int, **given: Any) -> Totals:  # noqa: ANN401 - any field
    return Totals(outcomes={"ok": ok, "http_error": failed, "cancelled": 1000, "shed": 1000}, **given)


def watch(planned: int | None = None, **rules: Any) -> StopWatch:  # noqa: ANN401 - any field
    return StopWatch(StopRules(**rules), [TTFT, ERRORS], planned)


def test_so_many_failures_in_all_are_enough() -> None:
    rules = watch(errors=3)
    assert rules.why(totals(100, 2), 1) is None
    assert rules.why(totals(100, 3), 2) == "stop rule: 3 requests failed (stop.errors: 3)"


def test_a_rate_of_errors_is_that_of_the_last_window() -> None:
    rules = watch(error_rate=0.5, window_ns=10 * 10**9, least=10)
    assert rules.why(totals(0, 0), 0) is None
    assert rules.why(totals(0, 9), 1) is None, "too few have ended"
    assert rules.why(totals(100, 9), 2) is None
    for second in range(3, 20):
        assert rules.why(totals(100 + 10 * second, 9), second) is None
    # From second 20 on everything fails; after six of ten seconds the window has more failures than answers.
    found = [rules.why(totals(290, 9 + 10 * (second - 19)), second) for second in range(20, 30)]
    first = next(place for place, why in enumerate(found) if why is not None)
    assert first == 5
    assert found[5] == "stop rule: 60 % of the 100 requests that ended in the last 10s failed (stop.error_rate: 50 %)"


@pytest.mark.parametrize(("beyond", "ends"), [(50, False), (51, False), (52, True)])
def test_a_quantile_is_lost_once_its_allowance_is_used_up(beyond: int, ends: bool) -> None:
    rules = watch(planned=1000, objectives=True)
    why = rules.why(totals(200, 0, beyond={limit_key(TTFT): beyond}), 1)
    assert (why is not None) is ends
    if why is not None:
        assert why == f"{OUT_OF_REACH}TTFT p95 < 800 ms: 52 of 1,000 planned requests are above it already"


def test_a_share_of_errors_is_lost_by_measured_requests_only() -> None:
    rules = watch(planned=1000, objectives=True)
    assert rules.why(totals(0, 500, measured_failed=10), 1) is None
    why = rules.why(totals(0, 500, measured_failed=11), 2)
    assert why == f"{OUT_OF_REACH}error rate < 1 %: 11 of 1,000 planned requests have failed already"


def test_without_a_number_of_requests_or_without_the_rule_no_objective_ends_a_run() -> None:
    lost = totals(0, 500, measured_failed=500, beyond={limit_key(TTFT): 500})
    assert watch(planned=None, objectives=True).why(lost, 1) is None
    assert watch(planned=1000, errors=1000).why(lost, 1) is None


def test_workers_count_measured_answers_above_a_limit_and_the_sums_hold_them() -> None:
    e2e = Objective(metric="e2e", quantile=0.5, limit=5_000)
    tpot = Objective(metric="tpot", quantile=0.99, limit=7_999)
    ttft = Objective(metric="ttft", quantile=0.95, limit=800)
    live = LiveCounters([e2e, tpot, ttft, ERRORS])
    slow = record(0, answer=answer(end_ns=EPOCH_NS + 9_000, chunks=chunks([EPOCH_NS + 1_000, EPOCH_NS + 9_000])))
    fast = record(1, answer=answer(end_ns=EPOCH_NS + 4_000, chunks=chunks([EPOCH_NS + 1_000, EPOCH_NS + 4_000])))
    warmup = record(2, ask=ask(2, measured=False), answer=slow.answer)
    for made in (slow, fast, warmup):
        live.ended(made)
    total = sum_totals([live.totals(0), live.totals(0)])
    # Sent at +200: TTFT 800 is not above its limit; the second token of the slow one came 8,000 after the first.
    assert total.beyond == {limit_key(e2e): 2, limit_key(tpot): 2}
    assert total.measured_failed == 0
