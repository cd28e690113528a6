"""What is written while a run goes on, where nothing can be drawn."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from servebench.cli.display import PlainDisplay, client_word, plain_line
from servebench.cli.status import ClientState, Quantiles, Status

ZONE = timezone(timedelta(hours=2))
START = datetime(2026, 9, 3, 14, 18, 36, tzinfo=ZONE)
RUNNING = Status(
    state="running",
    t_s=123.0,
    duration_s=300.0,
    phase="burst",
    planned=2561,
    planned_total=3460,
    sent=2560,
    ok=2498,
    errors={"timeout_first_token": 4, "http_503": 1},
    inflight=57,
    late=0,
    ttft_ms=Quantiles(n=273, p50=131.0, p95=742.0, max=1480.0),
    client=ClientState(hub_lag_ms_p99=0.8, cpu=0.38),
)


def _clock(step_s: float) -> Callable[[], datetime]:
    """Return a clock that goes on by `step_s` each time it is read."""
    moments = (START + timedelta(seconds=step_s * index) for index in range(10_000))
    return lambda: next(moments)


def test_a_plain_line_names_every_figure_with_its_unit() -> None:
    assert plain_line(RUNNING, START) == (
        "14:18:36+02:00 burst 41% sent 2560/3460 planned 2561 ok 2498 err 5 inflight 57 late 0 ttft_p95 742ms client ok"
    )


def test_what_is_not_known_yet_is_a_dash() -> None:
    line = plain_line(Status(state="running", phase="warmup"), START)
    assert line == "14:18:36+02:00 warmup - sent -/- planned - ok - err 0 inflight - late - ttft_p95 - client -"


def test_before_the_load_only_the_workers_are_counted() -> None:
    assert plain_line(Status(workers=1), START) == "14:18:36+02:00 waiting workers 1"


def test_a_line_follows_every_ten_seconds_and_at_a_change_of_phase() -> None:
    lines: list[str] = []
    display = PlainDisplay(lines.append, _clock(0.0))
    for _ in range(5):
        display.update(RUNNING)
    assert len(lines) == 1
    display.update(Status(state="running", phase="soak"))
    assert len(lines) == 2

    slow: list[str] = []
    display = PlainDisplay(slow.append, _clock(10.0))
    for _ in range(4):
        display.update(RUNNING)
    assert len(slow) == 4


def test_events_are_written_at_once_and_the_last_status_at_the_end() -> None:
    lines: list[str] = []
    display = PlainDisplay(lines.append, _clock(0.0))
    display.update(RUNNING)
    display.event("burst 3 of 5 began")
    display.update(RUNNING)
    display.close()
    display.close()
    assert lines[1] == "14:18:36+02:00 burst 3 of 5 began"
    assert len(lines) == 3


def test_no_line_holds_an_escape_or_a_carriage_return() -> None:
    lines: list[str] = []
    display = PlainDisplay(lines.append, _clock(10.0))
    display.update(RUNNING)
    display.event("x")
    assert not {"\x1b", "\r"} & set("".join(lines))


def test_the_client_word_names_what_spoils_it() -> None:
    assert client_word(ClientState()) == "-"
    assert client_word(ClientState(hub_lag_ms_p99=31.0, cpu=0.93)) == "hub_lag 31.0ms+cpu 93%"
