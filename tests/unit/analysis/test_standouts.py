"""Each rule speaks when its conditions hold and is silent otherwise."""

from pathlib import Path

import pytest
from tests.builders import MS, Row, RunSpec, S, events, row, steady, write_run

from servebench.analysis.digest import examine


def sentences(folder: Path, rows: list[Row], seconds: float, phases: tuple[str, ...] = ("load",)) -> str:
    length = seconds / len(phases)
    records = [steady(name, k * length, (k + 1) * length) for k, name in enumerate(phases)]
    return " ".join(examine(write_run(folder / "run", RunSpec(rows=rows, phases=records))).digest.standouts)


def test_an_even_run_says_nothing(tmp_path: Path) -> None:
    assert sentences(tmp_path, [row(k, sent_ns=k * S // 10) for k in range(400)], 40) == ""


@pytest.mark.parametrize(("slow_ms", "speaks"), [(151, True), (149, False)])
def test_a_phase_half_again_as_slow_is_named_with_the_clients_own_lag(
    tmp_path: Path, slow_ms: int, speaks: bool
) -> None:
    rows = [row(k, sent_ns=k * S // 10, phase="calm") for k in range(200)]
    rows += [row(200 + k, sent_ns=20 * S + k * S // 10, ttft_ns=slow_ms * MS, phase="busy") for k in range(200)]
    found = sentences(tmp_path, rows, 40, ("calm", "busy"))
    assert ("TTFT p95 is 151 ms in busy, 100 ms in calm" in found) is speaks
    assert ("the wait is in the server" in found) is speaks


def test_a_level_that_answers_less_than_it_sends_is_named(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S // 10) for k in range(400)]
    for failed in rows[200:]:
        failed.update(events() | {"outcome": "http_error", "output_tokens": None})
    assert "At 10.0 req/s sent (load) 5.00 req/s were answered well." in sentences(tmp_path, rows, 40)


def test_a_shortfall_that_open_requests_explain_is_no_finding(tmp_path: Path) -> None:
    # 40 requests in 20 s, each 2 s long: the 5 sent last end after the level, as chance alone may have it.
    late = [row(k, sent_ns=k * S // 2 if k < 35 else 19 * S + k, ttft_ns=2 * S) for k in range(40)]
    assert "answered well" not in sentences(tmp_path, late, 20)


def long_tail(count: int, per_s: int, first_s: int = 0) -> list[Row]:
    """Return requests at an even rate of which 9 in 20 take 12 s, the others half a second."""
    lengths = [12_000 if (9 * k) % 20 < 9 else 500 for k in range(count)]
    return [row(k, sent_ns=first_s * S + k * S // per_s, ttft_ns=ms * MS - 30 * MS) for k, ms in enumerate(lengths)]


def test_requests_open_at_the_end_of_a_run_that_began_with_none_are_no_finding(tmp_path: Path) -> None:
    assert "answered well" not in sentences(tmp_path, long_tail(120, 4), 30)


def test_a_queue_that_grows_from_the_first_moment_is_a_finding(tmp_path: Path) -> None:
    # 8 a second are sent, 6.9 answered: each waits longer than the one before it.
    rows = [
        row(k, sent_ns=k * S // 8, ttft_ns=round(k * S * (1 / 6.9 - 1 / 8)) + 10 * MS, gap_ns=0) for k in range(960)
    ]
    assert "At 8.00 req/s sent (load) 6.90 req/s were answered well" in sentences(tmp_path, rows, 120)


def test_a_level_shorter_than_ten_requests_is_not_judged(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * 10 * MS, ttft_ns=900 * MS) for k in range(100)]
    assert "answered well" not in sentences(tmp_path, rows, 1)


def test_deadlines_are_counted_by_kind(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S // 10) for k in range(400)]
    rows[7] |= events() | {"outcome": "timeout", "error_class": "timeout_idle"}
    assert "1 request hit a deadline (timeout_idle 1)" in sentences(tmp_path, rows, 40)


def test_estimated_tokens_and_shared_reads_are_said(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S // 10, token_source="events", chunk_read=[0, 0, 1, 1, 2]) for k in range(400)]
    found = sentences(tmp_path, rows, 40)
    assert "an estimate" in found
    assert "100 % of token events shared a read" in found
