"""Load that was sent other than planned is told in verdict and tables, with the size of the difference."""

import csv
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.nodes import Nodes, manifest_of, nodes_in, rows_of
from tests.servers.simulator import StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

HELD_S = 0.7
"""Shorter than the silence after which a worker counts as lost."""
RATE = 20


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def test_a_worker_that_is_held_up_sends_a_volley_and_the_verdict_says_so(tmp_path: Path, start_sim: StartSim) -> None:
    sim = start_sim(preset="fast")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        path = nodes.workload(rate=RATE, duration="12s", tokens=2)
        path.write_text(path.read_text("utf-8").replace("poisson", "constant"), "utf-8")
        master = nodes.spawn(
            "run", str(path), "--url", nodes.url, "--out", str(tmp_path / "runs"), "--workers", "1", "--show-invalid"
        )
        worker = worker_of(master.pid)
        await_run(nodes)
        hold_up(worker, nodes.run, at_s=4)
        assert master.wait(90) == 3, nodes.logs()
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        (found,) = json.loads((nodes.run / "summary.json").read_bytes())["findings"]["arrivals"]
        (line,) = csv.DictReader((nodes.run / "tables" / "arrivals.csv").read_text("utf-8").splitlines())
        report = (nodes.run / "report.html").read_text("utf-8")
    sent = sorted(row["sent_ns"] for row in rows)
    assert len(sent) == manifest["planned"] == 12 * RATE
    missed = int(HELD_S * RATE)
    assert found["planned_cv"] == pytest.approx(0, abs=1e-6)
    assert found["planned_per_s"] == found["sent_per_s"] == RATE
    assert found["worst_difference"] >= missed - 2
    assert found["sent_cv"] > 0.3
    assert float(line["worst_difference"]) == found["worst_difference"]
    (told,) = (text for text in manifest["verdict"]["reasons"] if "sent other than planned" in text)
    assert "CV of gaps" in told
    assert "planned 0" in told
    assert not manifest["verdict"]["valid"], "so many requests were dispatched late"
    assert "Arrivals" in report or "arrivals" in report


def worker_of(pid: int) -> psutil.Process:
    """Return the one worker of a command, once it has started."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [child for child in psutil.Process(pid).children() if "--worker" in child.cmdline()]
        if found:
            return found[0]
        time.sleep(0.05)
    pytest.fail("no worker")


def await_run(nodes: Nodes) -> None:
    """Wait until there is a run folder with a manifest."""
    deadline = time.monotonic() + 60
    while not list((nodes.folder / "runs").glob("[0-9]*/run.json")):
        assert time.monotonic() < deadline, nodes.logs()
        time.sleep(0.05)


def hold_up(worker: psutil.Process, run: Path, *, at_s: float) -> None:
    """Stop a process for a moment, so long after the run's zero."""
    deadline = time.monotonic() + 60
    while not (epoch_ns := manifest_of(run)["epoch_monotonic_ns"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(max(0.0, epoch_ns / 1e9 + at_s - time.monotonic()))
    worker.send_signal(signal.SIGSTOP)
    time.sleep(HELD_S)
    worker.send_signal(signal.SIGCONT)
