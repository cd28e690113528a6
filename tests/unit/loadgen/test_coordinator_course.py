"""What the master tells its workers when they come late, leave, or the run is to end."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import msgspec
import pytest

from servebench.loadgen.channel import Channel, wire_name
from servebench.loadgen.master.chronicle import Chronicle
from servebench.loadgen.master.coordinator import Coordinator
from servebench.loadgen.master.journal import Journal
from servebench.loadgen.master.orders import Order
from servebench.loadgen.master.runbook import Runbook
from servebench.loadgen.messages import (
    Alive,
    Arm,
    CancelNow,
    Close,
    Closed,
    Health,
    Hello,
    Lease,
    Leaving,
    NeedSeqs,
    Prepare,
    Ready,
    SeqBlock,
    Status,
    Step,
    Stop,
    Totals,
)
from servebench.loadgen.progress import ProgressPipe
from servebench.shards.manifest import Manifest, read_manifest

LIMIT_S = 30
CLOSED_NAME = wire_name(Close)


class Wire:
    """A runner that keeps what is sent; a worker answers a Close as long as it is in `answering`."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, dict[str, Any]]] = []
        self.answering: set[str] = set()
        self.run: Coordinator | None = None

    def send_message(self, msg_type: str, data: dict[str, Any], client_id: str) -> None:
        self.sent.append((client_id, msg_type, data))
        if msg_type == CLOSED_NAME and client_id in self.answering and self.run is not None:
            self.run.on_closed(Closed(run_id="r", worker_id=client_id, begun=0, rows=0))

    def got(self, worker: str, kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
        return [data for to, name, data in self.sent if to == worker and name == wire_name(kind)]


class Master:
    """A coordinator, its greenlet and the wire."""

    def __init__(self, folder: Path, *, total: int | None = None) -> None:
        self.folder, self.wire = folder, Wire()
        manifest = Manifest(
            run_id="r",
            schema_version="1.0",
            servebench_version="0",
            created_utc="2026-01-01T00:00:00.000+00:00",
            name="n",
            state="running",
            engine="tokens",
            workload={},
            workload_hash="h",
            seed=1,
            schedule_hash=None,
            target_url="http://h",
            epoch_monotonic_ns=0,
            epoch_unix_ns=0,
            boot_id="b",
        )
        prepare = Prepare(run_id="r", engine="tokens", workload="{}", url="http://h", model=None, master_boot_id="b")
        order = Order(prepare=prepare, schedule_hash=None, duration_ns=None, drain_ns=30 * 10**9, total=total)
        chronicle = Chronicle(
            "r", None, Runbook(folder, manifest, None), Journal(folder / "events.jsonl"), ProgressPipe(None)
        )
        self.run = self.wire.run = Coordinator(order, Channel(self.wire, _raise), chronicle, lambda _: True)
        self.chronicle = chronicle
        self.greenlet: gevent.Greenlet[[], None] | None = None

    def hello(self, *workers: str) -> None:
        for worker in workers:
            self.run.welcome(Hello(worker_id=worker, worker=f"name-{worker}", host="h", pid=1, boot_id="b"))

    def ready(self, *workers: str) -> None:
        self.wire.answering |= set(workers)
        for worker in workers:
            self.run.on_ready(Ready(run_id="r", worker_id=worker, schedule_hash=None, offset_ns=0, clock_bound_ns=0))

    def begin(self, *workers: str) -> None:
        self.hello(*workers)
        self.ready(*workers)
        self.greenlet = gevent.spawn(self.run.run)
        self.until(lambda: all(self.wire.got(worker, Arm) for worker in workers))

    def until(self, reached: Any) -> None:  # noqa: ANN401 - any predicate
        with gevent.Timeout(LIMIT_S):
            while not reached():
                gevent.sleep(0.01)

    def end(self) -> None:
        """Let every worker report its end."""
        for worker in self.wire.answering:
            self.run.on_closed(Closed(run_id="r", worker_id=worker, begun=0, rows=0))
        assert self.run.finished.wait(LIMIT_S)

    def members_told(self, worker: str) -> list[list[str]]:
        """Return the latest membership table that a worker was sent, by its entries."""
        tables = [lease["members"] for lease in self.wire.got(worker, Lease) if lease["members"]]
        return [list(change["worker_ids"]) for change in tables[-1]] if tables else []

    @property
    def states(self) -> dict[str, str]:
        return {worker.worker: worker.state for worker in read_manifest(self.folder).workers}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    made = Master(tmp_path)
    yield made
    made.run.request_stop("test")
    if made.greenlet is not None:
        made.end()


def _raise(error: BaseException) -> None:
    raise error


def test_a_stop_before_the_run_is_armed_closes_the_workers_that_are_ready(master: Master) -> None:
    master.hello("a", "b")
    master.ready("a")
    master.greenlet = gevent.spawn(master.run.run)
    gevent.idle()
    master.run.request_stop("user")
    assert master.run.finished.wait(LIMIT_S)
    assert master.wire.got("a", Close)
    assert not master.wire.got("a", Arm)
    assert master.states["name-a"] == "closed"


def test_a_worker_that_is_ready_too_late_is_let_go(master: Master) -> None:
    master.begin("a")
    master.hello("b")
    master.run.request_stop("user")
    master.hello("c")
    master.ready("b")
    assert (len(master.wire.got("b", Close)), master.wire.got("b", Arm)) == (1, [])
    assert master.wire.got("c", Prepare) == []


def test_a_worker_that_joins_learns_the_step_that_the_others_are_at(master: Master) -> None:
    master.begin("a")
    master.run.offered(5.0)
    master.run.offered(7.0)
    master.hello("b")
    master.ready("b")
    assert [(step["index"], step["rate_per_s"]) for step in master.wire.got("b", Step)] == [(1, 7.0)]


def test_a_second_interrupt_cancels_also_what_begins_until_sending_ends(master: Master) -> None:
    master.begin("a")
    master.run.request_stop("user")
    master.run.cancel_now()  # before the stop has gone out
    master.until(lambda: master.wire.got("a", Stop))
    assert [stop["drain_ns"] for stop in master.wire.got("a", Stop)] == [0]
    assert master.wire.got("a", CancelNow)


def test_an_interrupt_while_draining_shortens_the_drain(master: Master) -> None:
    master.begin("a")
    master.run.request_stop("user")
    master.until(lambda: master.wire.got("a", Stop))
    master.run.cancel_now()
    first, second = master.wire.got("a", Stop)
    assert (first["drain_ns"], second["drain_ns"]) == (30 * 10**9, 0)
    assert first["stop_ns"] == second["stop_ns"]


def test_a_worker_that_says_it_has_not_begun_is_told_the_beginning_again(master: Master) -> None:
    master.begin("a")
    (first,) = master.wire.got("a", Arm)
    master.run.on_alive(Alive(run_id="r", worker_id="a", armed=False))
    assert [arm["epoch_monotonic_ns"] for arm in master.wire.got("a", Arm)] == [first["epoch_monotonic_ns"]] * 2
    master.run.on_alive(Alive(run_id="r", worker_id="a", armed=True))
    assert len(master.wire.got("a", Arm)) == 2


def test_a_worker_that_has_not_begun_hears_also_what_the_others_were_told_meanwhile(master: Master) -> None:
    master.begin("a")
    master.run.offered(5.0)
    master.run.on_alive(Alive(run_id="r", worker_id="a", armed=False))
    assert [step["rate_per_s"] for step in master.wire.got("a", Step)] == [5.0, 5.0]


def test_that_the_seqs_are_used_up_is_told_again_to_those_who_are_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servebench.loadgen.master.seq_blocks.REMIND_NS", 0)
    master = Master(tmp_path, total=1)
    master.begin("a", "b")
    keeping = gevent.spawn(_keep_alive, master, "a", "b")
    master.run.on_need(NeedSeqs(run_id="r", worker_id="a", blocks=1))
    master.until(lambda: [block["count"] for block in master.wire.got("b", SeqBlock)][:3] == [0, 0, 0])
    master.run.request_stop("user")
    master.end()
    keeping.kill()


def test_a_stop_is_told_again_to_those_who_are_not_done_and_whoever_outlasts_the_drain_by_far_is_given_up(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servebench.loadgen.master.coordinator.STOP_AGAIN_NS", 0)
    master.begin("a", "b")
    master.run.on_closed(Closed(run_id="r", worker_id="b", begun=0, rows=0))
    master.wire.answering.clear()
    keeping = gevent.spawn(_keep_alive, master, "a")
    master.run.request_stop("user", drain_ns=0)
    master.until(lambda: len(master.wire.got("a", Stop)) >= 3)
    assert len({stop["stop_ns"] for stop in master.wire.got("a", Stop)}) == 1
    assert len(master.wire.got("b", Stop)) <= 1
    assert not master.run.finished.is_set()
    monkeypatch.setattr("servebench.loadgen.master.coordinator.OVERDUE_NS", 0)
    assert master.run.finished.wait(LIMIT_S)
    keeping.kill()
    assert master.states == {"name-a": "lost", "name-b": "closed"}


def test_a_worker_that_leaves_gives_its_share_away_before_its_last_answer(tmp_path: Path) -> None:
    master = Master(tmp_path)
    master.begin("a", "b")
    master.run.on_leaving(Leaving(run_id="r", worker_id="a"))
    keeping = gevent.spawn(_keep_alive, master, "a", "b")
    master.until(lambda: master.members_told("b") == [["a", "b"], ["b"]])
    assert not master.run.finished.is_set()
    master.run.request_stop("user")
    master.end()
    keeping.kill()
    assert master.states == {"name-a": "closed", "name-b": "closed"}


def _keep_alive(master: Master, *workers: str) -> None:
    while True:
        for worker in workers:
            master.run.on_alive(Alive(run_id="r", worker_id=worker))
        gevent.sleep(0.05)


def test_how_late_the_masters_own_hub_was_is_noted(tmp_path: Path) -> None:
    master = Master(tmp_path)
    master.begin("a")
    gevent.sleep(0.05)
    time.sleep(0.2)  # holds the hub up: 20 ticks, the first of them by 0.2 s
    master.run.request_stop("user")
    master.end()
    lag_ms = read_manifest(tmp_path).observed["master_hub_lag_ms"]
    assert 0 < lag_ms["p50"] <= lag_ms["p99"] <= lag_ms["max"]
    assert lag_ms["max"] >= 180


def test_every_worker_hears_that_the_seqs_are_used_up(tmp_path: Path) -> None:
    master = Master(tmp_path, total=3)
    master.begin("a", "b")
    master.run.on_need(NeedSeqs(run_id="r", worker_id="a", blocks=9))
    leased = [
        seq
        for block in master.wire.got("a", SeqBlock)
        for seq in range(block["first"], block["first"] + block["count"])
    ]
    assert leased == [0, 1, 2]
    assert [block["count"] for block in master.wire.got("b", SeqBlock)] == [0]
    master.hello("c")
    master.ready("c")
    assert [block["count"] for block in master.wire.got("c", SeqBlock)] == [0]
    master.run.request_stop("user")
    master.end()


def test_a_run_does_not_end_without_a_worker_that_was_only_slow(tmp_path: Path) -> None:
    master = Master(tmp_path)
    master.begin("a", "b")
    keeping = gevent.spawn(_keep_alive, master, "a")
    master.until(lambda: "name-b lost" in (tmp_path / "events.jsonl").read_text("utf-8"))
    master.run.on_status(status("a", done=True))
    master.run.on_status(status("b", done=False))
    leases = len(master.wire.got("a", Lease))
    master.until(lambda: len(master.wire.got("a", Lease)) >= leases + 3)
    also = gevent.spawn(_keep_alive, master, "b")
    master.until(lambda: "name-b joined" in (tmp_path / "events.jsonl").read_text("utf-8"))
    master.run.on_status(status("b", done=True))
    assert master.run.finished.wait(LIMIT_S)
    gevent.killall([keeping, also])
    assert master.states == {"name-a": "closed", "name-b": "closed"}
    assert master.run.exit_code == 0


def status(worker: str, *, done: bool) -> Status:
    return Status(
        run_id="r", worker_id=worker, done=done, totals=Totals(), ttft={}, tpot={}, chunk_gap={}, health=Health()
    )


def test_a_fault_in_the_runs_own_greenlet_ends_the_sending_of_its_workers(tmp_path: Path) -> None:
    def broken(_: float) -> Any:  # noqa: ANN401 - it never returns
        msg = "disk full"
        raise OSError(msg)

    master = Master(tmp_path)
    master.begin("a")
    master.chronicle.runbook.phase_at = broken  # type: ignore[assignment, method-assign]
    assert master.run.finished.wait(LIMIT_S)
    assert [stop["drain_ns"] for stop in master.wire.got("a", Stop)] == [0]
    assert master.run.exit_code == 4
