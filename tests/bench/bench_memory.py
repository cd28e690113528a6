"""Memory of worker and master over many short requests: what 100,000 more of them cost once the first are over.

    python -m tests.bench.bench_memory [REQUESTS]        default 100,000; SLOPE is per 100,000 in any case

Starts a simulated engine, a master and one worker on this machine and samples their resident memory ten times a second.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from tests.nodes import ROOT, Nodes, manifest_of, nodes_in
from tests.servers.simulator import sim_starter

RATE = 300
SETTLED = 0.4
"""Share of the run after which the slope is taken: pools, caches and the allocator have grown to their size by then."""

ENDING = 0.95
"""Share after which the run is closed and written down, which is no matter of requests."""


class Sample(NamedTuple):
    """Resident memory of one process at a time of the run."""

    t_s: float
    rss: int


def main() -> None:
    """Run and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as name, sim_starter(Path(name)) as start:
        sim = start(preset="fast")
        with nodes_in(Path(name), f"http://127.0.0.1:{sim.port}") as nodes:
            report(nodes, count)


def report(nodes: Nodes, count: int) -> None:
    """Drive the run and print the slopes."""
    workload = nodes.workload(rate=RATE, duration=f"{count / RATE:.0f}s", tokens=2)
    master = nodes.master(workload, 1, "--show-invalid", "--no-report")
    worker = nodes.worker()
    locust = await_child(master)
    samples: dict[str, list[Sample]] = {"worker": [], "master": []}
    began = time.monotonic()
    while master.poll() is None:
        for role, process in (("worker", psutil.Process(worker.pid)), ("master", locust)):
            try:
                rss = process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            if rss:  # a process that has ended and was not waited for has none
                samples[role].append(Sample(time.monotonic() - began, rss))
        time.sleep(0.1)
    rows = manifest_of(nodes.run)["rows"]
    if not rows:
        raise SystemExit(nodes.logs())
    print(f"{rows} requests of 2 tokens at {RATE}/s; {ROOT.name}")
    for role, found in samples.items():
        print(f"{role:8} {figures(found, rows)}")


def await_child(process: "subprocess.Popen[bytes]") -> psutil.Process:
    """Return the Locust master that a command has started."""
    while True:
        found = [c for c in psutil.Process(process.pid).children() if "--master" in c.cmdline()]
        if found:
            return found[0]
        time.sleep(0.05)


def figures(samples: list[Sample], requests: int) -> str:
    """Return the resident memory over the run, and its slope over the later part."""
    t_s = np.array([sample.t_s for sample in samples])
    rss = np.array([sample.rss for sample in samples]) / 1e6
    late = (t_s > SETTLED * t_s[-1]) & (t_s < ENDING * t_s[-1])
    slope = float(np.polyfit(t_s[late], rss[late], 1)[0]) * t_s[-1] / requests * 100_000
    course = " ".join(f"{rss[int(share * (len(rss) - 1))]:.1f}" for share in np.linspace(0.1, 1, 10))
    return f"RSS MB {course}  SLOPE {slope:+.2f} MB per 100,000 requests"


if __name__ == "__main__":
    main()
