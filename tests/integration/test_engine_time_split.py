"""Where the time goes, against the simulator's own log of every request."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.servers.simulator import StartSim, sim_starter

from servebench.analysis.digest import examine
from servebench.analysis.engine_side import ServerSide
from servebench.sim.truth import TruthRecord

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
WORKLOAD = """
name: split
seed: 7
target: {endpoint: openai-chat}
prompts:
  sources: [{kind: mt-bench}]
  input_tokens: {from: fixed, tokens: 40}
  output_tokens: {from: fixed, tokens: 20}
load:
  kind: open
  arrivals: {process: constant}
  phases:
    - {name: steps, shape: steps, rates_per_s: [5, 11], step_duration: 7s}
"""


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def truth_ms(records: list[TruthRecord], first_ns: float, last_ns: float) -> tuple[float, float, int]:
    """Return mean TTFT of the first tokens of a stretch, ms, mean time in the server and number of what ended in it."""
    begun = [r for r in records if r.t_send_ns and first_ns < r.t_send_ns[0] <= last_ns]
    ttft = [r.t_send_ns[0] - r.t_received_ns for r in begun]
    whole = [r.t_done_ns - r.t_received_ns for r in records if r.t_done_ns and first_ns < r.t_done_ns <= last_ns]
    return float(np.mean(ttft)) / 1e6, float(np.mean(whole)) / 1e6, len(whole)


def test_the_split_is_what_the_server_wrote_down_and_the_queue_is_what_grows(
    tmp_path: Path, start_sim: StartSim
) -> None:
    # Four seats and 20 ms a step of one token: about 9.8 answers of 20 tokens a second, so the second level queues up.
    slow = [f"{name}={value}" for name, value in (("max_num_seqs", 4), ("jitter", 0), ("step_base_ns", 20_000_000))]
    sim = start_sim(*(word for setting in slow for word in ("--set", setting)), preset="demo")
    (tmp_path / "split.yaml").write_text(WORKLOAD, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "servebench.cli", "run", "split.yaml", "--url", f"http://127.0.0.1:{sim.port}"),
            *("--workers", "1", "--out", "runs"),
        ],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode in {0, 3}, ended.stderr  # a busy machine makes a run invalid; its files are complete
    truth = sim.stop()
    (folder,) = (child for child in (tmp_path / "runs").iterdir() if not child.name.startswith("."))
    digest = examine(folder).digest
    side: ServerSide = digest.server

    assert len(side.splits) == 2
    for split in side.splits:
        epoch_ns = digest.manifest.epoch_monotonic_ns
        ttft, whole, n = truth_ms(truth, epoch_ns + split.window.start_ns, epoch_ns + split.window.end_ns)
        queue, prefill, rest = split.ms("server queue"), split.ms("prefill"), split.ms("network and client")
        assert queue is not None
        assert prefill is not None
        assert rest is not None
        assert split.n == pytest.approx(n, abs=1), "the same requests on both sides"
        assert queue + prefill == pytest.approx(ttft, rel=0.1, abs=5)
        assert split.ms("decode") == pytest.approx(whole - ttft, rel=0.1)
        assert split.engine_n == pytest.approx(n, abs=1)
        assert sum(part.ms for part in split.parts) == pytest.approx(split.total_ms)
        assert split.server_ttft_ms is not None
        assert split.client_ttft_ms is not None
        assert split.client_ttft_ms > split.server_ttft_ms, "no client sees a token before it was sent"

    assert side.growth is not None
    assert side.growth.parts[0].part == "server queue"
    assert side.telemetry.engines[0].missing == ()
    said = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert {row["part"] for row in said["time_split"]} >= {"send lag", "connect", "server queue", "prefill", "decode"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    for heading in ("Where the time goes", "What of that is measured, and what inferred", "TTFT of client and server"):
        assert heading in page
