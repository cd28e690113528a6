"""Small whole numbers worked out by hand; times in ns, sent at 100 unless a test says otherwise."""

from collections.abc import Sequence

import numpy as np
import pytest

from servebench.core.outcomes import CHUNK_KINDS, ChunkKind
from servebench.metrics import ChunkColumns, RequestColumns, Window, formulas

NAN = float("nan")


def code(kind: str) -> int:
    return CHUNK_KINDS.index(ChunkKind(kind))


def request(
    events: Sequence[tuple[float, str] | tuple[float, str, int]],
    *,
    sent: float = 100,
    end: float = NAN,
    output: float = NAN,
    ok: bool = True,
    failed: bool = False,
    intended: float = NAN,
    dispatched: float = NAN,
    reads: list[int] | None = None,
) -> RequestColumns:
    return RequestColumns(
        intended_ns=np.array([intended]),
        dispatched_ns=np.array([dispatched]),
        sent_ns=np.array([sent]),
        end_ns=np.array([end]),
        input_tokens=np.array([NAN]),
        output_tokens=np.array([output]),
        ok=np.array([ok]),
        failed=np.array([failed]),
        chunks=ChunkColumns(
            offsets=np.array([0, len(events)]),
            ns=np.array([event[0] for event in events], dtype=np.float64),
            kind=np.array([code(event[1]) for event in events], dtype=np.int8),
            choice=np.array([event[2] if len(event) == 3 else 0 for event in events], dtype=np.int8),
            read=np.array(reads if reads is not None else range(len(events)), dtype=np.int32),
            tokens=np.full(len(events), NAN),
        ),
    )


def test_ttft_runs_from_sent_to_the_first_token_event() -> None:
    c = request([(103, "role"), (110, "content"), (120, "content")])
    assert formulas.ttft_ns(c).tolist() == [10]


def test_ttft_counts_reasoning_and_ttfo_waits_for_the_answer() -> None:
    c = request([(110, "reasoning"), (140, "content")])
    assert formulas.ttft_ns(c).tolist() == [10]
    assert formulas.ttfo_ns(c).tolist() == [40]


def test_ttft_from_intended_holds_the_wait_before_sending() -> None:
    c = request([(110, "content")], intended=60, dispatched=95)
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
    assert formulas.chunk_gaps(c).ns.tolist() == []


def test_gaps_keep_zeros_and_skip_events_without_text() -> None:
    c = request([(150, "content"), (150, "content"), (150, "content"), (160, "other"), (300, "tool"), (310, "done")])
    assert formulas.chunk_gaps(c).ns.tolist() == [0, 0, 150]


def test_gaps_of_two_choices_are_never_mixed() -> None:
    c = request([(100, "content", 0), (105, "content", 1), (110, "content", 0), (125, "content", 1)])
    assert sorted(formulas.chunk_gaps(c).ns.tolist()) == [10, 20]


def test_gaps_do_not_cross_from_one_request_into_the_next() -> None:
    c = request([(100, "content"), (110, "content"), (500, "content"), (507, "content")])
    two = RequestColumns(
        **{name: np.repeat(getattr(c, name), 2) for name in ("intended_ns", "dispatched_ns", "sent_ns", "end_ns")},
        input_tokens=np.full(2, NAN),
        output_tokens=np.full(2, NAN),
        ok=np.array([True, True]),
        failed=np.array([False, False]),
        chunks=ChunkColumns(
            offsets=np.array([0, 2, 4]),
            ns=c.chunks.ns,
            kind=c.chunks.kind,
            choice=c.chunks.choice,
            read=c.chunks.read,
            tokens=c.chunks.tokens,
        ),
    )
    gaps = formulas.chunk_gaps(two)
    assert gaps.ns.tolist() == [10, 7]
    assert gaps.request.tolist() == [0, 1]


def test_a_first_token_before_its_sending_is_rejected_and_counted() -> None:
    c = request([(50, "content")], end=130)
    assert np.isnan(formulas.ttft_ns(c)).all()
    assert formulas.impossible_spans(c) == 1


def test_an_unknown_end_leaves_the_duration_undefined() -> None:
    assert np.isnan(formulas.e2e_ns(request([], end=NAN))).all()


def test_coalesced_share_counts_token_events_that_shared_a_read() -> None:
    c = request([(1, "content"), (1, "content"), (5, "content"), (9, "content")], sent=0, reads=[0, 0, 1, 2])
    assert formulas.coalesced_share(c) == 0.5


def test_an_event_shares_the_servers_token_count_evenly() -> None:
    c = request([(110, "role"), (120, "content"), (130, "content")], output=5)
    assert formulas.event_tokens(c).tolist() == [0, 2.5, 2.5]


def test_the_window_is_half_open() -> None:
    inside = request([], sent=0, end=9.999e9)
    outside = request([], sent=0, end=10e9)
    assert formulas.request_throughput(inside, Window(0, 10e9)) == pytest.approx(0.1)
    assert formulas.request_throughput(outside, Window(0, 10e9)) == 0


def test_an_answer_in_one_piece_brings_its_tokens_at_its_end() -> None:
    c = request([], sent=0, end=5e9, output=40)
    assert formulas.output_token_throughput(c, Window(0, 10e9)) == 4
    assert formulas.output_token_throughput(c, Window(6e9, 10e9)) == 0


def test_cancelled_requests_are_neither_success_nor_error() -> None:
    c = request([], ok=False, failed=False)
    assert np.isnan(formulas.error_rate(c))


def test_a_window_without_length_has_no_rate() -> None:
    assert np.isnan(formulas.request_throughput(request([], end=1), Window(5, 5)))
