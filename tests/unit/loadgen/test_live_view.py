"""The status line: sums over workers, quantiles of the last minute, the worst client."""

import json
import os

import pytest

from servebench.loadgen.messages import Health, Status, Totals
from servebench.loadgen.progress import (
    MAX_PHASES,
    LiveView,
    ProgressPipe,
    hopeless,
    sum_totals,
    unstreamed,
    worst_health,
)
from servebench.loadgen.sketch import Sketch


def status(worker: str, totals: Totals, ttft_ns: int, health: Health | None = None) -> Status:
    sketch = Sketch()
    sketch.add(ttft_ns)
    return Status(
        run_id="r",
        worker_id=worker,
        done=False,
        totals=totals,
        ttft=sketch.take(),
        tpot={},
        chunk_gap={},
        health=health or Health(),
    )


def test_totals_of_workers_add_up() -> None:
    total = sum_totals(
        [
            Totals(dispatched=3, sent=2, outcomes={"ok": 1, "timeout": 1}, error_classes={"timeout_idle": 1}),
            Totals(dispatched=4, sent=4, outcomes={"ok": 4}),
        ]
    )
    assert (total.dispatched, total.sent) == (7, 6)
    assert total.outcomes == {"ok": 5, "timeout": 1}
    assert total.error_classes == {"timeout_idle": 1}


def test_a_line_counts_each_worker_once_and_rates_come_from_the_window() -> None:
    view = LiveView()
    view.take(status("a", Totals(dispatched=10, sent=8, inflight=2, outcomes={"ok": 8}), 100_000_000))
    view.tick(0.0)
    view.take(status("a", Totals(dispatched=30, sent=28, inflight=2, outcomes={"ok": 28}), 300_000_000))
    view.take(status("b", Totals(dispatched=20, sent=20, outcomes={"ok": 20}), 300_000_000))
    line = view.tick(2.0)
    assert (line["sent"], line["answered"], line["inflight"]) == (50, 48, 2)
    assert line["sent_per_s"] == 20.0
    assert line["ttft_ms"]["n"] == 3
    assert 298 < line["ttft_ms"]["max"] < 302


def test_without_a_second_look_there_is_no_rate_instead_of_zero() -> None:
    assert LiveView().tick(5.0)["sent_per_s"] is None


def test_the_client_is_as_clean_as_its_dirtiest_worker_and_unknown_is_null() -> None:
    worst = worst_health([Health(cpu_share=0.2), Health(cpu_share=0.9), Health()])
    assert worst["cpu"] == 0.9
    assert worst["hub_lag_ms_p99"] is None


def test_a_line_reaches_the_reader_and_a_reader_that_left_harms_nothing() -> None:
    read_end, write_end = os.pipe()
    pipe = ProgressPipe(write_end)
    pipe.event("lost", "worker a lost")
    assert json.loads(os.read(read_end, 4096)) == {"kind": "event", "event": "lost", "text": "worker a lost"}
    os.close(read_end)
    pipe.event("lost", "nobody listens")
    os.close(write_end)


def test_a_reader_that_stalls_gets_whole_lines_in_order_and_misses_the_last_ones() -> None:
    read_end, write_end = os.pipe()
    pipe = ProgressPipe(write_end)
    for number in range(60):
        pipe.event(str(number), "x" * 5_000)  # more than PIPE_BUF, which a pipe may take in part
    got = bytearray()
    os.set_blocking(read_end, False)
    for number in (60, 61, 62):
        while piece := _read(read_end):
            got += piece
        pipe.event(str(number), "read on")
    while piece := _read(read_end):
        got += piece
    *lines, rest = got.split(b"\n")
    assert rest == b"", "the last line is whole"
    numbers = [int(json.loads(line)["event"]) for line in lines]
    behind = [number for number in numbers if number < 60]
    assert behind == list(range(len(behind)))
    assert 20 < len(behind) < 60, "a pipe and what may wait hold some of them"
    assert numbers[-2:] == [61, 62], "once it reads again it misses nothing"
    os.close(read_end)
    os.close(write_end)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except BlockingIOError:
        return b""


HOPELESS = {
    "nineteen failed": (Totals(outcomes={"connect_error": 19}), None),
    "twenty failed": (
        Totals(
            outcomes={"connect_error": 15, "http_error": 5}, error_classes={"http_503": 5, "connection_refused": 15}
        ),
        "the first 20 requests all failed (connection_refused 15, http_503 5)",
    ),
    "one went well": (Totals(outcomes={"http_error": 500, "ok": 1}), None),
    "cancelled and shed are no failures": (Totals(outcomes={"cancelled": 30, "shed": 30, "skipped": 9}), None),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_a_run_is_hopeless_when_twenty_requests_failed_and_none_went_well(name: str) -> None:
    totals, why = HOPELESS[name]
    assert hopeless(totals) == why


def test_a_run_of_streams_is_hopeless_when_twenty_good_answers_came_in_one_piece() -> None:
    why = "the first 20 answers came in one piece, not as streams, so TTFT cannot be measured"
    assert unstreamed(Totals(outcomes={"ok": 20}), 0) == why
    assert unstreamed(Totals(outcomes={"ok": 20}), 1) is None
    assert unstreamed(Totals(outcomes={"ok": 19, "timeout": 9}), 0) is None


def test_first_tokens_are_counted_at_once_and_stay_counted() -> None:
    view = LiveView()
    assert view.first_tokens == 0
    view.take(status("a", Totals(), 100_000_000))
    assert view.first_tokens == 1
    view.tick(1.0, "calm")
    view.take(status("b", Totals(), 100_000_000))
    assert view.first_tokens == 2


def test_every_ten_seconds_a_dot_tells_load_and_latency_of_those_ten() -> None:
    view, dots = LiveView(), []
    for second in range(20):
        ttft_ns = 100_000_000 if second < 10 else 300_000_000
        view.take(status("a", Totals(dispatched=4 * (second + 1)), ttft_ns))
        dots.append(view.tick(float(second), "calm" if second < 10 else "brisk")["dot"])
    assert [index for index, dot in enumerate(dots) if dot is not None] == [9, 19]
    first, second_dot = dots[9], dots[19]
    assert (first["phase"], first["n"], first["sent_per_s"]) == ("calm", 10, 4.0)
    assert (second_dot["phase"], second_dot["n"]) == ("brisk", 10)
    assert first["p50"] == pytest.approx(100, rel=0.005)
    assert second_dot["p95"] == pytest.approx(300, rel=0.005)


def test_ten_seconds_without_an_answer_have_no_dot() -> None:
    view = LiveView()
    assert [view.tick(float(second), "calm")["dot"] for second in range(10)] == [None] * 10


def test_latencies_are_told_apart_by_the_phase_in_which_they_came_and_old_phases_go() -> None:
    view = LiveView()
    for number in range(MAX_PHASES + 3):
        view.take(status("a", Totals(), 1_000_000 * (number + 1)))
        view.tick(float(number), f"p{number}")
    assert list(view.phases) == [f"p{number}" for number in range(3, MAX_PHASES + 3)]
    assert view.phases["p3"]["ttft"].quantile_ns(0.5) == pytest.approx(4_000_000, rel=0.005)
    assert len(view.whole["ttft"]) == MAX_PHASES + 3


def test_nothing_of_a_lost_worker_is_in_flight_or_its_health_and_one_that_returns_counts_again() -> None:
    view = LiveView()
    view.take(status("a", Totals(dispatched=9, sent=4, inflight=5, outcomes={"ok": 4}), 1, Health(cpu_share=0.99)))
    view.take(status("b", Totals(dispatched=3, sent=2, inflight=1, outcomes={"ok": 2}), 1, Health(cpu_share=0.2)))
    view.lost("a")
    line = view.tick(1.0)
    assert (line["inflight"], line["sent"], line["answered"], line["client"]["cpu"]) == (1, 12, 6, 0.2)
    view.take(status("a", Totals(dispatched=9, sent=8, inflight=1, outcomes={"ok": 8}), 1))
    assert view.tick(2.0)["inflight"] == 2
    view.lost("c")
