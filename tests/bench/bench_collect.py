"""What collecting costs the master, which takes in the parts of four workers with disks of their own.

    python -m tests.bench.bench_collect [RATE] [SECONDS] [NICE]     default 40 requests/s for 30 s

Two runs with the same requests, once with 16 tokens each and once with 256, one token an event: the master's CPU must
not grow with the tokens, nor the round trip of a ping, which holds what a message waits for its hub. NICE (negative,
root) takes the bench out of the competition on a busy machine.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tests.bench.bench_memory import await_child, prefer
from tests.bench.bench_scale import cpu_s, probe
from tests.bench.bench_transport import build, serve
from tests.commands import free_port
from tests.nodes import Nodes, await_epoch, manifest_of, nodes_in

WORKERS = 4
TOKENS = (16, 256, 16, 256)
"""Few and many in turns."""


def main() -> None:
    """Run and print."""
    rate = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    prefer("self", int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    with tempfile.TemporaryDirectory() as name:
        server = build(Path(name))
        for place, tokens in enumerate(TOKENS):
            folder, port = Path(name) / str(place), free_port()
            folder.mkdir()
            process = serve(server, port, folder / "truth.bin", itl_ms=5)
            try:
                with nodes_in(folder, f"http://127.0.0.1:{port}") as nodes:
                    print(measure(nodes, rate, seconds, tokens), flush=True)
            finally:
                process.terminate()
                process.communicate()


def measure(nodes: Nodes, rate: int, seconds: int, tokens: int) -> str:
    """Drive one run and return its line."""
    workload = nodes.workload(rate=rate, duration=f"{seconds}s", tokens=tokens)
    command = nodes.master(workload, WORKERS, "--show-invalid", "--no-report", "--model", "mock", "--collect", "master")
    workers = [nodes.worker(out=nodes.folder / f"disk-{number}") for number in range(WORKERS)]
    for process in (command, *workers):
        prefer(str(process.pid), os.getpriority(os.PRIO_PROCESS, 0))
    master, spread = await_child(command), [psutil.Process(worker.pid) for worker in workers]
    await_epoch(nodes)
    time.sleep(3)
    context = multiprocessing.get_context("spawn")
    trips, results = context.Pipe()
    context.Process(target=probe, args=(nodes.port, seconds - 8, results), daemon=True).start()
    began, before, work = time.monotonic(), cpu_s(master), sum(map(cpu_s, spread))
    found: list[float] = trips.recv() if trips.poll(seconds + 30) else []
    span = time.monotonic() - began
    shares = 100 * (cpu_s(master) - before) / span, 100 * (sum(map(cpu_s, spread)) - work) / span
    if command.wait(180) not in {0, 3}:
        raise SystemExit(nodes.logs())
    manifest: dict[str, Any] = manifest_of(nodes.run)
    size = sum(part.stat().st_size for part in (nodes.run / "requests").iterdir())
    p50, p99 = np.percentile(found, [50, 99])
    return (
        f"{rate * tokens:7,} tokens/s: master {shares[0]:4.1f} % of a core, {WORKERS} workers {shares[1]:5.1f} %; "
        f"ping p50 {p50:.2f}, p99 {p99:.1f} ms; "
        f"{manifest['rows']} rows, {size / 1e6:.2f} MB, lost {len(manifest['lost'])}"
    )


if __name__ == "__main__":
    main()
