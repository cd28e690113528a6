"""The example locustfile of a pipeline, run by Locust itself against the simulated engine and its own log."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.simulator import StartSim, sim_starter

from servebench.analysis.spans import breakdowns

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.fixture
def retrieval() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(ROOT / "locustfiles" / "retrieval.py"), str(port)])
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the retrieval service did not start"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_the_example_pipeline_is_recorded_step_by_step(tmp_path: Path, start_sim: StartSim, retrieval: str) -> None:
    sim = start_sim(preset="demo")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "-f", str(ROOT / "locustfiles" / "rag.py"), "--headless"),
            *("-u", "2", "-r", "2", "-t", "6s", "--host", f"http://127.0.0.1:{sim.port}", "--only-summary"),
        ],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))},
            "PYTHONPATH": str(ROOT / "src"),
            "RETRIEVAL": retrieval,
            "SPANS": str(tmp_path / "rag"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    truth = [record for record in sim.stop() if record.path == "/v1/chat/completions"]
    (found,) = breakdowns(tmp_path / "rag")
    assert found.ok > 0, done.stderr
    # Locust cuts what is going on at its end: at most one answer a user.
    assert len(truth) - 2 <= found.ok <= len(truth)
    parts = {part.span: part for part in found.parts}
    assert set(parts) == {"retrieval", "prompt", "model", "check", "other"}
    served_ms = sum((r.t_done_ns - r.t_received_ns) / 1e6 for r in truth if r.t_done_ns is not None)
    assert (
        parts["model"].mean * found.ok >= served_ms - max((r.t_done_ns or 0) - r.t_received_ns for r in truth) / 1e6 * 2
    )
    assert parts["model"].share > 0.5
    assert found.mean is not None
    assert sum(part.mean for part in found.parts) == pytest.approx(found.mean)
