"""What the live screen shows, at which width."""

import io
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from servebench.cli.figures import UNDEFINED
from servebench.cli.live import LiveDisplay
from servebench.cli.screen import Canvas, Limit, View, limits_of, objective_word, screen_lines
from servebench.cli.status import ClientState, Quantiles, ServerState, Status
from servebench.workload.model import Objective

NOW = datetime(2026, 9, 3, 14, 18, 36, tzinfo=timezone(timedelta(hours=2), "CEST"))


def _status(**given: object) -> Status:
    known: dict[str, object] = {
        "state": "running",
        "t_s": 393.0,
        "duration_s": 570.0,
        "phase": "burst",
        "phase_index": 2,
        "phase_count": 3,
        "phase_t_s": 123.0,
        "phase_duration_s": 300.0,
        "workers": 2,
        "planned_total": 3460,
        "sent": 2560,
        "answered": 2503,
        "ok": 2498,
        "errors": {"timeout_first_token": 4, "http_503": 1},
        "inflight": 57,
        "late": 0,
        "shed": 0,
        "planned_per_s": 20.0,
        "sent_per_s": 20.1,
        "answered_per_s": 11.4,
        "out_tokens_per_s": 1310.0,
        "in_tokens_per_s": 4950.0,
        "ttft_ms": Quantiles(n=273, p50=131.0, p95=742.0, max=1480.0),
        "tpot_ms": Quantiles(n=273, p50=24.9, p95=46.1, max=61.0),
        "chunk_gap_ms": Quantiles(n=999, p50=21.0, p95=61.3, max=118.0),
        "client": ClientState(hub_lag_ms_p99=0.8, cpu=0.38, dispatch_lag_ms_p99=0.4, read_delay_ms_p99=0.2),
    }
    return Status(**(known | given))  # type: ignore[arg-type] # a builder: keys are fields


def _view(name: str = "chat-burst", **given: object) -> View:
    view = View(
        name=name,
        url="http://10.0.4.7:8000",
        model="llama-3.1-8b",
        drain_s=30,
        limits={"ttft": Limit(quantile="p95", limit_ms=800), "tpot": Limit(quantile="p95", limit_ms=45)},
        note="14:18:33 burst 3 of 5 began",
    )
    for _ in range(200):
        view.take(_status(**given))
    return view


def _lines(view: View, width: int = 80, *, unicode: bool = True) -> list[str]:
    return screen_lines(view, Canvas(width=width, unicode=unicode, now=NOW))


@pytest.mark.parametrize("width", [20, 59, 60, 66, 68, 79, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_all_fit_sixteen_rows(width: int) -> None:
    lines = _lines(_view(), width)
    assert len(lines) <= 16
    assert max(cell_len(line) for line in lines) <= width


def test_at_eighty_columns_every_figure_stands_beside_its_unit() -> None:
    text = "\n".join(_lines(_view()))
    for shown in (
        "chat-burst   http://10.0.4.7:8000   llama-3.1-8b   2 workers",
        "41 %  burst (3 of 3), 02:03 of 05:00",
        "68 %  02:57 left, ends 14:21:33 CEST",
        "planned 20.0 req/s   sent 20.1   answered 11.4",
        "sent 2,560 of 3,460   in flight 57   late 0   shed 0",
        "p95 < 800 ms ~close",
        "p95 < 45 ms ✗missed",
        "out 1,310 tok/s   in 4,950 tok/s",
        "ok 2,498   timeout_first_token 4   http_503 1   error 0.2 %",
        "✓ clean   lag p99: dispatch 0.4 ms, read 0.2 ms   CPU 38 %",
        "burst 3 of 5 began",
        "let 57 requests finish (30 s at most)",
    ):
        assert shown in text


def test_sparklines_go_first_then_the_largest_values_then_all_but_one_line() -> None:
    assert "█" * 12 in _lines(_view(), 80)[3]
    assert "█" * 12 not in _lines(_view(), 79)[3]
    assert "1,480" in "\n".join(_lines(_view(), 68))
    assert "1,480" not in "\n".join(_lines(_view(), 66))
    assert len(_lines(_view(), 50)) == 1


def test_before_the_first_answer_a_latency_row_waits_and_shows_no_zero() -> None:
    lines = _lines(_view(ttft_ms=Quantiles(), answered=0, ok=0, errors={}))
    row = next(line for line in lines if line.startswith("  TTFT"))
    assert "waiting for the first answer" in row
    assert "0" not in row
    assert f"error {UNDEFINED} %" in "\n".join(lines)


def test_before_the_load_only_the_workers_are_shown() -> None:
    view = View(name="w", url="http://h:1", model=None, drain_s=30)
    view.take(Status(state="waiting", workers=1))
    lines = _lines(view)
    assert lines[1] == "waiting for workers: 1 connected"
    assert "LATENCY" not in "\n".join(lines)


def test_the_last_line_says_what_ctrl_c_does_now() -> None:
    view = _view()
    assert _lines(view)[-1].startswith("Ctrl-C: stop sending")
    assert "let 1 request finish" in _lines(_view(inflight=1))[-1]
    view.stopping = True
    assert _lines(view)[-1].startswith("Ctrl-C again: stop now")
    view.take(_status(state="closed", phase=None))
    assert "Ctrl-C" not in _lines(view)[-1]


def test_without_utf8_only_ascii_is_drawn() -> None:
    drawn = "\n".join(_lines(_view(name="測試 café"), unicode=False))
    assert drawn.isascii()
    assert "?? cafe" in drawn


@given(name=st.text(max_size=60), model=st.text(max_size=60), width=st.integers(20, 120), unicode=st.booleans())
def test_no_name_widens_a_line_adds_one_or_steers_the_terminal(
    name: str, model: str, width: int, unicode: bool
) -> None:
    view = _view(name=name)
    view.model, view.note = model, name
    lines = _lines(view, width, unicode=unicode)
    assert len(lines) <= 16
    assert max(cell_len(line) for line in lines) <= width
    assert all(line.isprintable() for line in lines)
    assert unicode or all(line.isascii() for line in lines)


@pytest.mark.parametrize("phase", ["burst", "測試", "e\u0301te\u0301"])
def test_columns_stay_aligned_whatever_a_phase_is_called(phase: str) -> None:
    lines = _lines(_view(phase=phase))
    bars = [line for line in lines if line.startswith(("phase", "run"))]
    assert {cell_len(line.partition(" %")[0]) for line in bars} == {cell_len(bars[0].partition(" %")[0])}
    (head, *rows) = [line for line in lines if line.startswith(("LATENCY", "  TTFT", "  TPOT", "  chunk"))]
    assert head[26:29] == "p50"
    assert [(row[28].isdigit(), row[29]) for row in rows] == [(True, " ")] * 3


def test_wide_characters_in_a_name_do_not_push_the_address_off() -> None:
    title = _lines(_view(name="測試" * 40))[0]
    assert "http://10.0.4.7:8000" in title
    assert cell_len(title) <= 80


@pytest.mark.parametrize(
    ("p95", "word"), [(None, "p95 < 100 ms"), (50.0, "✓met"), (90.0, "~close"), (100.0, "✗missed"), (300.0, "✗missed")]
)
def test_an_objective_is_met_close_within_ten_percent_or_missed(p95: float | None, word: str) -> None:
    limit = Limit(quantile="p95", limit_ms=100)
    assert objective_word(limit, Quantiles(n=1, p95=p95), unicode=True).endswith(word)


def test_limits_come_from_the_workload_in_milliseconds() -> None:
    wanted = (
        Objective(metric="ttft", quantile=0.95, limit=800_000_000.0),
        Objective(metric="error_rate", quantile=None, limit=0.01),
    )
    assert limits_of(wanted) == {"ttft": Limit(quantile="p95", limit_ms=800.0)}


def test_a_busy_client_is_named_in_words_and_not_by_colour_alone() -> None:
    lines = _lines(_view(client=ClientState(hub_lag_ms_p99=31.0, cpu=0.5)))
    assert "! busy" in next(line for line in lines if line.startswith("CLIENT"))


def test_the_engine_tells_its_queue_and_what_it_does_not_tell_is_a_dash() -> None:
    told = ServerState(dialect="vllm", running=45.0, waiting=12.0, kv_usage=0.83, age_s=0.9)
    (line,) = [line for line in _lines(_view(server=told)) if line.startswith("SERVER")]
    assert " ".join(line.split()) == "SERVER running 45 waiting 12 KV cache 83 % vllm metrics, 1 s old"
    silent = ServerState(dialect="triton", waiting=0.0)
    (line,) = [line for line in _lines(_view(server=silent)) if line.startswith("SERVER")]
    shown = f"SERVER running {UNDEFINED} waiting 0 KV cache {UNDEFINED} % triton metrics, {UNDEFINED} s old"
    assert " ".join(line.split()) == shown


def test_a_long_name_of_a_server_leaves_room_for_how_old_its_page_is() -> None:
    (line,) = [
        line for line in _lines(_view(server=ServerState(dialect="servebench-sim", age_s=1.0))) if "SERVER" in line
    ]
    assert line.endswith("  servebench-sim metrics, 1 s old")
    assert cell_len(line) <= 80


def test_a_latency_below_a_microsecond_keeps_to_its_column() -> None:
    tiny = Quantiles(n=9, p50=0.000995, p95=0.0012, max=7.22)
    row = next(line for line in _lines(_view(chunk_gap_ms=tiny)) if line.startswith("  chunk gap"))
    assert row.split()[3:6] == ["<0.001", "0.0012", "7.22"]


def test_a_run_that_sent_all_it_had_is_done_to_the_last_percent() -> None:
    bars = [line for line in _lines(_view(state="closed", sent=3460)) if line.startswith(("phase", "run"))]
    assert ["100 %" in line for line in bars] == [True, True]
    assert "68 %" in "\n".join(_lines(_view(state="closed")))


@pytest.mark.parametrize("narrowed", [99, 80, 60, 40])
def test_a_terminal_that_is_made_narrower_is_cleared_of_every_row_that_it_broke(narrowed: int) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=60)
    display = LiveDisplay(console, _view(), lambda: NOW)
    display.tick()
    lines = _lines(_view(), 100)
    file.truncate(0)
    console.width = narrowed
    display.event("resized")
    # A terminal that reflows shows a line in as many rows as it needs; all but the last lie above the cursor.
    rows = sum(-(-cell_len(line) // narrowed) for line in lines)
    assert file.getvalue().count("\x1b[1A") == rows - 1
    assert file.getvalue().count("\x1b[2K") == rows
    display.close()


def test_without_a_page_of_the_engine_there_is_no_line_for_it() -> None:
    assert not [line for line in _lines(_view()) if line.startswith("SERVER")]
