"""A disk that is really full: the run stops and says so, and what was written stays readable."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.nodes import manifest_of, nodes_in
from tests.servers.simulator import StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 160 kB; skip where we may not."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (needs root)")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_ends_the_run_with_exit_4_and_leaves_whole_parts(
    tmp_path: Path, start_sim: StartSim, small_disk: Path
) -> None:
    with nodes_in(tmp_path, f"http://127.0.0.1:{start_sim(preset='fast').port}") as nodes:
        workload = nodes.workload(rate=40, duration="60s", tokens=60)
        master = nodes.master(workload, 1, "--collect", "local", "--drain", "5s")
        nodes.worker(out=small_disk)
        assert master.wait(90) == 4, nodes.logs()
        said = nodes.logs()
        manifest = manifest_of(nodes.run)
    parts = list(small_disk.glob("2*/requests/part-*.parquet"))
    assert parts
    assert sum(pq.read_table(part).num_rows for part in parts) > 0
    assert not list(small_disk.glob("2*/requests/.*.tmp")), "a part that did not fit leaves nothing behind"
    assert "No space left on device; free space on that disk, or give another folder with --out" in said
    assert manifest["stop_cause"].startswith("fault: cannot write")
