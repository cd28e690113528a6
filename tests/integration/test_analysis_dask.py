"""A Dask cluster of two workers reads a run and gives the same bytes; skipped where Dask is not installed."""

from pathlib import Path

import pytest
from tests.builders import busy_run

from servebench.analysis.digest import examine
from servebench.analysis.merge import write_outputs
from servebench.analysis.pool import helpers

distributed = pytest.importorskip("distributed", reason="the package distributed is not installed")
pytestmark = pytest.mark.integration
OUTPUTS = ("run.json", "summary.json", "tables/percentiles.csv", "tables/curve.csv", "tables/arrivals.csv")


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, shared = busy_run(tmp_path / "alone"), busy_run(tmp_path / "shared")
    write_outputs(alone, examine(alone).digest)
    monkeypatch.setattr("servebench.analysis.chunks.BATCH_BYTES", 1)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        address = "dask://" + cluster.scheduler_address.removeprefix("tcp://")
        with helpers(shared, address) as executor:
            write_outputs(shared, examine(shared, executor).digest)
    for name in OUTPUTS:
        assert (shared / name).read_bytes() == (alone / name).read_bytes(), name
