"""A worker whose clock is an hour ahead changes nothing: the monotonic one (a time namespace), or that on the wall.

The server's log is the truth.
"""

import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.nodes import Nodes, manifest_of, nodes_in, rows_of
from tests.servers.simulator import StartSim, sim_starter

from servebench.analysis.run import InvalidRunWarning, open_run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

HOUR_AHEAD = ("unshare", "--time", "--monotonic", "3600", "--boottime", "3600", "--fork", "--kill-child")
HOUR_NS = 3600 * 10**9


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.fixture
def ahead() -> tuple[str, ...]:
    """Return the command that starts another in a time namespace."""
    if os.geteuid() != 0 or subprocess.run([*HOUR_AHEAD, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no time namespaces here (needs root, Linux 5.6, util-linux 2.36)")
    return HOUR_AHEAD


def test_a_worker_an_hour_ahead_is_put_on_the_masters_time_axis(
    tmp_path: Path, start_sim: StartSim, ahead: tuple[str, ...]
) -> None:
    sim = start_sim(preset="demo")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        code = run_two_workers(nodes, ahead)
        assert code in {0, 3}, nodes.logs()
        truth = {record.request_id: record for record in sim.stop()}
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        with warnings.catch_warnings():
            # A busy machine makes the run INVALID; its times are right all the same.
            warnings.simplefilter("ignore", InvalidRunWarning)
            frame = open_run(nodes.run).requests

    assert sorted(row["seq"] for row in rows) == list(range(manifest["planned"]))
    by_offset = {record["worker"]: record["offset_ns"] for record in manifest["workers"]}
    (far,) = [worker for worker, offset in by_offset.items() if offset != 0]
    assert abs(by_offset[far] + HOUR_NS) < 50_000_000, "the worker is ahead, so its offset is minus an hour"
    assert list(manifest["clock"]) == [far]
    bound_ns = max(knot[2] for knot in manifest["clock"][far])
    assert 0 < bound_ns < 50_000_000

    of_far = frame[frame["worker"] == far]
    assert len(of_far) > 10
    arrived = np.array([truth[name].t_received_ns for name in of_far["request_id"]])
    # The request leaves the worker and is read by the server less than 50 ms later, on this busy machine too.
    delay = arrived - (of_far["sent_ns"].to_numpy().astype(np.int64) + manifest["epoch_monotonic_ns"])
    assert delay.min() >= -bound_ns, "no request is read before it was sent, but for the bound of the clock"
    assert np.median(delay) < 50_000_000 + bound_ns


@pytest.fixture
def wall_ahead(tmp_path: Path) -> tuple[str, ...]:
    """Return the command that starts another whose time of day and kernel stamps are an hour ahead."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here, to shift a process's wall clock")
    library = tmp_path / "wall_clock.so"
    source = Path(__file__).parents[1] / "servers" / "wall_clock.c"
    flags = ("-shared", "-fPIC", "-O2", "-DSHIFT_S=3600")
    subprocess.run([compiler, *flags, "-o", str(library), str(source), "-ldl"], check=True)
    shifted = ("env", f"LD_PRELOAD={library}")
    now = subprocess.run(
        [*shifted, sys.executable, "-c", "import time; print(time.time())"], check=True, capture_output=True
    )
    assert 3590 < float(now.stdout) - time.time() < 3600.5
    return shifted


def test_a_worker_whose_wall_clock_is_an_hour_ahead_changes_nothing(
    tmp_path: Path, start_sim: StartSim, wall_ahead: tuple[str, ...]
) -> None:
    sim = start_sim(preset="demo")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        code = run_two_workers(nodes, wall_ahead)
        assert code in {0, 3}, nodes.logs()
        truth = {record.request_id: record for record in sim.stop()}
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        stamped = [pq.read_metadata(part).metadata or {} for part in nodes.run.glob("requests/*.parquet")]

    assert sorted(row["seq"] for row in rows) == list(range(manifest["planned"]))
    workers = {record["worker"]: record["offset_ns"] for record in manifest["workers"]}
    assert list(workers.values()) == [0, 0]
    assert manifest["clock"] == {}
    apart_ns = [abs(int(metadata[b"epoch_unix_ns"]) - manifest["epoch_unix_ns"]) for metadata in stamped]
    assert max(apart_ns) < 10**9, "the master's wall clock counts"
    for worker in workers:
        mine = [row for row in rows if row["worker"] == worker]
        assert len(mine) > 10
        delays = [
            truth[row["request_id"]].t_received_ns - row["sent_ns"] - manifest["epoch_monotonic_ns"] for row in mine
        ]
        assert min(delays) >= 0
        assert np.median(delays) < 50_000_000
        waits = [delay for row in mine for delay in row["chunk_delay_ns"]]
        assert np.mean([delay is not None for delay in waits]) > 0.9, "the kernel's stamps count as on any host"
    assert max(row["end_ns"] for row in rows) - min(row["sent_ns"] for row in rows) < 60 * 10**9


def run_two_workers(nodes: Nodes, ahead: tuple[str, ...]) -> int:
    master = nodes.master(nodes.workload(rate=8, duration="6s"), 2)
    nodes.worker()
    nodes.worker(prefix=ahead)
    return master.wait(120)
