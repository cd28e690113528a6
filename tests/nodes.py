"""A load generator whose master and workers are started one by one, as on several nodes, and what it left behind."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]

WORKLOAD = """
name: nodes
seed: {seed}
target: {{endpoint: openai-chat, model: sim-1}}
prompts:
  source: {{kind: mt-bench}}
  output_tokens: {{from: fixed, tokens: {tokens}}}
load:
  kind: open
  arrivals: {{process: poisson}}
  phases:
    - {{name: steady, shape: steady, rate_per_s: {rate}, duration: {duration}}}
"""


@dataclass
class Nodes:
    """Processes of one load generator in `folder`; `url` is what they load."""

    folder: Path
    url: str
    port: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def workload(self, *, rate: float, duration: str, tokens: int = 20, seed: int = 3) -> Path:
        """Write the workload file."""
        path = self.folder / "nodes.yaml"
        path.write_text(WORKLOAD.format(rate=rate, duration=duration, tokens=tokens, seed=seed), encoding="utf-8")
        return path

    def master(
        self, workload: Path, workers: int, *options: str, bind: str = "127.0.0.1", prefix: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        """Start `servebench run`, which waits for workers that others start."""
        expect = ("--expect-workers", str(workers), "--bind", f"{bind}:{self.port}")
        out = ("--out", str(self.folder / "runs"))
        return self.spawn("run", str(workload), *expect, "--url", self.url, *out, *options, prefix=prefix)

    def worker(
        self, *options: str, out: Path | None = None, host: str = "127.0.0.1", prefix: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        """Start `servebench worker`."""
        where = str(out or self.folder / "runs")
        return self.spawn("worker", "--master", f"{host}:{self.port}", "--out", where, *options, prefix=prefix)

    def spawn(self, *command: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """Start a servebench command; what it prints goes to a log of its own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
        log = self.folder / f"process-{len(self.started)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "servebench.cli", *command],
                cwd=self.folder,
                env={**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def logs(self) -> str:
        """Return what all processes printed, for the message of a failed assertion."""
        return "\n".join(path.read_text("utf-8", "replace") for path in sorted(self.folder.glob("process-*.log")))

    def end(self) -> None:
        """Kill what still runs."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()

    @property
    def run(self) -> Path:
        """The one run folder."""
        (found,) = (child for child in (self.folder / "runs").iterdir() if not child.name.startswith("."))
        return found


@contextmanager
def nodes_in(folder: Path, url: str) -> Iterator[Nodes]:
    """Give a load generator in a folder; its processes are ended with the block."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    nodes = Nodes(folder=folder, url=url, port=port)
    try:
        yield nodes
    finally:
        nodes.end()


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Return the rows of all parts, as any Parquet reader sees them."""
    rows: list[dict[str, Any]] = pq.read_table(run / "requests").to_pylist()
    return rows


def manifest_of(run: Path) -> dict[str, Any]:
    """Return run.json."""
    manifest: dict[str, Any] = json.loads((run / "run.json").read_bytes())
    return manifest


def lost_of(manifest: dict[str, Any]) -> set[int]:
    """Return the seqs that the manifest names as lost."""
    return {seq for first, last in manifest["lost"] for seq in range(first, last + 1)}


def await_epoch(nodes: Nodes) -> int:
    """Return the monotonic time of the run's zero, once the run is armed."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if epoch_ns := manifest_of(nodes.run)["epoch_monotonic_ns"]:
                return int(epoch_ns)
        except (ValueError, OSError):
            pass
        time.sleep(0.02)
    pytest.fail(f"the run did not begin\n{nodes.logs()}")


def seq_of(request_id: str | None) -> int:
    """Return the seq that a request id names."""
    found = re.fullmatch(r"[0-9a-f]{8}-(\d+)-0", request_id or "")
    assert found, request_id
    return int(found[1])
