"""Workers killed at random instants: no unreadable part, no duplicate, and every loss named as what it is.

SERVEBENCH_KILL_RUNS=10 kills at 50 instants in 10 runs; the suite makes one run of 5.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from tests.nodes import Nodes, await_epoch, lost_of, manifest_of, nodes_in, rows_of, seq_of
from tests.servers.simulator import StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

RUNS = int(os.environ.get("SERVEBENCH_KILL_RUNS", "1"))
KILLS = 5
LEASE_NS = 1_200_000_000
FLUSH_NS = 5_000_000_000
REPORT_NS = 2_500_000_000
"""A part may be written a tick (1 s) after its rows are old enough; the rest is this machine's."""


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.mark.parametrize("seed", range(RUNS))
def test_workers_killed_at_random_instants_lose_only_what_is_named(
    tmp_path: Path, start_sim: StartSim, seed: int
) -> None:
    sim = start_sim(preset="fast")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        killed = run_and_kill(nodes, random.Random(seed))
        seen = {seq_of(record.request_id) for record in sim.stop()}
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        for part in nodes.run.glob("*/*.parquet"):
            assert pq.read_metadata(part).num_rows > 0

    lost = lost_of(manifest)
    seqs = [row["seq"] for row in rows]
    assert len(seqs) == len(set(seqs)), "a row twice"
    assert not set(seqs) & lost
    assert set(seqs) | lost == set(range(manifest["planned"]))
    states = {worker["pid"]: worker["state"] for worker in manifest["workers"]}
    assert sorted(states.values()) == ["closed"] + ["lost"] * KILLS
    assert {pid for pid, state in states.items() if state == "lost"} == set(killed)
    check_names(manifest, seen - set(seqs), lost - seen)
    check_amount(manifest, killed)


def test_a_worker_that_is_told_to_go_loses_nothing_it_began_and_nobody_else_counts_as_lost(
    tmp_path: Path, start_sim: StartSim
) -> None:
    sim = start_sim(preset="fast")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        master = nodes.master(nodes.workload(rate=10, duration="12s"), 2, "--show-invalid")
        going, _ = nodes.worker(), nodes.worker()
        epoch_ns = await_epoch(nodes)
        time.sleep(max(0.0, 4 - (time.monotonic_ns() - epoch_ns) / 1e9))
        going.terminate()
        assert going.wait(30) == 0
        assert master.wait(60) in {0, 3}, nodes.logs()
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        seen = {seq_of(record.request_id) for record in sim.stop()}
    assert [worker["state"] for worker in manifest["workers"]] == ["closed", "closed"]
    assert {row["seq"] for row in rows} == seen
    assert {item["cause"] for item in manifest["lost_detail"]} <= {"undispatched"}


def test_the_open_conversations_of_a_killed_worker_are_lost_whole_and_named_as_its_own(
    tmp_path: Path, start_sim: StartSim
) -> None:
    sim = start_sim(preset="fast")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        path = nodes.workload(rate=8, duration="7s")
        talk = "conversation: {turns: {from: uniform, min: 1, max: 4}, think_time: 700ms}"
        path.write_text(path.read_text("utf-8").replace("prompts:", f"prompts:\n  {talk}"), "utf-8")
        master = nodes.master(path, 2, "--show-invalid")
        workers = [nodes.worker() for _ in range(2)]
        epoch_ns = await_epoch(nodes)
        time.sleep(max(0.0, 3 - (time.monotonic_ns() - epoch_ns) / 1e9))
        workers[1].send_signal(signal.SIGKILL)
        assert master.wait(120) in {0, 3}, nodes.logs()
        seen = {seq_of(record.request_id) for record in sim.stop()}
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        starts = pq.read_table(nodes.run / "conversations.parquet")["first_seq"].to_numpy()
    (dead,) = (worker["worker"] for worker in manifest["workers"] if worker["pid"] == workers[1].pid)
    lost, written = lost_of(manifest), {row["seq"] for row in rows}
    assert len(rows) == len(written), "a row twice"
    assert written | lost == set(range(manifest["planned"]))
    assert not written & lost
    assert lost, "the worker had nothing to lose"
    assert {item["worker"] for item in manifest["lost_detail"]} == {dead}
    assert any(row["turn"] > 0 for row in rows)
    by_session = {row["session"]: row["worker"] for row in rows}
    for item in manifest["lost_detail"]:
        for seq in range(item["first"], item["last"] + 1):
            assert by_session.get(int(np.searchsorted(starts, seq, side="right")) - 1, dead) == dead
            assert not (item["cause"] == "undispatched" and item["certain"] and seq in seen)


def run_and_kill(nodes: Nodes, rng: random.Random) -> dict[int, int]:
    """Kill all workers but one, at instants of the run that the generator says; return pid -> monotonic ns."""
    master = nodes.master(nodes.workload(rate=40, duration="16s"), KILLS + 1, "--show-invalid")
    workers = [nodes.worker() for _ in range(KILLS + 1)]
    instants = sorted(rng.uniform(0.5, 14) for _ in range(KILLS))
    epoch_ns = await_epoch(nodes)
    killed = {}
    for worker, instant in zip(workers, instants, strict=False):
        time.sleep(max(0.0, instant - (time.monotonic_ns() - epoch_ns) / 1e9))
        assert psutil.Process(worker.pid).is_running()
        worker.send_signal(signal.SIGKILL)
        killed[worker.pid] = time.monotonic_ns()
    assert master.wait(120) in {0, 3}, nodes.logs()
    return killed


def check_names(manifest: dict[str, Any], seen_and_lost: set[int], never_seen: set[int]) -> None:
    """Hold each name against the server's log."""
    causes = {
        seq: (item["cause"], item["certain"])
        for item in manifest["lost_detail"]
        for seq in range(item["first"], item["last"] + 1)
    }
    assert {cause for cause, _ in causes.values()} <= {"unflushed", "undispatched"}
    wrong = {seq: causes[seq] for seq in seen_and_lost if causes[seq] == ("undispatched", True)}
    assert not wrong, "the server saw requests that are called never sent"
    # At the instant of a kill a request may be handed over and not yet sent; more than a few are wrongly named.
    unsent = [seq for seq in never_seen if causes[seq][0] == "unflushed"]
    assert len(unsent) <= 2 * KILLS


def check_amount(manifest: dict[str, Any], killed: dict[int, int]) -> None:
    """Hold the loss of each kill against the promise: what was not flushed for 5 s."""
    rate = manifest["planned_total"] / 16
    for worker in manifest["workers"]:
        if worker["state"] != "lost":
            continue
        mine = [item for item in manifest["lost_detail"] if item["worker"] == worker["worker"]]
        unflushed = sum(item["last"] - item["first"] + 1 for item in mine if item["cause"] == "unflushed")
        heard_ns = killed[worker["pid"]] - manifest["epoch_monotonic_ns"] - worker["last_heard_ns"]
        assert heard_ns < REPORT_NS, "the master heard of it until it died"
        assert unflushed <= 2 * rate * (FLUSH_NS + REPORT_NS) / 1e9


def test_a_worker_that_is_told_to_go_passes_its_share_on_at_once_and_records_what_it_had_begun(
    tmp_path: Path, start_sim: StartSim
) -> None:
    sim = start_sim(preset="demo")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        master = nodes.master(nodes.workload(rate=4, duration="12s", tokens=400), 2, "--show-invalid")
        staying, going = nodes.worker(), nodes.worker()
        epoch_ns = await_epoch(nodes)
        time.sleep(max(0.0, 3 - (time.monotonic_ns() - epoch_ns) / 1e9))
        going.send_signal(signal.SIGINT)  # at a terminal, by Ctrl-C
        told_ns = time.monotonic_ns() - epoch_ns
        assert master.wait(150) in {0, 3}, nodes.logs()
        assert staying.poll() in {None, 0}
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        seen = [seq_of(record.request_id) for record in sim.stop()]
    lost = lost_of(manifest)
    seqs = [row["seq"] for row in rows]
    assert len(seqs) == len(set(seqs)) == len(set(seen))
    assert set(seqs) | lost == set(range(manifest["planned"]))
    assert {worker["state"] for worker in manifest["workers"]} == {"closed"}
    assert {row["outcome"] for row in rows} == {"ok"}
    passed_on_ns = manifest["members"][-1]["from_ns"]
    assert passed_on_ns - told_ns < LEASE_NS + REPORT_NS, "the share passes on with the lease, not with the last answer"
    assert max(row["end_ns"] for row in rows if row["worker"] == leaver(manifest, going.pid)) > passed_on_ns


def leaver(manifest: dict[str, Any], pid: int) -> str:
    """Return the name under which a process recorded."""
    return next(str(worker["worker"]) for worker in manifest["workers"] if worker["pid"] == pid)


def test_a_run_whose_workers_all_died_ends_with_exit_4_and_names_what_they_had_not_written(
    tmp_path: Path, start_sim: StartSim
) -> None:
    sim = start_sim(preset="fast")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        master = nodes.master(nodes.workload(rate=20, duration="120s"), 2, "--show-invalid")
        workers = [nodes.worker(), nodes.worker()]
        epoch_ns = await_epoch(nodes)
        time.sleep(max(0.0, 8 - (time.monotonic_ns() - epoch_ns) / 1e9))
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        assert master.wait(100) == 4, nodes.logs()
        said = nodes.logs()
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        seen = {seq_of(record.request_id) for record in sim.stop()}
    assert "every worker was lost" in said
    assert manifest["stop_cause"].startswith("fault: every worker was lost")
    assert manifest["verdict"]["status"] == "invalid"
    seqs = [row["seq"] for row in rows]
    assert seqs
    assert len(seqs) == len(set(seqs))
    assert set(seqs) | lost_of(manifest) == set(range(manifest["planned"]))
    check_names(manifest, seen - set(seqs), lost_of(manifest) - seen)
