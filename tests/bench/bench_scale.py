"""Hundreds of workers on one real master: only their messages are simulated, at the rate of real ones.

    python -m tests.bench.bench_scale [WORKERS] [SECONDS] [NICE]

Default: 500 workers for 20 s; one more joins, one dies. NICE (negative, root) takes this bench out of the competition
with whatever else a busy machine does.

Prints the master's CPU and the round trip of a probe's pings, which holds what the master's hub lets a message wait.
"""

import gc
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped] # Locust's own
import numpy as np
import psutil
import zmq
from locust import __version__ as locust_version
from tests.bench.bench_memory import await_child, prefer
from tests.nodes import Nodes, manifest_of, nodes_in

from servebench.workload.codec import decode_workload
from servebench.workload.schedule import plan

STATUS = {
    "done": False,
    "totals": {"dispatched": 10, "sent": 10, "outcomes": {"ok": 10}, "output_tokens": 2560},
    # A second of 100 requests x 256 chunks fills about so many 0.5 % buckets.
    "ttft": dict.fromkeys(range(3000, 3080), 1),
    "tpot": dict.fromkeys(range(2600, 2680), 1),
    "chunk_gap": dict.fromkeys(range(2500, 2700), 120),
    "health": {"hub_lag_p99_ns": 1_000_000, "cpu_share": 0.5},
}
HEARTBEAT = {"current_cpu_usage": 50, "current_memory_usage": 120_000_000}


class Crowd:
    """Simulated workers of one process."""

    def __init__(self, port: int, names: Iterable[str], url: str) -> None:
        self.context, self.poller = zmq.Context(), zmq.Poller()
        self.url, self.schedule_hash = url, ""
        self.sockets: dict[zmq.Socket[bytes], str] = {}
        self.changes: dict[zmq.Socket[bytes], int] = {}
        self.run_id = ""
        self.ended = self.done = False
        self.port = port
        for name in names:
            self.join(name)

    def join(self, name: str) -> None:
        """Connect one worker and say hello, as a real one does once it is acknowledged."""
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, name.encode())
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://127.0.0.1:{self.port}")
        self.sockets[socket] = name
        self.poller.register(socket, zmq.POLLIN)
        self.send(socket, "client_ready", locust_version)
        hello = {"worker_id": name, "worker": worker_of(name), "host": "h", "pid": 1, "boot_id": "another"}
        self.send(socket, "servebench.Hello", hello)

    def leave(self) -> None:
        """Drop one worker without a word, as kill -9 does."""
        socket, _ = self.sockets.popitem()
        self.poller.unregister(socket)
        socket.close()

    def send(self, socket: "zmq.Socket[bytes]", kind: str, data: object) -> None:
        """Send one message in Locust's form."""
        socket.send(msgpack.dumps((kind, data, self.sockets[socket])), zmq.NOBLOCK)

    def of_run(self, socket: "zmq.Socket[bytes]", kind: str, **data: object) -> None:
        """Send one of our messages."""
        self.send(socket, f"servebench.{kind}", {"run_id": self.run_id, "worker_id": self.sockets[socket], **data})

    def serve(self, until: float) -> None:
        """Answer and report until a moment or the end of the run."""
        due: dict[zmq.Socket[bytes], float] = {}
        while time.monotonic() < until and not self.ended:
            for socket, _ in self.poller.poll(20):
                self.answer(socket, socket.recv())
            now = time.monotonic()
            for place, socket in enumerate(self.sockets):
                if now >= due.setdefault(socket, now + place / len(self.sockets)):
                    due[socket] += 1
                    self.report(socket)

    def report(self, socket: "zmq.Socket[bytes]") -> None:
        """Send what a worker sends each second."""
        state = {"state": "running" if self.run_id else "ready"}
        self.send(socket, "heartbeat", HEARTBEAT | state)
        if self.run_id:
            self.of_run(socket, "Status", **(STATUS | {"done": self.done}))
            for _ in range(2):
                ping = {"worker_id": self.sockets[socket], "t0_monotonic_ns": time.monotonic_ns()}
                self.send(socket, "servebench.ClockPing", ping)

    def answer(self, socket: "zmq.Socket[bytes]", raw: bytes) -> None:
        """Do what a worker does on a message of the master."""
        kind, data, _ = msgpack.loads(raw, strict_map_key=False)
        if kind == "servebench.Lease":
            if data["members"] is not None:
                self.changes[socket] = len(data["members"])
            self.of_run(socket, "Alive", changes=self.changes.get(socket, 0))
            return
        if kind == "servebench.Prepare":
            self.run_id = data["run_id"]
            if not self.schedule_hash:
                self.schedule_hash = plan(decode_workload(data["workload"].encode())).schedule_hash
            ready = {"schedule_hash": self.schedule_hash, "offset_ns": 0, "clock_bound_ns": 0}
            self.of_run(socket, "Ready", **ready)
        elif kind == "spawn":
            self.send(socket, "spawning", None)
            counts = {"user_classes_count": data["user_classes_count"], "user_count": 1}
            self.send(socket, "spawning_complete", counts)
        elif kind == "servebench.Stop":
            self.of_run(socket, "Status", **(STATUS | {"done": True}))
        elif kind == "servebench.Close":
            self.of_run(socket, "Closed", begun=0, rows=0)
        elif kind == "quit":
            self.ended = True


def worker_of(name: str) -> str:
    """Return the name under which a simulated worker records."""
    number = int(name.rpartition("-")[2])
    return f"w{number}-{number:08x}"


def crowd(port: int, count: int, seconds: float, started: Connection) -> None:
    """Be the workers: all of them, after a third of the time one more, after two thirds one less."""
    gc.disable()  # a crowd that stalls looks like workers that are lost
    people = Crowd(port, (f"bench-{number}" for number in range(count)), "")
    while not people.run_id:
        people.serve(time.monotonic() + 0.2)
    started.send(True)
    began = time.monotonic()
    people.serve(began + seconds / 3)
    people.join(f"bench-{count}")
    people.serve(began + 2 * seconds / 3)
    people.leave()
    people.serve(began + seconds)
    people.done = True
    people.serve(began + seconds + 60)


def probe(port: int, seconds: float, result: Connection) -> None:
    """Ping the master 50 times a second from a process of its own; send the round trips in ms."""
    gc.disable()  # a collection here would count as the master's
    socket = zmq.Context().socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, b"probe")
    socket.connect(f"tcp://127.0.0.1:{port}")
    trips, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        sent_ns = time.monotonic_ns()
        data = {"worker_id": "probe", "t0_monotonic_ns": sent_ns}
        socket.send(msgpack.dumps(("servebench.ClockPing", data, "probe")))
        if socket.poll(5000):
            socket.recv()
            trips.append((time.monotonic_ns() - sent_ns) / 1e6)
        time.sleep(0.02)
    result.send(trips)


def main() -> None:
    """Run and print."""
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    nice = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    with tempfile.TemporaryDirectory() as folder, nodes_in(Path(folder), "http://127.0.0.1:9") as nodes:
        measure(nodes, workers, seconds, nice)


def measure(nodes: Nodes, workers: int, seconds: int, nice: int) -> None:
    """Drive one run of simulated workers and print what the master needed."""
    workload = nodes.workload(rate=10, duration=f"{seconds}s")
    options = ("--no-preflight", "--no-report", "--show-invalid", "--collect", "local")
    prefer("self", nice)
    command = nodes.master(workload, workers, *options)
    master = await_child(command)
    prefer(str(command.pid), nice)
    prefer(str(master.pid), nice)
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    people = context.Process(target=crowd, args=(nodes.port, workers, seconds, theirs), daemon=True)
    people.start()
    if not mine.poll(120):
        raise SystemExit(nodes.logs())
    mine.recv()
    time.sleep(3)
    began, cpu = time.monotonic(), cpu_s(master)
    trips, results = context.Pipe()
    context.Process(target=probe, args=(nodes.port, seconds - 6, results), daemon=True).start()
    found: list[float] = trips.recv() if trips.poll(seconds + 60) else []
    try:
        share, resident = (cpu_s(master) - cpu) / (time.monotonic() - began), rss_mb(master)
    except psutil.NoSuchProcess:
        raise SystemExit(nodes.logs()) from None
    command.wait(180)
    manifest: dict[str, Any] = manifest_of(nodes.run)
    states = [worker["state"] for worker in manifest["workers"]]
    p50, p99, worst = np.percentile(found, [50, 99, 100])
    print(f"{workers} workers: master {100 * share:.0f} % of a core, RSS {resident}")
    lag = manifest["observed"]["master_hub_lag_ms"]
    print(f"lateness of its hub, joins included: p50 {lag['p50']:.2f}, p99 {lag['p99']:.2f}, max {lag['max']:.1f} ms")
    print(f"round trip of {len(found)} pings: p50 {p50:.2f}, p99 {p99:.2f}, max {worst:.1f} ms")
    print(f"workers known {len(states)}, closed {states.count('closed')}, lost {states.count('lost')}")
    print(f"members over time: {[len(change['workers']) for change in manifest['members']]}")


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def rss_mb(process: psutil.Process) -> str:
    """Return the resident memory of a process."""
    return f"{process.memory_info().rss / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
