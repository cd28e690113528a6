"""A master that is killed: its workers send nothing more, keep every row, and the run can be finished without it."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.nodes import await_epoch, lost_of, manifest_of, nodes_in, rows_of, seq_of
from tests.servers.simulator import StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

LEASE_S = 1.2
KILL_S, RATE = 6, 20


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def test_a_killed_master_costs_what_was_not_sent_yet_and_nothing_that_was(tmp_path: Path, start_sim: StartSim) -> None:
    sim = start_sim(preset="fast")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        command = nodes.master(nodes.workload(rate=RATE, duration="120s"), 2, "--show-invalid")
        workers = [nodes.worker(), nodes.worker()]
        epoch_ns = await_epoch(nodes)
        time.sleep(max(0.0, KILL_S - (time.monotonic_ns() - epoch_ns) / 1e9))
        (locust,) = [child for child in psutil.Process(command.pid).children() if "--master" in child.cmdline()]
        locust.send_signal(signal.SIGKILL)
        killed_s = (time.monotonic_ns() - epoch_ns) / 1e9
        assert command.wait(60) == 4, nodes.logs()
        said = nodes.logs()
        for worker in workers:
            worker.terminate()  # as docker stop does; else they wait 30 s for their master
        assert [worker.wait(60) for worker in workers] == [0, 0], nodes.logs()
        seen = [record for record in sim.stop() if record.request_id is not None]
        assert nodes.spawn("merge", str(nodes.run), "--no-report").wait(60) == 130, nodes.logs()
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)

    assert "the load generator failed (signal 9)" in said
    assert manifest["verdict"]["status"] == "interrupted"
    assert "the master ended without closing the run" in manifest["verdict"]["reasons"][0]
    last_s = max(record.t_received_ns - epoch_ns for record in seen) / 1e9
    assert last_s < killed_s + LEASE_S + 1, "a worker without a lease sends nothing; the rest is this machine's"
    seqs = sorted(row["seq"] for row in rows)
    assert seqs == sorted(seq_of(record.request_id) for record in seen), "each request that the server saw has its row"
    assert len(seqs) == len(set(seqs)) > RATE * (KILL_S - 2)
    assert set(seqs) | lost_of(manifest) == set(range(manifest["planned"]))
