"""What a whole run costs per streamed token: command, master, worker, recorder, Parquet, merge; beside the C floor.

    python -m tests.bench.bench_whole [--rate 50] [--tokens 256] [--rounds 3]

Server: floor/mockserver.c, 50 ms to the first token, 20 ms per token: `rate` x 5.2 s streams are open, 256 at 50/s.
Both clients run the same open load twice, short and long; the marginal CPU of the whole process tree per token is what
the additional tokens cost, so start-up is out of it (it is printed apart). Errors are against the server's log.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from tests.bench.bench_transport import FLOOR, ROOT, Run, build, errors, free_port, serve, timed

SHORT_S, LONG_S = 4, 14
TOKEN_KINDS = ("content",)


class Cost(NamedTuple):
    """CPU seconds of a short and a long run, and what they streamed."""

    short_s: float
    long_s: float
    tokens: int

    @property
    def marginal_us(self) -> float:
        """CPU per additional token."""
        return (self.long_s - self.short_s) * 1e6 / self.tokens


def requests_of(seconds: int, rate: float) -> int:
    """Return how many requests a constant rate plans."""
    return int(seconds * rate)


def run_floor(binary: Path, folder: Path, port: int, *, rate: float, tokens: int, seconds: int) -> float:
    """Run the C floor open loop; return its CPU seconds."""
    number = requests_of(seconds, rate)
    command = [str(binary), str(port), str(number), str(number), str(tokens), "", str(rate)]
    return timed(command, folder)[0]


def run_servebench(out: Path, port: int, *, rate: float, tokens: int, seconds: int) -> tuple[float, Path]:
    """Run the command with one worker; return the CPU seconds of its whole tree and its run folder."""
    (out / "bench.yaml").write_text(
        f"""\
name: bench
seed: 1
target: {{endpoint: openai-chat, model: mock}}
prompts: {{source: {{kind: mt-bench}}, output_tokens: {{from: fixed, tokens: {tokens}}}}}
load:
  kind: open
  arrivals: {{process: constant}}
  phases: [{{name: steady, shape: steady, rate_per_s: {rate}, duration: {seconds}s}}]
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "servebench.cli", "run", str(out / "bench.yaml")]
    command += ["--url", f"http://127.0.0.1:{port}", "--workers", "1", "--out", str(out / "runs"), "--no-report"]
    before = os.times()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    after = os.times()
    assert done.returncode in {0, 3}, done.stderr
    used = after.children_user + after.children_system - before.children_user - before.children_system
    folders = sorted(path for path in (out / "runs").iterdir() if not path.name.startswith("."))
    return used, folders[-1]


def as_run(folder: Path) -> tuple[Run, dict[str, float]]:
    """Return the rows of a run as the error measure wants them, and what the client said of itself."""
    epoch = json.loads((folder / "run.json").read_bytes())["epoch_monotonic_ns"]
    run = Run(0.0, {}, {}, {}, {})
    lags = []
    for row in pq.read_table(folder / "requests").to_pylist():
        assert row["outcome"] == "ok", row["error_message"]
        stamps = zip(row["chunk_ns"], row["chunk_kind"], strict=True)
        run.sent_ns[row["request_id"]] = row["sent_ns"] + epoch
        run.tokens_ns[row["request_id"]] = [ns + epoch for ns, kind in stamps if kind in TOKEN_KINDS]
        run.reads[row["request_id"]] = row["chunk_read"]
        lags.append((row["dispatched_ns"] - row["intended_ns"]) / 1e6)
    assert run.tokens_ns, "the run is empty"
    health = pq.read_table(folder / "health").to_pandas()
    own = {
        "dispatch_lag_p50_ms": float(np.percentile(lags, 50)),
        "dispatch_lag_p99_ms": float(np.percentile(lags, 99)),
        "hub_lag_p99_ms": float(health["hub_lag_p99_ns"].median()) / 1e6,
        "worker_cpu": float(health["cpu_share"].median()),
        "worker_rss_mib": float(health["rss_bytes"].max()) / 2**20,
    }
    return run, own


def served(server: Path, log: Path, client: Callable[[int], Any]) -> Any:  # noqa: ANN401 - what the client returns
    """Run a client against a fresh server on a free port."""
    port = free_port()
    process = serve(server, port, log)
    try:
        return client(port)
    finally:
        process.terminate()
        process.communicate()


def show(cost: Cost, run_folder: Path, log: Path) -> None:
    """Print what a whole run cost and how right it was."""
    run, own = as_run(run_folder)
    off = errors(run, log)
    print(
        f"servebench  {cost.marginal_us:6.2f} us/token   start-up and end {cost.short_s:.1f} s CPU   "
        f"gap error {off['gap_50']:.1f} / {off['gap_99']:.1f} us   "
        f"ttft error {off['ttft_50']:.0f} / {off['ttft_99']:.0f} us   "
        + "  ".join(f"{key} {value:.3g}" for key, value in own.items())
    )


def main() -> None:
    """Alternate the floor and whole runs; print a row for each and the ratio of their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rate, tokens = given.rate, given.tokens
    extra = (requests_of(LONG_S, rate) - requests_of(SHORT_S, rate)) * tokens
    floor_us, whole_us = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server, log, floor = build(folder), folder / "truth.bin", folder / "floor"
        subprocess.run(["gcc", "-O2", "-o", str(floor), str(FLOOR / "floor.c")], check=True)
        for _ in range(given.rounds):
            short, long = (
                served(server, log, partial(run_floor, floor, folder, rate=rate, tokens=tokens, seconds=seconds))
                for seconds in (SHORT_S, LONG_S)
            )
            floor_us.append(Cost(short, long, extra).marginal_us)
            print(f"floor-c     {floor_us[-1]:6.2f} us/token")
            (short, _), (long, run_folder) = (
                served(server, log, partial(run_servebench, folder, rate=rate, tokens=tokens, seconds=seconds))
                for seconds in (SHORT_S, LONG_S)
            )
            cost = Cost(short, long, extra)
            whole_us.append(cost.marginal_us)
            show(cost, run_folder, log)
    print(f"whole tree, marginal: {np.median(whole_us) / np.median(floor_us):.2f} x floor-c")


if __name__ == "__main__":
    main()
