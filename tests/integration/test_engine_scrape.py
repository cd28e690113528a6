"""The engine's own metrics, kept beside the run, against the engine's own log."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.servers.simulator import StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def test_a_run_keeps_what_the_engine_says_of_itself(tmp_path: Path, start_sim: StartSim) -> None:
    sim = start_sim(preset="demo")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "servebench.cli", "run", "--url", f"http://127.0.0.1:{sim.port}"),
            *("--rate", "8", "--duration", "5s", "--output-tokens", "30", "--workers", "1", "--out", "runs"),
        ],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT / "src"), "SERVEBENCH_METRICS_URLS": f"http://127.0.0.1:{sim.port}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode in {0, 3}, ended.stderr  # a busy machine makes a run invalid; its files are complete
    truth = sim.stop()
    (run,) = (child for child in (tmp_path / "runs").iterdir() if not child.name.startswith("."))
    rows = pq.read_table(run / "engine").to_pylist()

    assert len(truth) > 10
    seconds = sorted({row["t_ns"] for row in rows})
    assert len(seconds) >= 4
    assert len(seconds) <= (seconds[-1] - seconds[0]) / 1e9 + 3, "one page a second, one at the end"
    canonical = {row["series"]: row["value"] for row in rows if row["series"] and row["t_ns"] == seconds[-1]}
    raw = {row["name"]: row for row in rows if row["name"] and row["t_ns"] == seconds[-1]}
    assert canonical["ttft_n"] == len(truth), "the last page is read when the last answer is in"
    assert canonical["prompt_tokens"] == sum(record.prompt_tokens or 0 for record in truth)
    assert raw["vllm:prompt_tokens_total"]["value"] == canonical["prompt_tokens"]
    assert json.loads(raw["vllm:prompt_tokens_total"]["labels"])["model_name"] == "sim-1"

    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    (told,) = (event for event in events if event["kind"] == "engine")
    assert told["data"]["dialect"] == "servebench-sim"
    assert told["data"]["missing"] == []
