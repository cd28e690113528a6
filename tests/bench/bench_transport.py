"""What the transport costs per streamed token, beside the least that Python can do, in alternating runs.

    python -m tests.bench.bench_transport [--streams 256] [--tokens 256] [--rounds 3]

Server: floor/mockserver.c, 50 ms to the first token, 20 ms per token, streams independent; all requests start at once.
`floor` is floor/floor_py.py epoll-kts: a bare epoll loop with kernel stamps that counts events, no gevent, no parsing.
`servebench` is one gevent process with a Client: parsing, chunk columns and the hub are in its figure. CPU is user +
system between the start of the load and its end; for the floor the CPU of a run with two tokens is subtracted. Errors
are against the times in the server's log; hub lag (--hub-lag) is how late a 1 ms timer of the client's loop fires.
"""

import argparse
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

FLOOR = Path(__file__).resolve().parent / "floor"
ROOT = Path(__file__).resolve().parents[2]
ROLE = 0
"""Position of the role event among a stream's events; tokens follow it."""


class Run(NamedTuple):
    """One client's run. Times of tokens by request id, ns; `cpu_s` of the load."""

    cpu_s: float
    sent_ns: dict[str, int]
    tokens_ns: dict[str, list[int]]
    extra: dict[str, float]


def build(folder: Path) -> Path:
    """Compile the mock server."""
    server = folder / "mockserver"
    subprocess.run(["gcc", "-O2", "-o", str(server), str(FLOOR / "mockserver.c"), "-lm"], check=True)
    return server


def free_port() -> int:
    """Return a port that nobody listened on a moment ago; the mock server cannot choose one itself."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def serve(server: Path, port: int, log: Path) -> subprocess.Popen[str]:
    """Start the mock server and wait until it listens."""
    log.unlink(missing_ok=True)
    command = [str(server), "--port", str(port), "--ttft-ms", "50", "--itl-ms", "20", "--log", str(log)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()
    return process


def timed(command: Sequence[str], folder: Path) -> tuple[float, str]:
    """Run a command; return its CPU seconds and its output."""
    before = os.times()
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=300)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, done.stdout


def run_floor(port: int, streams: int, tokens: int, folder: Path) -> Run:
    """Run the floor, once for its start-up and once for the load."""
    sys.path.insert(0, str(FLOOR))
    import record  # type: ignore[import-not-found] # found through the line above, as floor_py.py finds it

    out = folder / "floor.bin"
    script = [sys.executable, str(FLOOR / "floor_py.py"), "epoll-kts", str(port), str(streams), str(streams)]
    start_up, _ = timed([*script, "2", str(out), "events"], folder)
    cpu, _ = timed([*script, str(tokens), str(out), "events"], folder)
    found = record.read(str(out))
    return Run(
        cpu - start_up,
        {rid: row[0] for rid, row in found.items()},
        {r: list(t[2])[ROLE + 1 :] for r, t in found.items()},
        {},
    )


def run_servebench(port: int, streams: int, tokens: int, folder: Path, options: Sequence[str] = ()) -> Run:
    """Run this module again as a client, in a fresh process."""
    out = folder / "servebench.json"
    command = [sys.executable, "-m", "tests.bench.bench_transport", "--client", str(port), "--out", str(out), *options]
    timed([*command, "--streams", str(streams), "--tokens", str(tokens)], ROOT)
    return Run(**json.loads(out.read_text()))


def client(port: int, streams: int, tokens: int, out: Path, *, hub_lag: bool) -> None:
    """Perform the load in this process, as a worker does, and write what `Run` holds."""
    from gevent import monkey

    monkey.patch_all()
    import gevent

    from servebench.loadgen.address import parse_target
    from servebench.loadgen.client import Client
    from servebench.wire.endpoints import ENDPOINTS
    from servebench.workload.model import Timeouts

    transport = Client(parse_target(f"http://127.0.0.1:{port}"), ENDPOINTS["openai-chat"], Timeouts(), headers={})
    body = json.dumps(
        {
            "model": "mock",
            "messages": [{"role": "user", "content": "Tell me a long story about a ship."}],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    lags: list[int] = []

    def watch_hub() -> None:
        while True:
            due = time.monotonic_ns() + 1_000_000
            gevent.sleep(0.001)
            lags.append(time.monotonic_ns() - due)

    gc.collect()
    gc.freeze()  # what a worker does too when it is armed: a full collection would walk every module
    watcher = gevent.spawn(watch_hub) if hub_lag else None
    before = time.process_time()
    tasks = [gevent.spawn(transport.perform, body, f"f-{number}", None) for number in range(streams)]
    gevent.joinall(tasks, raise_error=True)
    cpu_s = time.process_time() - before
    if watcher is not None:
        watcher.kill()
    stats = transport.counters.take()
    transport.close()
    exchanges = [task.get() for task in tasks]
    assert {exchange.answer.outcome for exchange in exchanges} == {"ok"}
    extra: dict[str, float] = {"reads": stats.reads, "stamped": stats.kernel_stamped, "rejected": stats.rejected}
    extra |= {"delay_p99_ms": (stats.delay_p99_ns or 0) / 1e6, "delay_max_ms": (stats.delay_max_ns or 0) / 1e6}
    if lags:
        p50, p99, worst = np.percentile(lags, (50, 99, 100)) / 1e6
        extra |= {"lag_p50_ms": p50, "lag_p99_ms": p99, "lag_max_ms": worst}
    run = Run(cpu_s, {}, {}, extra)
    for number, exchange in enumerate(exchanges):
        assert exchange.stamps.sent_ns is not None
        assert exchange.answer.chunks is not None
        run.sent_ns[f"f-{number}"] = exchange.stamps.sent_ns
        run.tokens_ns[f"f-{number}"] = list(exchange.answer.chunks.ns)[ROLE + 1 : tokens + 1]
    out.write_text(json.dumps(run._asdict()))


def errors(run: Run, log: Path) -> dict[str, float]:
    """Return how far the client's times are from the server's, us at p50 and p99."""
    sys.path.insert(0, str(FLOOR))
    import truth  # type: ignore[import-not-found] # see run_floor

    gaps: list[float] = []
    first: list[float] = []
    lag: list[float] = []
    for served in truth.read(str(log)):
        times = run.tokens_ns.get(served.id, [])[: len(served.times)]
        if len(times) < len(served.times) or len(times) <= 2:
            continue
        gaps += list(np.abs(np.diff(times) - np.diff(served.times)) / 1e3)
        lag += list((np.array(times) - np.array(served.times)) / 1e3)
        first.append(abs((times[0] - run.sent_ns[served.id]) - (served.times[0] - served.t_recv)) / 1e3)
    assert gaps, "no request of the run is in the server's log"
    rows = {"gap": gaps, "arrival": lag, "ttft": first}
    return {f"{name}_{q}": float(np.percentile(of, q)) for name, of in rows.items() for q in (50, 99)}


def show(name: str, run: Run, off: dict[str, float], tokens: int) -> None:
    """Print one row."""
    print(
        f"{name:<11} {run.cpu_s * 1e6 / tokens:6.2f} us/token   gap error {off['gap_50']:.1f} / {off['gap_99']:.1f} us"
        f"   arrival {off['arrival_50']:.1f} / {off['arrival_99']:.1f} us"
        f"   ttft error {off['ttft_50']:.0f} / {off['ttft_99']:.0f} us   "
        + "  ".join(f"{key} {value:.4g}" for key, value in run.extra.items())
    )


def main() -> None:
    """Alternate floor and transport and print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hub-lag", action="store_true", help="watch the loop's lag, which costs about 1 us a token")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client is not None:
        client(given.client, given.streams, given.tokens, given.out, hub_lag=given.hub_lag)
        return
    options = ["--hub-lag"] if given.hub_lag else []
    clients: dict[str, Callable[[int, int, int, Path], Run]] = {
        "floor": run_floor,
        "servebench": partial(run_servebench, options=options),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server, log = build(folder), folder / "truth.bin"
        for _ in range(given.rounds):
            for label, run_client in clients.items():
                port = free_port()
                process = serve(server, port, log)
                try:
                    run = run_client(port, given.streams, given.tokens, folder)
                finally:
                    process.terminate()
                    process.communicate()
                show(label, run, errors(run, log), given.streams * given.tokens)


if __name__ == "__main__":
    main()
