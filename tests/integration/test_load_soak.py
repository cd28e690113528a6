"""A soak of a day, squeezed into seconds and run by real processes: the day's arrivals, a row for each, few files."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.nodes import lost_of, manifest_of, nodes_in, rows_of, seq_of
from tests.servers.simulator import StartSim, sim_starter

from servebench.workload.load import load_workload
from servebench.workload.model import Workload
from servebench.workload.schedule import plan

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

S = 10**9
HOURS = 24
SECONDS = 12
"""The run crosses two flushes of 5 s on each worker."""
REQUESTS = 360
PER_HOUR = [3, 2, 1, 1, 1, 1, 2, 4, 8, 10, 12, 12, 11, 12, 12, 11, 10, 9, 8, 8, 7, 6, 5, 4]
SOAK = """
name: day
seed: 11
target: {{endpoint: openai-chat, model: sim-1}}
prompts: {{source: {{kind: mt-bench}}, output_tokens: {{from: fixed, tokens: 4}}}}
load:
  kind: open
  phases:
    - {{name: day, shape: diurnal, mean_per_s: {rate!r}, profile: {profile}, period: {length}, duration: {length}}}
"""


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def soak(path: Path, *, rate: float, length: str) -> Workload:
    path.write_text(SOAK.format(rate=rate, length=length, profile=PER_HOUR), encoding="utf-8")
    return load_workload(path)


def test_a_day_squeezed_into_seconds_is_that_day_and_nothing_of_it_is_lost(tmp_path: Path, start_sim: StartSim) -> None:
    squeezed = HOURS * 3600 / SECONDS
    day = plan(soak(tmp_path / "day.yaml", rate=REQUESTS / (HOURS * 3600), length=f"{HOURS}h"))
    short = plan(soak(tmp_path / "short.yaml", rate=REQUESTS / SECONDS, length=f"{SECONDS}s"))
    assert len(day) == len(short) > REQUESTS / 2
    assert np.abs(day.due_ns / squeezed - short.due_ns).max() < 10, "ns: one is the other, at another speed"

    sim = start_sim(preset="fast")
    with nodes_in(tmp_path, f"http://127.0.0.1:{sim.port}") as nodes:
        master = nodes.master(tmp_path / "short.yaml", 2, "--show-invalid", "--no-report")
        workers = [nodes.worker(), nodes.worker()]
        assert master.wait(120) in {0, 3}, nodes.logs()
        assert [worker.wait(30) for worker in workers] == [0, 0]
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        parts = sorted((nodes.run / "requests").iterdir())
        seen = [seq_of(record.request_id) for record in sim.stop()]

    assert sorted(seen) == sorted(row["seq"] for row in rows) == list(range(len(short)))
    assert (manifest["planned"], manifest["rows"], lost_of(manifest)) == (len(short), len(short), set())
    assert {row["outcome"] for row in rows} == {"ok"}
    assert {row["seq"]: row["intended_ns"] for row in rows} == dict(enumerate(short.intended_ns.tolist()))
    by_hour = np.bincount([row["intended_ns"] * HOURS // (SECONDS * S) for row in rows], minlength=HOURS)
    assert by_hour.tolist() == np.bincount(day.due_ns // (3600 * S), minlength=HOURS).tolist()
    # Two flushes and the end make several small parts of each worker; compaction leaves one, whose name tells which.
    assert len({row["worker"] for row in rows}) == len(parts) == 2
    assert all(re.fullmatch(r"part-w[01]-[0-9a-f]{8}-000000-00000[1-9]\.parquet", part.name) for part in parts)
    shards = {shard["path"]: shard["rows"] for shard in manifest["shards"] if shard["path"].startswith("requests/")}
    assert shards == {f"requests/{part.name}": pq.read_metadata(part).num_rows for part in parts}
    assert sum(shards.values()) == len(short)
