"""The live percentiles of a whole run against those computed from its parts by numpy."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.servers.simulator import sim_starter

from servebench.loadgen.sketch import RELATIVE_ERROR
from servebench.workload.codec import encode_workload
from servebench.workload.load import load_workload

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
TOKEN_KINDS = {"content", "reasoning", "tool", "refusal"}
TICK_NS = 1024
PATIENCE_S = 150.0
WORKLOAD = """
name: live
seed: 5
target: {endpoint: openai-chat, model: sim-1}
prompts: {source: {kind: mt-bench}, output_tokens: {from: fixed, tokens: 20}}
load:
  kind: open
  arrivals: {process: poisson}
  phases: [{name: steady, shape: steady, rate_per_s: 10, duration: 6s}]
"""


def run_one_process(folder: Path, port: int) -> list[dict[str, Any]]:
    """Run master and worker in one Locust process; return the lines of its progress pipe.

    One that does not end is aborted, with the stack of each thread in its log, and never outlives the test.
    """
    (folder / "live.yaml").write_text(WORKLOAD, encoding="utf-8")
    (folder / "live.json").write_bytes(encode_workload(load_workload(folder / "live.yaml")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    read_end, write_end = os.pipe()
    own = {
        "PYTHONPATH": str(ROOT / "src"),
        "SERVEBENCH_OUT": str(folder / "runs"),
        "SERVEBENCH_WORKLOAD": str(folder / "live.json"),
        "SERVEBENCH_METRICS_LISTEN": "off",
        "SERVEBENCH_PROGRESS_FD": str(write_end),
    }
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "locust",
        "-f",
        str(ROOT / "locustfiles" / "replay.py"),
        "--headless",
        "--only-summary",
    ]
    command += ["-u", "1", "-r", "1", "--host", f"http://127.0.0.1:{port}"]
    with (folder / "locust.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**kept, **own},
            pass_fds=[write_end],
            # Locust reads keys where its stdin is a terminal, and is stopped for it in the background of one.
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(write_end)
    patience = threading.Timer(PATIENCE_S, process.send_signal, [signal.SIGABRT])
    patience.start()
    try:
        with os.fdopen(read_end, encoding="utf-8") as lines:
            told = [json.loads(line) for line in lines]
        code = process.wait(PATIENCE_S)
    finally:
        patience.cancel()
        process.kill()
    assert code in {0, 3}, (folder / "locust.log").read_text(encoding="utf-8")
    return told


def recorded_ms(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return TTFT, TPOT, gaps and whole requests in ms by their definitions, out of the rows alone."""
    found: dict[str, list[float]] = {"ttft": [], "tpot": [], "chunk_gap": [], "e2e": []}
    for row in rows:
        stamps = [ns for ns, kind in zip(row["chunk_ns"], row["chunk_kind"], strict=True) if kind in TOKEN_KINDS]
        found["ttft"].append((stamps[0] - row["sent_ns"]) / 1e6)
        found["tpot"].append((stamps[-1] - stamps[0]) / (row["output_tokens"] - 1) / 1e6)
        found["chunk_gap"] += [float(gap) for gap in np.diff(stamps) / 1e6]
        found["e2e"].append((row["end_ns"] - row["sent_ns"]) / 1e6)
    return found


def test_live_percentiles_are_those_of_the_parts_within_the_error_of_the_sketch(tmp_path: Path) -> None:
    with sim_starter(tmp_path) as start_sim:
        lines = run_one_process(tmp_path, start_sim(preset="demo").port)
    (run,) = (child for child in (tmp_path / "runs").iterdir() if not child.name.startswith("."))
    rows = pq.read_table(run / "requests").to_pylist()
    last = [line for line in lines if line["kind"] == "status"][-1]
    assert len(rows) > 20
    assert {row["outcome"] for row in rows} == {"ok"}
    assert (last["state"], last["answered"], last["ok"]) == ("closed", len(rows), len(rows))
    for name, values in recorded_ms(rows).items():
        live, ordered = last[f"{name}_ms"], np.sort(values)
        assert live["n"] == len(values), name
        for label, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
            exact = ordered[int(q * (len(values) - 1))]
            # The rows hold stamps in whole ticks; the sketch had them in full.
            assert abs(live[label] - exact) <= 1.01 * RELATIVE_ERROR * exact + 2 * TICK_NS / 1e6, (name, label)
    assert last["server"]["dialect"] == "servebench-sim"
