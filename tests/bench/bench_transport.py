"""What the transport costs per streamed token, beside the least that Python can do, in alternating runs.

    python -m tests.bench.bench_transport [--streams 256] [--tokens 256] [--rounds 3] [--itl-ms 20] [--step] [--stalls]

Server: floor/mockserver.c, 50 ms to the first token, 20 ms per token, streams independent (--step: all in step;
--itl-ms 0: as fast as sockets take them, from the first byte on); all requests start at once, a wave.
`floor` is floor/floor_py.py epoll-kts: a bare epoll loop with kernel stamps that counts events, no gevent, no parsing.
`servebench` is one gevent process with a Client, set up as a worker; parsing, chunk columns and hub are in its figure.
CPU is user + system between the start of the load and its end; for the floor the CPU of a run with two tokens is
subtracted. Errors are against the times in the server's log. Events that share a read with another have no stamp of
their own: their share is a column, and `alone` are the gaps between events that had a read each. Hub lag is
how late a 1 ms timer of the client's loop fires. --stalls holds up the loop for 15 ms, about ten times a second
at random: kernel stamps must not show it.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.commands import free_port

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
    reads: dict[str, list[int]]
    """Number of the read that completed each event; empty where the client does not say."""


def build(folder: Path) -> Path:
    """Compile the mock server."""
    server = folder / "mockserver"
    subprocess.run(["gcc", "-O2", "-o", str(server), str(FLOOR / "mockserver.c"), "-lm"], check=True)
    return server


def serve(server: Path, port: int, log: Path, itl_ms: float = 20, *, step: bool = False) -> subprocess.Popen[str]:
    """Start the mock server and wait until it listens."""
    log.unlink(missing_ok=True)
    command = [str(server), "--port", str(port), "--itl-ms", str(itl_ms), "--log", str(log)]
    command += ["--ttft-ms", "50" if itl_ms else "0", *(["--step"] if step else [])]
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
        {},
    )


def run_servebench(port: int, streams: int, tokens: int, folder: Path, options: Sequence[str] = ()) -> Run:
    """Run this module again as a client, in a fresh process."""
    out = folder / "servebench.json"
    command = [sys.executable, "-m", "tests.bench.bench_transport", "--client", str(port), "--out", str(out), *options]
    timed([*command, "--streams", str(streams), "--tokens", str(tokens)], ROOT)
    return Run(**json.loads(out.read_text()))


def client(port: int, streams: int, tokens: int, out: Path, *, watch: bool, stalls: bool) -> None:
    """Perform the load in this process, as a worker does, and write what `Run` holds."""
    from gevent import monkey

    monkey.patch_all()
    import gevent

    from servebench.core.target import parse_target
    from servebench.loadgen.loop_turn import STARTS_PER_TURN, let_loop_run
    from servebench.loadgen.transport.client import Client
    from servebench.loadgen.transport.exchange import Exchange
    from servebench.loadgen.worker.memory import settle_memory
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
    settle_memory()
    watchers = [gevent.spawn(watch_hub, lags)] if watch else []
    stallers = [gevent.spawn(stall_hub, random.Random(7))] if stalls else []
    before = time.process_time()
    tasks = []
    for number in range(streams):
        tasks.append(gevent.spawn(transport.perform, body, f"f-{number}", None))
        if not len(tasks) % STARTS_PER_TURN:
            let_loop_run()
    gevent.joinall(tasks, raise_error=True)
    cpu_s = time.process_time() - before
    gevent.killall([*watchers, *stallers])
    stats = transport.counters.take()
    transport.close()
    exchanges: list[Exchange] = [task.get() for task in tasks]
    assert {exchange.answer.outcome for exchange in exchanges} == {"ok"}
    extra: dict[str, float] = {"unstamped": stats.rejected + stats.missing, "pss_mib": pss_mib()}
    extra |= {"delay_p99_ms": (stats.delay_p99_ns or 0) / 1e6, "delay_max_ms": (stats.delay_max_ns or 0) / 1e6}
    if lags:
        extra |= dict(zip(("lag_p50_ms", "lag_p99_ms"), np.percentile(lags, (50, 99)) / 1e6, strict=True))
    run = Run(cpu_s, {}, {}, extra, {})
    for number, exchange in enumerate(exchanges):
        chunks = exchange.answer.chunks
        assert exchange.stamps.sent_ns is not None
        assert chunks is not None
        run.sent_ns[f"f-{number}"] = exchange.stamps.sent_ns
        run.tokens_ns[f"f-{number}"] = list(chunks.ns)[ROLE + 1 : tokens + 1]
        run.reads[f"f-{number}"] = list(chunks.read)
    out.write_text(json.dumps(run._asdict()))


def watch_hub(lags: list[int]) -> None:
    """Note how late a timer of 1 ms fires, for ever."""
    import gevent

    while True:
        due = time.monotonic_ns() + 1_000_000
        gevent.sleep(0.001)
        lags.append(time.monotonic_ns() - due)


def stall_hub(rng: random.Random) -> None:
    """Block the loop for 15 ms, ten times a second on average, for ever."""
    import gevent
    from gevent import monkey

    really_sleep = monkey.get_original("time", "sleep")
    while True:
        gevent.sleep(rng.expovariate(10))
        really_sleep(0.015)


def pss_mib() -> float:
    """Return this process's share of memory, pages shared with others counted in part."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def errors(run: Run, log: Path) -> dict[str, float]:
    """Return how far the client's times are from the server's, us at p50 and p99, and what the server saw.

    `alone_99` is the gap error where both events had a read of their own; NaN without such gaps, or where the client
    does not number its reads. `coalesced` is the share of tokens that shared a read. `taken` is the part of the TTFT
    error that lies between the client's send and the moment when the server's own loop has read the request.
    """
    sys.path.insert(0, str(FLOOR))
    import truth  # type: ignore[import-not-found] # see run_floor

    gaps: list[float] = []
    alone: list[float] = []
    first: list[float] = []
    taken: list[float] = []
    shared: list[bool] = []
    served = [one for one in truth.read(str(log)) if one.id in run.tokens_ns]
    for one in served:
        times = run.tokens_ns[one.id][: len(one.times)]
        if len(times) < len(one.times) or len(times) <= 2:
            continue
        off = np.abs(np.diff(times) - np.diff(one.times)) / 1e3
        gaps += list(off)
        first.append(abs((times[0] - run.sent_ns[one.id]) - (one.times[0] - one.t_recv)) / 1e3)
        taken.append((one.t_recv - run.sent_ns[one.id]) / 1e3)
        if run.reads:
            _, which, counts = np.unique(run.reads[one.id], return_inverse=True, return_counts=True)
            apart = (counts[which] == 1)[ROLE + 1 : ROLE + 1 + len(times)]
            shared += list(~apart)
            alone += list(off[apart[1:] & apart[:-1]])
    assert gaps, "no request of the run is in the server's log"
    rows = {"gap": gaps, "ttft": first, "taken": taken}
    found = {f"{name}_{q}": float(np.percentile(of, q)) for name, of in rows.items() for q in (50, 99)}
    found["alone_99"] = float(np.percentile(alone, 99)) if alone else float("nan")
    found["coalesced"] = float(np.mean(shared)) if shared else float("nan")
    return found


def tokens_per_s(log: Path) -> float:
    """Return what the server streamed, from its first request to its last answer."""
    sys.path.insert(0, str(FLOOR))
    import truth

    served = truth.read(str(log))
    span_ns = max(one.t_done for one in served) - min(one.t_recv for one in served)
    return float(sum(one.ntok for one in served) * 1e9 / span_ns)


def show(name: str, run: Run, log: Path, tokens: int) -> None:
    """Print one row."""
    off = errors(run, log)
    print(
        f"{name:<16} {run.cpu_s * 1e6 / tokens:6.2f} us/token {tokens_per_s(log):8,.0f} tok/s"
        f"   gap error {off['gap_50']:.1f} / {off['gap_99']:.1f} us, alone {off['alone_99']:.1f}"
        f"   coalesced {off['coalesced']:.3f}   ttft error {off['ttft_50']:.0f} / {off['ttft_99']:.0f} us, "
        f"until the server read {off['taken_50']:.0f} / {off['taken_99']:.0f}   "
        + "  ".join(f"{key} {value:.4g}" for key, value in run.extra.items()),
        flush=True,
    )


class Case(NamedTuple):
    """One load: `streams` at once, `tokens` each, `itl_ms` apart (0 = as fast as it goes)."""

    streams: int
    tokens: int
    itl_ms: float = 20
    step: bool = False
    stalls: bool = False
    hub_lag: bool = False


def measure(case: Case, rounds: int, folder: Path, name: str = "") -> float:
    """Alternate floor and transport, print a row for each run, and return the ratio of their medians."""
    options = [*(["--hub-lag"] if case.hub_lag else []), *(["--stalls"] if case.stalls else [])]
    clients: dict[str, Callable[[int, int, int, Path], Run]] = {
        "floor": run_floor,
        "servebench": partial(run_servebench, options=options),
    }
    server, log = folder / "mockserver", folder / "truth.bin"
    cost: dict[str, list[float]] = {label: [] for label in clients}
    for _ in range(rounds):
        for label, run_client in clients.items():
            port = free_port()
            process = serve(server, port, log, case.itl_ms, step=case.step)
            try:
                run = run_client(port, case.streams, case.tokens, folder)
            finally:
                process.terminate()
                process.communicate()
            cost[label].append(run.cpu_s)
            show(f"{name} {label}".strip(), run, log, case.streams * case.tokens)
    return float(np.median(cost["servebench"]) / np.median(cost["floor"]))


def main() -> None:
    """Measure one case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--itl-ms", type=float, default=20)
    parser.add_argument("--step", action="store_true", help="all streams in step, as an engine's batch")
    parser.add_argument("--stalls", action="store_true", help="hold up the client's loop for 15 ms at random")
    parser.add_argument("--hub-lag", action="store_true", help="watch the loop's lag, which costs about 1 us a token")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client is not None:
        client(given.client, given.streams, given.tokens, given.out, watch=given.hub_lag, stalls=given.stalls)
        return
    case = Case(given.streams, given.tokens, given.itl_ms, given.step, given.stalls, given.hub_lag)
    with tempfile.TemporaryDirectory() as name:
        build(Path(name))
        print(f"{measure(case, given.rounds, Path(name)):.2f} x the floor")


if __name__ == "__main__":
    main()
