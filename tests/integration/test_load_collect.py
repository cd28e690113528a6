"""Parts of workers that share no folder with the master reach it, or a URL, whole and once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nodes import Nodes, manifest_of, nodes_in, rows_of
from tests.servers.simulator import StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def run_apart(nodes: Nodes, *options: str) -> None:
    """Run with two workers, each with an --out of its own."""
    master = nodes.master(nodes.workload(rate=20, duration="8s"), 2, *options)
    for number in range(2):
        nodes.worker(out=nodes.folder / f"node-{number}")
    assert master.wait(120) in {0, 3}, nodes.logs()


def left(nodes: Nodes) -> list[Path]:
    """Return the parts that workers still have."""
    return [path for path in nodes.folder.glob("node-*/2*/*/*.parquet") if path.is_file()]


def complete(nodes: Nodes) -> None:
    manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
    assert manifest["lost"] == []
    assert sorted(row["seq"] for row in rows) == list(range(manifest["planned"]))
    assert len({row["worker"] for row in rows}) == 2
    assert len({part["path"] for part in manifest["shards"]}) == len(manifest["shards"])


def test_parts_travel_to_the_master_by_default_and_leave_the_nodes(tmp_path: Path, start_sim: StartSim) -> None:
    with nodes_in(tmp_path, f"http://127.0.0.1:{start_sim(preset='fast').port}") as nodes:
        run_apart(nodes)
        complete(nodes)
        assert left(nodes) == []
        assert list((nodes.run / "health").glob("*.parquet"))
        assert not list(nodes.run.rglob(".*")), "nothing half-sent is left"


def test_parts_stay_on_their_nodes_when_told_to_and_a_merge_takes_them_in_later(
    tmp_path: Path, start_sim: StartSim
) -> None:
    with nodes_in(tmp_path, f"http://127.0.0.1:{start_sim(preset='fast').port}") as nodes:
        run_apart(nodes, "--collect", "local", "--show-invalid")
        manifest = manifest_of(nodes.run)
        assert manifest["verdict"]["status"] == "invalid", "no row is there yet"
        parts = left(nodes)
        assert parts
        for path in parts:
            (nodes.run / path.parent.name / path.name).write_bytes(path.read_bytes())
        assert nodes.spawn("merge", str(nodes.run), "--no-report").wait(60) in {0, 3}
        complete(nodes)


def test_parts_go_to_a_url_and_the_merge_fetches_them(tmp_path: Path, start_sim: StartSim) -> None:
    with nodes_in(tmp_path, f"http://127.0.0.1:{start_sim(preset='fast').port}") as nodes:
        store = tmp_path / "store"
        store.mkdir()
        run_apart(nodes, "--collect", store.as_uri())
        complete(nodes)
        assert left(nodes) == []
        assert list(store.glob(f"{nodes.run.name}/requests/part-*.parquet"))
