"""What the operator's page is told: points without gaps, bounded answers, null for what is unknown."""

import gc
import json
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from servebench.loadgen.desk.live_board import COLUMNS, MAX_POINTS, POINTS_A_POLL, LiveBoard, percentile_rows
from servebench.loadgen.messages import Health, Status, Totals
from servebench.loadgen.progress import LATENCIES, LiveView
from servebench.loadgen.sketch import Sketch
from servebench.workload.model import Objective

NOTHING = {name: Sketch() for name in LATENCIES}


def line(t_s: float, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a JSON value
    return {**LiveView().tick(t_s), "t_s": t_s, "state": "running", "run_id": "r", "server": None, **more}


def filled(points: int) -> LiveBoard:
    board = LiveBoard()
    board.begin("r")
    for t_s in range(points):
        board.take(line(float(t_s)), NOTHING)
    return board


def times(answer: dict[str, Any]) -> list[float]:
    return [point[COLUMNS.index("t_s")] for point in answer["points"]]


def test_a_page_gets_every_point_once_however_late_it_opens() -> None:
    board, since, seen = filled(400), 0, []
    while True:
        answer = board.answer(since)
        seen += times(answer)
        since = answer["next"]
        if not answer["more"]:
            break
    assert seen == [float(t_s) for t_s in range(400)]
    assert times(board.answer(since)) == []
    board.take(line(400.0), NOTHING)
    assert times(board.answer(since)) == [400.0]


def test_after_an_hour_the_oldest_points_are_gone_and_numbers_go_on() -> None:
    board = filled(MAX_POINTS + 10)
    answer = board.answer(0)
    assert answer["first"] == 10
    assert times(answer)[0] == 10.0
    assert len(answer["points"]) == POINTS_A_POLL


def test_a_new_run_starts_an_empty_page_with_higher_numbers() -> None:
    board = filled(5)
    board.begin("other")
    answer = board.answer(5)
    assert answer["run"] == {"state": "preparing", "run_id": "other"}
    assert (answer["first"], answer["next"], answer["points"], answer["events"]) == (5, 5, [], [])


def test_an_answer_stays_small_with_every_figure_known() -> None:
    board = LiveBoard()
    quantiles = {"n": 10_000, "p50": 123.456, "p95": 1234.5678, "p99": 23456.789, "max": 99999.9}
    many = {f"{name}_ms": quantiles for name in LATENCIES}
    server = {"running": 1000.0, "waiting": 123.0, "kv_usage": 0.98765, "queue_ms": 1234.5678}
    client = {"hub_lag_ms_p99": 1.23456, "cpu": 0.87654, "dispatch_lag_ms_p99": 0.12345, "read_delay_ms_p99": 0.23456}
    for t_s in range(500):
        more = {"errors": {"timeout_idle": t_s, "http_503": 2 * t_s}, "server": server, "client": client, **many}
        board.take(line(1e5 + t_s / 3, sent_per_s=12345.678, out_tokens_per_s=123456.7, **more), NOTHING)
    assert len(json.dumps(board.answer(0))) < 50_000


def test_what_is_unknown_is_null_and_what_failed_is_told_by_class_and_second() -> None:
    board = LiveBoard()
    board.take(line(0.0, errors={"timeout_idle": 2}), NOTHING)
    board.take(line(1.0, errors={"timeout_idle": 5, "http_503": 1}), NOTHING)
    first, second = board.answer(0)["points"]
    assert first[COLUMNS.index("ttft_p95")] is None
    assert first[COLUMNS.index("running")] is None
    assert second[COLUMNS.index("errors")] == {"timeout_idle": 3, "http_503": 1}


def test_a_percentile_is_shown_from_ten_values_beyond_it_on() -> None:
    sketches = {name: Sketch() for name in LATENCIES}
    sketches["ttft"].add_all(np.arange(1, 201, dtype=np.int64) * 1_000_000)
    rows = {row["name"]: row for row in percentile_rows(sketches)}
    assert rows["ttft"]["n"] == 200
    assert rows["ttft"]["p95"] is not None
    assert abs(rows["ttft"]["p95"] - 190) < 2
    assert rows["ttft"]["p99"] is None
    assert rows["tpot"]["p50"] is None


DAY_S = 24 * 3600


def held(view: LiveView, board: LiveBoard) -> int:
    """Return how many things are kept alive by the live figures."""
    seen: set[int] = set()
    queue: list[Any] = [vars(view), vars(board)]
    while queue:
        thing = queue.pop()
        if id(thing) in seen or not gc.is_tracked(thing) or isinstance(thing, type | ModuleType | FunctionType):
            continue
        seen.add(id(thing))
        queue += gc.get_referents(thing)
    return len(seen)


def test_a_day_of_points_holds_no_more_than_two_hours_of_them() -> None:
    view, board, sizes = LiveView(), LiveBoard(), []
    board.begin("r")
    for second in range(DAY_S):
        if second % 10 == 0:  # enough to fill each of the view's windows many times over
            sketch = dict.fromkeys(range(second % 41, second % 41 + 3), 1)
            told = Status(
                run_id="r",
                worker_id="a",
                done=False,
                totals=Totals(dispatched=second, outcomes={"ok": second}),
                ttft=sketch,
                tpot={},
                chunk_gap={},
                health=Health(),
            )
            view.take(told)
            figures = view.tick(float(second), f"p{second // 3600}")
        board.take(figures | {"t_s": float(second)}, view.whole, view.phases)
        if second % 60 == 0:
            board.event("marker", f"word {second}", second)
        if second in {2 * 3600, DAY_S - 1}:
            sizes.append((held(view, board), len(json.dumps(board.answer(0)))))
    (early, early_bytes), (late, late_bytes) = sizes
    assert late < 1.05 * early, "phases up to their limit are all that may be added"
    assert max(early_bytes, late_bytes) < 50_000
    assert len(view.whole["ttft"]) == 3 * DAY_S // 10, "the whole run is counted all the same"


def test_objectives_that_a_chart_can_show_are_told_in_ms() -> None:
    board = LiveBoard()
    objectives = (
        Objective(metric="ttft", quantile=0.95, limit=800e6),
        Objective(metric="error_rate", quantile=None, limit=0.01),
        Objective(metric="longest_gap", quantile=0.95, limit=1e9),
    )
    board.begin("r", objectives)
    assert board.answer(0)["limits"] == [{"metric": "ttft", "quantile": "p95", "limit": 800.0}]
    board.begin("r2")
    assert board.answer(0)["limits"] == []
