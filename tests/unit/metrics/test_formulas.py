"""Small whole numbers worked out by hand; times in ns, sent at 100 unless a test says otherwise."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from servebench.core.outcomes import CHUNK_KINDS, ChunkKind
from servebench.metrics import ChunkColumns, RequestColumns, Window, formulas
from servebench.metrics.events import chunk_gaps, event_facts, event_tokens

NAN = float("nan")


def code(kind: str) -> int:
    return CHUNK_KINDS.index(ChunkKind(kind))


def chunks(
    events: Sequence[tuple[float, str] | tuple[float, str, int]], reads: list[int] | None = None
) -> ChunkColumns:
    return ChunkColumns(
        offsets=np.array([0, len(events)]),
        ns=np.array([event[0] for event in events], dtype=np.float64),
        kind=np.array([code(event[1]) for event in events], dtype=np.int8),
        choice=np.array([event[2] if len(event) == 3 else 0 for event in events], dtype=np.int8),
        read=np.array(reads if reads is not None else range(len(events)), dtype=np.int32),
        tokens=np.full(len(events), NAN),
    )


def request(
    events: Sequence[tuple[float, str] | tuple[float, str, int]],
    *,
    sent: float = 100,
    end: float = NAN,
    output: float = NAN,
    ok: bool = True,
    reads: list[int] | None = None,
    **given: float | bool,
) -> RequestColumns:
    columns: dict[str, Any] = {name: np.array([value]) for name, value in given.items()}
    return replace(
        RequestColumns.blank(1),
        sent_ns=np.array([sent]),
        end_ns=np.array([end]),
        output_tokens=np.array([output]),
        ok=np.array([ok]),
        events=event_facts(chunks(events, reads), np.array([output])),
        **columns,
    )


def gaps(events: Sequence[tuple[float, str] | tuple[float, str, int]], *, ok: bool = True) -> list[float]:
    found: list[float] = chunk_gaps(chunks(events), np.array([ok])).ns.tolist()
    return found


def test_ttft_runs_from_sent_to_the_first_token_event() -> None:
    c = request([(103, "role"), (110, "content"), (120, "content")])
    assert formulas.ttft_ns(c).tolist() == [10]


def test_ttft_counts_reasoning_and_ttfo_waits_for_the_answer() -> None:
    c = request([(110, "reasoning"), (140, "content")])
    assert formulas.ttft_ns(c).tolist() == [10]
    assert formulas.ttfo_ns(c).tolist() == [40]


def test_ttft_from_intended_holds_the_wait_before_sending() -> None:
    c = request([(110, "content")], intended_ns=60.0, dispatched_ns=95.0)
    assert formulas.ttft_intended_ns(c).tolist() == [50]
    assert formulas.send_lag_ns(c).tolist() == [40]
    assert formulas.dispatch_lag_ns(c).tolist() == [35]


def test_tpot_divides_by_one_token_less_than_the_answer_has() -> None:
    c = request([(110, "content"), (130, "content"), (410, "content")], output=11)
    assert formulas.tpot_ns(c).tolist() == [30]


@pytest.mark.parametrize(
    ("events", "output"),
    [
        ([(110.0, "content"), (110.0, "content")], 2.0),
        ([(110.0, "content")], 5.0),
        ([(110.0, "content"), (120.0, "content")], 1.0),
        ([(110.0, "content"), (120.0, "content")], NAN),
    ],
    ids=["all events at one time", "one event", "one token", "no token count"],
)
def test_tpot_is_undefined_without_two_times_and_two_tokens(events: list[tuple[float, str]], output: float) -> None:
    assert np.isnan(formulas.tpot_ns(request(events, output=output))).all()


def test_a_failed_request_has_no_latency() -> None:
    c = request([(110, "content"), (120, "content")], end=130, output=2, ok=False, failed=True)
    for formula in (formulas.ttft_ns, formulas.ttfo_ns, formulas.tpot_ns, formulas.e2e_ns):
        assert np.isnan(formula(c)).all()
    assert gaps([(110, "content"), (120, "content")], ok=False) == []


def test_gaps_keep_zeros_and_skip_events_without_text() -> None:
    events = [(150, "content"), (150, "content"), (150, "content"), (160, "other"), (300, "tool"), (310, "done")]
    assert gaps(events) == [0, 0, 150]


def test_gaps_of_two_choices_are_never_mixed() -> None:
    events = [(100, "content", 0), (105, "content", 1), (110, "content", 0), (125, "content", 1)]
    assert sorted(gaps(events)) == [10, 20]


def test_gaps_do_not_cross_from_one_request_into_the_next() -> None:
    together = chunks([(100, "content"), (110, "content"), (500, "content"), (507, "content")])
    found = chunk_gaps(replace(together, offsets=np.array([0, 2, 4])), np.array([True, True]))
    assert found.ns.tolist() == [10, 7]
    assert found.request.tolist() == [0, 1]


def test_a_first_token_before_its_sending_is_rejected_and_counted() -> None:
    c = request([(50, "content")], end=130)
    assert np.isnan(formulas.ttft_ns(c)).all()
    assert formulas.impossible_spans(c, np.array([True])) == 1


def test_an_unknown_end_leaves_the_duration_undefined() -> None:
    assert np.isnan(formulas.e2e_ns(request([], end=NAN))).all()


def test_coalesced_share_counts_token_events_that_shared_a_read() -> None:
    c = request([(1, "content"), (1, "content"), (5, "content"), (9, "content")], sent=0, reads=[0, 0, 1, 2])
    assert formulas.coalesced_share(c) == (0.5, 4)


def test_an_event_shares_the_servers_token_count_evenly() -> None:
    events = chunks([(110, "role"), (120, "content"), (130, "content")])
    assert event_tokens(events, np.array([5.0])).tolist() == [0, 2.5, 2.5]


def test_the_window_is_half_open() -> None:
    inside = request([], sent=0, end=9.999e9)
    outside = request([], sent=0, end=10e9)
    assert formulas.request_throughput(inside, Window(0, 10e9)) == pytest.approx(0.1)
    assert formulas.request_throughput(outside, Window(0, 10e9)) == 0


def test_cancelled_requests_are_neither_success_nor_error() -> None:
    c = request([], ok=False, failed=False)
    assert np.isnan(formulas.error_rate(c).value)


def test_a_window_without_length_has_no_rate() -> None:
    assert np.isnan(formulas.request_throughput(request([], end=1), Window(5, 5)))


def test_reasoning_lasts_until_the_first_answer_token() -> None:
    assert formulas.reasoning_time_ns(request([(110, "reasoning"), (140, "content")])).tolist() == [30]
    assert np.isnan(formulas.reasoning_time_ns(request([(110, "content")]))).all()


def test_speeds_are_tokens_per_second() -> None:
    c = request([(200, "content"), (400, "content")], output=3, input_tokens=50.0)
    assert formulas.user_speed(c).tolist() == [1e9 / 100]
    assert formulas.prefill_speed(c).tolist() == [50e9 / 100]
    assert formulas.tokens_per_chunk(c).tolist() == [1.5]


def test_stalls_are_gaps_of_half_a_second_or_more() -> None:
    ms = 1e6
    c = request([(0, "content"), (499 * ms, "content"), (999 * ms, "content"), (1700 * ms, "content")], sent=0)
    assert formulas.stalls(c).tolist() == [2]
    assert formulas.stall_time_ns(c).tolist() == [1201 * ms]
    assert formulas.longest_gap_ns(c).tolist() == [701 * ms]


def test_a_token_is_late_when_a_reader_of_ten_a_second_waits_for_it() -> None:
    ms = 1e6
    c = request([(0, "content"), (90 * ms, "content"), (250 * ms, "content"), (300 * ms, "content")], sent=0, output=4)
    assert formulas.late_tokens(c).tolist() == [0.25]


def test_only_replaced_attempts_are_wasted_time() -> None:
    assert formulas.retry_waste_ns(request([], end=130, ok=False, replaced=True)).tolist() == [30]
    assert np.isnan(formulas.retry_waste_ns(request([], end=130))).all()


def test_a_request_is_useful_within_every_limit_and_when_no_check_refuses_it() -> None:
    c = request([(110, "content"), (120, "content")], end=130, output=2)
    assert formulas.within(c, {"ttft": 10, "e2e": 30}).tolist() == [1]
    assert formulas.within(c, {"ttft": 9}).tolist() == [0]
    assert formulas.within(replace(c, accepted=np.array([0.0])), {}).tolist() == [0]
    assert np.isnan(formulas.within(request([], ok=False), {"ttft": 10})).all()


def test_goodput_is_undefined_where_nobody_said_what_is_useful() -> None:
    c = request([], end=5e9)
    assert np.isnan(formulas.goodput(c, Window(0, 10e9)))
    assert formulas.goodput(replace(c, good=np.array([1.0])), Window(0, 10e9)) == pytest.approx(0.1)


def test_the_cached_share_is_of_tokens_and_needs_usage_that_names_it() -> None:
    assert formulas.cached_share(request([], input_tokens=40.0, cached_tokens=10.0)) == (0.25, 1)
    assert formulas.cached_share(request([], input_tokens=40.0)).n == 0


def test_concurrency_is_the_time_that_requests_were_open_within_the_window() -> None:
    c = replace(
        RequestColumns.blank(5),
        # before and into it, through all of it, within it and still open, after it, never sent; s of a window [10, 20)
        sent_ns=np.array([8.0, 5.0, 16.0, 25.0, NAN]) * 1e9,
        end_ns=np.array([13.0, 30.0, NAN, 26.0, NAN]) * 1e9,
    )
    assert formulas.concurrency(c, Window(10e9, 20e9)) == pytest.approx((3 + 10 + 4) / 10)
    assert np.isnan(formulas.concurrency(c, Window(10e9, 10e9)))


def test_reasoning_length_is_what_the_server_told_of_ok_requests() -> None:
    c = replace(RequestColumns.blank(3), reasoning_tokens=np.array([7.0, NAN, 9.0]), ok=np.array([True, True, False]))
    assert formulas.reasoning_length(c).tolist() == pytest.approx([7, NAN, NAN], nan_ok=True)
