"""A Dask cluster of two workers helps to merge a run and gives the same bytes; skipped where Dask is not installed."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.builders import busy_run

from servebench.cli.main import cli

distributed = pytest.importorskip("distributed", reason="the package distributed is not installed")
pytestmark = pytest.mark.integration


def outputs(folder: Path) -> dict[str, bytes]:
    """Return what a merge writes but the page, which names the folder."""
    names = ["run.json", "summary.json", "summary.md", *(f"tables/{path.name}" for path in folder.glob("tables/*.csv"))]
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, shared = busy_run(tmp_path / "alone"), busy_run(tmp_path / "shared")
    # So small a run would else be one piece of work, whose events are kept.
    monkeypatch.setattr("servebench.analysis.source.KEPT_EVENTS", 0)
    monkeypatch.setattr("servebench.analysis.chunks.BATCH_BYTES", 1)
    arguments = ["merge", "--no-report", "--no-compact"]
    first = CliRunner().invoke(cli, [*arguments, str(alone)])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        address = "dask://" + cluster.scheduler_address.removeprefix("tcp://")
        second = CliRunner().invoke(cli, [*arguments, "--executor", address, str(shared)])
        with distributed.Client(cluster) as client:
            busy = client.run(lambda: "servebench.analysis.gaps" in __import__("sys").modules)
    assert (first.exception, second.exception) == (None, None)
    assert outputs(shared) == outputs(alone)
    assert list(busy.values()) == [True, True], "both workers counted gaps"
