"""The manifest that the master keeps: phases cut at a stop, planned counted, blocks of the dead named."""

from pathlib import Path

from servebench.loadgen.master.roster import WorkerState
from servebench.loadgen.master.runbook import Runbook, cut_phases
from servebench.loadgen.messages import Closed, Health, Hello, Ready, Status, Totals
from servebench.shards.manifest import Manifest, PhaseRecord, StepRecord, read_manifest
from servebench.workload.model import Closed as ClosedLoad


def manifest() -> Manifest:
    return Manifest(
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


def hello(worker: str) -> Hello:
    return Hello(worker_id=f"id-{worker}", worker=worker, host="h", pid=1, boot_id="b")


def test_a_stop_cuts_the_phase_it_falls_into_and_drops_those_after() -> None:
    steps = [
        StepRecord(index=0, start_ns=10, end_ns=15, rate_per_s=1),
        StepRecord(index=1, start_ns=15, end_ns=20, rate_per_s=2),
    ]
    phases = [
        PhaseRecord(name="a", shape="steady", start_ns=0, end_ns=10, measured=False),
        PhaseRecord(name="b", shape="steps", start_ns=10, end_ns=20, measured=True, steps=steps),
        PhaseRecord(name="c", shape="steady", start_ns=20, end_ns=30, measured=True),
    ]
    cut = cut_phases(phases, 14)
    assert [(phase.name, phase.end_ns) for phase in cut] == [("a", 10), ("b", 14)]
    assert [(step.index, step.end_ns) for step in cut[1].steps] == [(0, 14)]


def test_load_by_hand_counts_what_workers_began_and_names_the_blocks_of_a_dead_one(tmp_path: Path) -> None:
    book = Runbook(tmp_path, manifest(), None)
    book.armed(0, 0)
    book.step(0, 0, 5.0)
    book.step(1, 1_000, 10.0)
    book.leased("id-a", 0, 64)
    book.leased("id-b", 64, 64)
    alive = WorkerState(hello("a"), closed=Closed(run_id="r", worker_id="id-a", begun=10, rows=10))
    ready = Ready(run_id="r", worker_id="id-b", schedule_hash=None, offset_ns=0, clock_bound_ns=0)
    dead = WorkerState(hello("b"), ready=ready, lost=True)
    dead.status = Status(
        run_id="r",
        worker_id="id-b",
        done=False,
        totals=Totals(dispatched=4),
        ttft={},
        tpot={},
        chunk_gap={},
        health=Health(),
    )
    book.close(stop_ns=2_000, cause="user", workers=[alive, dead])
    kept = read_manifest(tmp_path)
    assert kept.planned == 14
    assert [(lost.first, lost.last, lost.worker, lost.certain) for lost in kept.lost_detail] == [(64, 127, "b", False)]
    assert [(step.start_ns, step.end_ns) for step in kept.phases[0].steps] == [(0, 1_000), (1_000, 2_000)]
    assert [worker.state for worker in kept.workers] == ["closed", "lost"]


def test_closed_load_that_is_stopped_while_it_drains_ends_where_its_duration_did(tmp_path: Path) -> None:
    book = Runbook(tmp_path, manifest(), None, ClosedLoad(users=1, duration_ns=100))
    book.close(stop_ns=130, cause="user", workers=[])
    assert [(phase.start_ns, phase.end_ns) for phase in read_manifest(tmp_path).phases] == [(0, 100)]
    book.close(stop_ns=70, cause="user", workers=[])
    assert [(phase.start_ns, phase.end_ns) for phase in read_manifest(tmp_path).phases] == [(0, 70)]


def test_a_worker_that_never_was_ready_is_told_from_one_that_was_lost(tmp_path: Path) -> None:
    book = Runbook(tmp_path, manifest(), None)
    book.armed(0, 0)
    ready = Ready(run_id="r", worker_id="id-b", schedule_hash=None, offset_ns=0, clock_bound_ns=0)
    workers = [
        WorkerState(hello("a"), ready=ready, closed=Closed(run_id="r", worker_id="id-a", begun=1, rows=1)),
        WorkerState(hello("b"), ready=ready, lost=True),
        WorkerState(hello("c"), lost=True),
    ]
    book.close(stop_ns=None, cause="finished", workers=workers)
    assert [worker.state for worker in read_manifest(tmp_path).workers] == ["closed", "lost", "unready"]
