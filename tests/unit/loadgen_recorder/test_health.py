"""The client's own state, a row a second."""

import gc
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import numpy as np
import pyarrow.parquet as pq
import pytest

from servebench.loadgen.hub_ticker import HubTicker
from servebench.loadgen.worker.health import HealthGauges, HealthMonitor, idle_level_ns
from servebench.shards.health_schema import HEALTH_SCHEMA, HealthRow, is_spoiled
from servebench.shards.parts import PartIdentity
from servebench.shards.reader import read_parts

MS = 1_000_000
GAUGES = HealthGauges(
    inflight=7, sent=11, reads=13, read_delay_p99_ns=None, dispatch_lag_p99_ns=17, dispatch_lag_max_ns=19
)


def identity(starts_in_ns: int = 0) -> PartIdentity:
    return PartIdentity(
        run_id="20260131T120000Z-chat-3f2c",
        worker="w0-9f8e7d6c",
        epoch_monotonic_ns=time.monotonic_ns() + starts_in_ns,
        epoch_unix_ns=0,
        boot_id="b",
    )


def hold_the_hub(ns: int) -> None:
    """Keep every other greenlet waiting, as a long parse or a garbage collection does."""
    until = time.monotonic_ns() + ns
    while time.monotonic_ns() < until:
        pass


def compute(ns: int) -> None:
    """Use CPU time, however busy the machine is."""
    until = time.process_time_ns() + ns
    while time.process_time_ns() < until:
        pass


def let_run(until: Callable[[], bool]) -> None:
    while not until():
        gevent.sleep(0.001)


@contextmanager
def running(monitor: HealthMonitor) -> Iterator[HealthMonitor]:
    monitor.start()
    try:
        yield monitor
    finally:
        monitor.stop()


def test_a_stall_counts_as_every_tick_that_it_delayed() -> None:
    ticker = HubTicker()
    ticker.start()
    seen: list[int] = []

    def more(count: int) -> bool:
        seen.extend(ticker.take())
        return len(seen) >= count

    let_run(lambda: more(3))
    seen.clear()
    hold_the_hub(100 * MS)
    let_run(lambda: more(15))
    ticker.stop()
    late = sorted((lag for lag in seen if lag > 5 * MS), reverse=True)
    # 100 ms hold up ticks due every 10 ms: they come 90-100, 80-90, ... ms late.
    assert len(late) >= 9
    assert all(lag >= (89 - 10 * index) * MS for index, lag in enumerate(late[:9]))


def test_a_ticker_that_nobody_reads_keeps_the_newest_ticks_only() -> None:
    ticker = HubTicker()
    ticker.start()
    ticker._lags.extend(range(1_995))
    let_run(lambda: len(ticker._lags) < 1_900)
    ticker.stop()
    assert ticker.take()[0] == 1_000


def test_getting_ready_for_a_run_counts_for_nothing_and_what_comes_after_it_does() -> None:
    ticker = HubTicker()
    ticker.start()
    let_run(lambda: len(ticker._lags) >= 3)
    ticker.take()
    with ticker.paused():
        hold_the_hub(60 * MS)
        gevent.sleep(0.02)
        hold_the_hub(60 * MS)
    let_run(lambda: len(ticker._lags) >= 3)
    # What held the hub up to 60 ms lies before; a crowded machine may still delay a tick.
    assert np.median(ticker.take()) < 30 * MS
    hold_the_hub(100 * MS)
    let_run(lambda: len(ticker._lags) >= 9)
    ticker.stop()
    assert max(ticker.take()) >= 89 * MS


def test_rows_are_the_columns_of_the_schema() -> None:
    assert HEALTH_SCHEMA.names == ["run_id", "worker", *HealthRow._fields]
    assert all((field.metadata or {})[b"description"] for field in HEALTH_SCHEMA)


def test_each_second_has_a_row_and_the_parts_hold_them(tmp_path: Path) -> None:
    rows: list[HealthRow] = []
    monitor = HealthMonitor(tmp_path, identity(), lambda: GAUGES)
    with running(monitor):
        for _ in range(2):
            let_run(lambda: monitor.last is not None and monitor.last not in rows)
            assert monitor.last is not None
            rows.append(monitor.last)
        gc.collect()
        compute(150 * MS)
    assert monitor.failure is None
    assert monitor.last is not None
    read = read_parts(tmp_path, schema=HEALTH_SCHEMA)
    assert read.faults == ()
    assert read.table.schema.equals(HEALTH_SCHEMA)
    stored = [HealthRow(**{k: v for k, v in row.items() if k in HealthRow._fields}) for row in read.table.to_pylist()]
    assert stored == [*rows, monitor.last]
    assert [row.t_ns - row.span_ns for row in stored[1:]] == [row.t_ns for row in stored[:-1]]
    assert sum(row.span_ns for row in stored[:2]) >= 1_990 * MS
    assert (stored[0].inflight, stored[0].sent, stored[0].reads) == (7, 11, 13)
    assert (stored[0].read_delay_p99_ns, stored[0].dispatch_lag_max_ns) == (None, 19)
    last = stored[-1]
    assert last.gc_pauses >= 1
    assert last.gc_pause_max_ns is not None
    assert last.cpu_share * last.span_ns >= 149 * MS


def test_the_idle_level_comes_from_before_the_run(tmp_path: Path) -> None:
    ticker = HubTicker()
    ticker._lags.extend([2 * MS] * 99 + [4 * MS])
    monitor = HealthMonitor(tmp_path, identity(), lambda: GAUGES, ticker)
    with running(monitor):
        let_run(lambda: monitor.last is not None)
    ticker.stop()
    assert monitor.last is not None
    assert monitor.last.hub_lag_idle_ns == round(np.quantile([2 * MS] * 99 + [4 * MS], 0.99))


def test_stalls_of_the_preparation_are_not_taken_for_the_idle_level() -> None:
    calm, planning = [MS] * 100, [MS] * 60 + [120 * MS - step * 10 * MS for step in range(12)] + [MS] * 28
    assert idle_level_ns(array("q", planning + calm)) == MS
    assert idle_level_ns(array("q", calm + planning)) == MS
    assert idle_level_ns(array("q", planning)) == round(np.quantile(planning, 0.99))


def test_on_a_machine_that_is_always_late_the_idle_level_says_so() -> None:
    late = np.random.default_rng(3).integers(5 * MS, 9 * MS, 1000)
    assert idle_level_ns(array("q", late.tolist())) == round(
        min(np.quantile(late[at : at + 100], 0.99) for at in range(0, 1000, 100))
    )
    assert idle_level_ns(array("q", late[:9].tolist())) is None


def test_ticks_before_the_planned_start_make_the_idle_level_too(tmp_path: Path) -> None:
    monitor = HealthMonitor(tmp_path, identity(starts_in_ns=1_500 * MS), lambda: GAUGES)
    with running(monitor):
        let_run(lambda: monitor.last is not None)
        first = monitor.last
        assert first is not None
        assert first.t_ns < 0
        assert first.hub_lag_idle_ns == first.hub_lag_p99_ns
        let_run(lambda: monitor.last is not first)
        assert monitor.last is not None
        assert monitor.last.t_ns > 0
        assert monitor.last.hub_lag_idle_ns == first.hub_lag_idle_ns


def test_without_ticks_before_the_run_the_idle_level_is_unknown(tmp_path: Path) -> None:
    monitor = HealthMonitor(tmp_path, identity(starts_in_ns=-10_000 * MS), lambda: GAUGES)
    with running(monitor):
        let_run(lambda: monitor.last is not None)
    assert monitor.last is not None
    assert monitor.last.hub_lag_idle_ns is None


def test_gauges_that_fail_are_told(tmp_path: Path) -> None:
    def broken() -> HealthGauges:
        raise KeyError("inflight")

    monitor = HealthMonitor(tmp_path, identity(), broken)
    with running(monitor):
        let_run(lambda: monitor.failure is not None)
    assert "cannot measure the client's health: KeyError: 'inflight'" in str(monitor.failure)


def test_a_long_stall_is_one_long_row(tmp_path: Path) -> None:
    rows: list[HealthRow] = []
    monitor = HealthMonitor(tmp_path, identity(), lambda: GAUGES)
    with running(monitor):
        gevent.sleep(0)
        hold_the_hub(2_200 * MS)
        for _ in range(2):
            let_run(lambda: monitor.last is not None and monitor.last not in rows)
            assert monitor.last is not None
            rows.append(monitor.last)
    assert rows[0].span_ns >= 2_200 * MS
    assert rows[0].spoiled
    assert rows[1].span_ns >= 100 * MS


def test_stopping_leaves_no_callback_and_no_thread_behind(tmp_path: Path) -> None:
    before = list(gc.callbacks)
    monitor = HealthMonitor(tmp_path, identity(), lambda: GAUGES)
    monitor.start()
    assert len(gc.callbacks) == len(before) + 1
    monitor.stop()
    assert gc.callbacks == before
    assert monitor.stop() == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("lag_ns", "idle_ns", "cpu", "spoiled"),
    [
        pytest.param(21 * MS, 1 * MS, 0.1, False, id="20 ms over idle is the limit"),
        pytest.param(21 * MS + 1, 1 * MS, 0.1, True, id="more than 20 ms over idle"),
        pytest.param(20 * MS + 1, None, 0.1, True, id="an unknown idle level counts as 0"),
        pytest.param(1 * MS, 1 * MS, 0.85, False, id="85 % CPU is the limit"),
        pytest.param(1 * MS, 1 * MS, 0.851, True, id="more than 85 % CPU"),
        pytest.param(None, 1 * MS, 0.1, False, id="no tick in that second"),
    ],
)
def test_a_second_is_spoiled_when_the_client_was_the_limit(
    lag_ns: int | None, idle_ns: int | None, cpu: float, spoiled: bool
) -> None:
    assert is_spoiled(lag_ns, idle_ns, cpu) is spoiled


def test_parts_are_plain_parquet(tmp_path: Path) -> None:
    monitor = HealthMonitor(tmp_path, identity(), lambda: GAUGES)
    with running(monitor):
        let_run(lambda: monitor.last is not None)
    [path] = tmp_path.iterdir()
    assert path.name == "part-w0-9f8e7d6c-000000.parquet"
    assert pq.read_table(path)["worker"].to_pylist()[0] == "w0-9f8e7d6c"
