"""The example locustfile of a pipeline, run by servebench and by Locust alone, against the engine's own log."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import environment
from tests.servers.simulator import StartSim, sim_starter

from servebench.analysis.source import load_run
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


def test_a_run_of_the_example_has_a_row_and_its_steps_for_every_planned_answer(
    tmp_path: Path, start_sim: StartSim, retrieval: str
) -> None:
    sim = start_sim(preset="demo")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "servebench.cli", "run", "--locustfile", str(ROOT / "locustfiles" / "rag.py")),
            *("--url", f"http://127.0.0.1:{sim.port}", "--rate", "6", "--duration", "6s", "--workers", "2"),
            *("--progress", "none", "--json", "--show-invalid"),
        ],
        env=environment(RETRIEVAL=retrieval),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 3}, done.stderr  # 3: a busy machine was too slow
    summary = json.loads(done.stdout)
    asked = [record for record in sim.stop() if record.path == "/v1/chat/completions"]
    assert summary["planned"] == summary["rows"] == summary["measured"]["ok"] == len(asked) > 20
    folder = tmp_path / "runs" / summary["run_id"]
    run = load_run(folder)
    assert run.faults == ()
    steps = run.steps
    assert set(steps) == {"retrieval", "prompt", "model", "check", "other"}
    spent_ns = run.columns.end_ns - run.columns.sent_ns
    assert sum(steps.values()) == pytest.approx(spent_ns, rel=1e-9)
    served_ns = sum(r.t_done_ns - r.t_received_ns for r in asked if r.t_done_ns is not None)
    assert served_ns <= steps["model"].sum() <= spent_ns.sum()
    assert run.manifest.observed["locustfile"]["name"] == "rag.py"
    assert "Where the time of an answer goes" in (folder / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "runs" / "rag").exists()


def test_the_example_pipeline_is_recorded_step_by_step(tmp_path: Path, start_sim: StartSim, retrieval: str) -> None:
    sim = start_sim(preset="demo")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "-f", str(ROOT / "locustfiles" / "rag.py"), "--headless"),
            *("-u", "2", "-r", "2", "-t", "6s", "--host", f"http://127.0.0.1:{sim.port}", "--only-summary"),
        ],
        env=environment(RETRIEVAL=retrieval, SPANS=str(tmp_path / "rag")),
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
