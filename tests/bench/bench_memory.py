"""Memory of worker and master over many short requests: what 100,000 more of them cost once the first are over.

    python -m tests.bench.bench_memory [REQUESTS] [RATE] [NICE]     default 150,000 at 500/s; 1,000,000 take 33 minutes

Starts the mock server in C, a master and one worker on this machine and samples their resident memory twice a second.
NICE (negative, root) takes it out of the competition on a busy machine, which could not keep up with the rate. The
slope is that of the requests after the first 100,000, by which pools, caches and the allocator have grown.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from tests.bench.bench_transport import build, serve
from tests.commands import free_port
from tests.nodes import ROOT, Nodes, manifest_of, nodes_in

SETTLED = 100_000
ENDING = 0.98
"""Share after which the run is closed and written down, which is no matter of requests."""


class Sample(NamedTuple):
    """Resident memory of one process at a time of the run."""

    t_s: float
    rss: int


def main() -> None:
    """Run and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
    rate = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    prefer("self", int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        server = serve(build(folder), port, folder / "truth.bin", itl_ms=1)
        try:
            with nodes_in(folder, f"http://127.0.0.1:{port}") as nodes:
                report(nodes, count, rate)
        finally:
            server.terminate()
            server.communicate()


def report(nodes: Nodes, count: int, rate: int) -> None:
    """Drive the run and print the slopes."""
    workload = nodes.workload(rate=rate, duration=f"{count / rate:.0f}s", tokens=2)
    master = nodes.master(workload, 1, "--show-invalid", "--no-report", "--model", "mock")
    worker = nodes.worker()
    for pid in (nodes.started[0].pid, worker.pid):
        prefer(str(pid), os.getpriority(os.PRIO_PROCESS, 0))
    watched = {"worker": psutil.Process(worker.pid), "master": await_child(master)}
    samples: dict[str, list[Sample]] = {role: [] for role in watched}
    began = time.monotonic()
    while master.poll() is None:
        for role, process in watched.items():
            try:
                rss = process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            if rss:  # a process that has ended and was not waited for has none
                samples[role].append(Sample(time.monotonic() - began, rss))
        time.sleep(0.5)
    manifest = manifest_of(nodes.run)
    if not manifest["rows"]:
        raise SystemExit(nodes.logs())
    print(f"{manifest['rows']} requests of 2 tokens at {rate}/s, {manifest['verdict']['status']}; {ROOT.name}")
    for role, found in samples.items():
        print(f"{role:8} {figures(found, manifest['rows'], rate)}", flush=True)


def await_child(process: "subprocess.Popen[bytes]") -> psutil.Process:
    """Return the Locust master that a command has started."""
    while True:
        found = [c for c in psutil.Process(process.pid).children() if "--master" in c.cmdline()]
        if found:
            return found[0]
        time.sleep(0.05)


def prefer(pid: str, nice: int) -> None:
    """Set the priority of a process with all its threads, and that of its session, where the kernel groups by those."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
    group = Path(f"/proc/{pid}/autogroup")
    if nice and group.exists():
        group.write_text(str(nice), encoding="ascii")


def figures(samples: list[Sample], requests: int, rate: int) -> str:
    """Return the resident memory over the run, and its slope over the later part."""
    t_s = np.array([sample.t_s for sample in samples])
    rss = np.array([sample.rss for sample in samples]) / 1e6
    sent = (t_s - t_s[0]) * rate
    late = (sent > min(SETTLED, 0.4 * requests)) & (sent < ENDING * requests)
    slope = float(np.polyfit(sent[late], rss[late], 1)[0]) * 100_000
    course = " ".join(f"{rss[int(share * (len(rss) - 1))]:.1f}" for share in np.linspace(0.1, 1, 10))
    return f"RSS MB {course}  SLOPE {slope:+.2f} MB per 100,000 requests"


if __name__ == "__main__":
    main()
