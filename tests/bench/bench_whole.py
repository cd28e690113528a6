"""What a whole run costs per streamed token: command, master, worker, recorder, Parquet, merge; beside the floors.

    python -m tests.bench.bench_whole [--rounds 3] [CASE ...]

Server: floor/mockserver.c, 50 ms to the first token, 20 ms per token (u: as fast as sockets take them); the number says
how many streams. p, s and u are closed loads of that many users, in waves of one answer each, s with all streams in
step; o is an open load at a constant rate that keeps about that many streams open. `floor-py` (floor_py.py epoll-kts)
and `floor-c` read the same load, one after the other with the whole run; an open load only floor-c can.

Every client runs a short and a long load; the marginal CPU of the whole process tree per token is what the additional
tokens cost. What is left of the short run is start-up and end, printed apart. The parts: worker, master, and command,
which is merge, verdict and the command itself. Errors are against the server's log. Ratios are of medians.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow.parquet as pq
from tests.bench.bench_transport import FLOOR, ROOT, Run, build, errors, serve, timed, tokens_per_s
from tests.bench.tree import Usage, run_tree
from tests.commands import free_port

T = TypeVar("T")

TOKENS = 256
TOKEN_KINDS = ("content",)


class Load(NamedTuple):
    """`short` and `long` requests by `users` who wait, or at `rate` a second."""

    short: int
    long: int
    users: int | None = None
    rate: float | None = None
    itl_ms: float = 20
    step: bool = False

    @property
    def tokens(self) -> int:
        """What the long load streams more than the short one."""
        return (self.long - self.short) * TOKENS

    def yaml(self, requests: int) -> str:
        """Return the load of a workload file."""
        if self.rate is None:
            return f"{{kind: closed, users: {self.users}, requests: {requests}}}"
        phase = f"{{name: steady, shape: steady, rate_per_s: {self.rate}, duration: {requests / self.rate:.3f}s}}"
        return f"{{kind: open, arrivals: {{process: constant}}, phases: [{phase}]}}"


CASES = {
    "p256": Load(256, 768, users=256),
    "p512": Load(512, 1536, users=512),
    "u32": Load(100, 1000, users=32, itl_ms=0),
    "u256": Load(256, 2560, users=256, itl_ms=0),
    "s512": Load(512, 1536, users=512, step=True),
    "o256": Load(200, 700, rate=50),
    "o800": Load(600, 2000, rate=154),
}
USUAL = ("p256", "p512", "u256")


class Bench(NamedTuple):
    """What is built, and where."""

    folder: Path
    server: Path
    floor_c: Path

    @property
    def log(self) -> Path:
        """The server's log of the newest load."""
        return self.folder / "truth.bin"


class Client(Protocol):
    """Whoever can read a load."""

    def __call__(self, bench: Bench, load: Load, /, port: int, requests: int) -> Usage:
        """Send this many requests to the server at a port of this machine; return what that used."""
        ...


NO_PEERS: Mapping[str, Client] = MappingProxyType({})


def run_floor_c(bench: Bench, load: Load, port: int, requests: int) -> Usage:
    """Run the C floor."""
    streams = load.users or requests
    command = [str(bench.floor_c), str(port), str(streams), str(requests), str(TOKENS), ""]
    command += [str(load.rate)] if load.rate is not None else []
    return Usage(timed(command, bench.folder)[0], {}, None)


def run_floor_py(bench: Bench, load: Load, port: int, requests: int) -> Usage:
    """Run the bare Python loop."""
    command = [sys.executable, str(FLOOR / "floor_py.py"), "epoll-kts", str(port), str(load.users), str(requests)]
    return Usage(timed([*command, str(TOKENS), str(bench.folder / "floor.bin"), "events"], bench.folder)[0], {}, None)


def run_servebench(bench: Bench, load: Load, port: int, requests: int, tokens: int = TOKENS) -> Usage:
    """Run the command with one worker."""
    file = bench.folder / "bench.yaml"
    file.write_text(
        f"""\
name: bench
seed: 1
target: {{endpoint: openai-chat, model: mock}}
prompts: {{source: {{kind: mt-bench}}, output_tokens: {{from: fixed, tokens: {tokens}}}}}
load: {load.yaml(requests)}
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "servebench.cli", "run", str(file), "--url", f"http://127.0.0.1:{port}"]
    command += ["--workers", "1", "--out", str(bench.folder / "runs"), "--no-report"]
    log = bench.folder / "servebench.log"
    code, usage = run_tree(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, log=log)
    assert code in {0, 3}, log.read_text()
    return usage


def newest_run(bench: Bench) -> Path:
    """Return the run folder made last."""
    return max(path for path in (bench.folder / "runs").iterdir() if not path.name.startswith("."))


def as_run(folder: Path) -> tuple[Run, dict[str, float]]:
    """Return the rows of a run as the error measure wants them, and what the client said of itself.

    `hub_over_idle_p99_ms` is the median over seconds of the hub's lag, over its level before the load; `hub_worst_ms`
    is the p99 of the worst second. Dispatch lags are there for an open load.
    """
    epoch = json.loads((folder / "run.json").read_bytes())["epoch_monotonic_ns"]
    run = Run(0.0, {}, {}, {}, {})
    lags = []
    for row in pq.read_table(folder / "requests").to_pylist():
        assert row["outcome"] == "ok", row["error_message"]
        stamps = zip(row["chunk_ns"], row["chunk_kind"], strict=True)
        run.sent_ns[row["request_id"]] = row["sent_ns"] + epoch
        run.tokens_ns[row["request_id"]] = [ns + epoch for ns, kind in stamps if kind in TOKEN_KINDS]
        run.reads[row["request_id"]] = row["chunk_read"]
        if row["intended_ns"] is not None:
            lags.append((row["dispatched_ns"] - row["intended_ns"]) / 1e6)
    assert run.tokens_ns, "the run is empty"
    health = pq.read_table(folder / "health").to_pandas()
    loaded = health[health["inflight"] > 0]
    over_idle = (loaded["hub_lag_p99_ns"] - loaded["hub_lag_idle_ns"]) / 1e6
    own = {f"dispatch_p{q}_ms": float(np.percentile(lags, q)) for q in (50, 99) if lags}
    own |= {"hub_over_idle_p99_ms": float(over_idle.median()), "hub_worst_ms": float(over_idle.max())}
    own |= {"worker_cpu": float(loaded["cpu_share"].median()), "spoiled_s": float(loaded["spoiled"].sum())}
    return run, own


def served_by(bench: Bench, load: Load, client: Callable[[int], T]) -> T:
    """Run a client against a fresh server on a free port, and return what it returns."""
    port = free_port()
    process = serve(bench.server, port, bench.log, load.itl_ms, step=load.step)
    try:
        return client(port)
    finally:
        process.terminate()
        process.communicate()


class Cost(NamedTuple):
    """What one client's two runs say: us of CPU per additional token, and CPU seconds that the short run took beside.

    `parts` has both for each part of servebench.
    """

    token_us: float
    start_s: float
    parts: dict[str, tuple[float, float]]


def cost_of(load: Load, short: Usage, long: Usage) -> Cost:
    """Return the cost of a load by its short and its long run."""

    def both(least: float, most: float) -> tuple[float, float]:
        a_token = (most - least) / load.tokens
        return a_token * 1e6, least - a_token * load.short * TOKENS

    parts = {name: both(short.parts_s[name], long.parts_s[name]) for name in long.parts_s}
    return Cost(*both(short.cpu_s, long.cpu_s), parts)


def measure(bench: Bench, name: str, rounds: int, peers: Mapping[str, Client] = NO_PEERS) -> None:
    """Alternate the clients, print a row for each run, and the medians."""
    load = CASES[name]
    floors = {"floor-c": run_floor_c} | ({"floor-py": run_floor_py} if load.users is not None else {})
    clients: dict[str, Client] = {**floors, **peers, "servebench": run_servebench}
    costs: dict[str, list[Cost]] = {client: [] for client in clients}
    rates: dict[str, list[float]] = {client: [] for client in clients}
    for _ in range(rounds):
        for client, run in clients.items():
            short, long = (
                served_by(bench, load, partial(run, bench, load, requests=requests))
                for requests in (load.short, load.long)
            )
            costs[client].append(cost_of(load, short, long))
            rates[client].append(tokens_per_s(bench.log))
            rest = f"   {said(bench, long)}" if client == "servebench" else ""
            row = f"{name} {client:<11}{costs[client][-1].token_us:6.2f} us/token {rates[client][-1]:8,.0f} tok/s{rest}"
            print(row, flush=True)
    print(f"{name}: {summary(costs)}", flush=True)
    if not load.itl_ms:
        ours, *others = reversed([(client, float(np.median(found))) for client, found in rates.items()])
        ratios = ", ".join(f"{ours[1] / rate:.2f} x {client}" for client, rate in reversed(others))
        print(f"{name}: {ours[1]:,.0f} tok/s = {ratios}", flush=True)


def said(bench: Bench, usage: Usage) -> str:
    """Return how right the newest run was, and what the client said of itself."""
    run, own = as_run(newest_run(bench))
    off = errors(run, bench.log)
    return (
        f"gap error {off['gap_50']:.1f} / {off['gap_99']:.1f} us, "
        f"alone {off['alone_99']:.1f}   ttft error {off['ttft_50']:.0f} / {off['ttft_99']:.0f} us, "
        f"until the server read {off['taken_50']:.0f} / {off['taken_99']:.0f}   "
        f"worker {usage.worker_pss_mib or float('nan'):.0f} MiB   "
        + "  ".join(f"{key} {value:.3g}" for key, value in own.items())
    )


def summary(costs: dict[str, list[Cost]]) -> str:
    """Return medians, ratios to the floors, and what each part costs."""
    medians = {client: float(np.median([cost.token_us for cost in found])) for client, found in costs.items()}
    ours = costs["servebench"]
    ratios = ", ".join(
        f"{medians['servebench'] / us:.2f} x {client}" for client, us in medians.items() if client != "servebench"
    )
    parts = ", ".join(
        f"{part} {_median(ours, part, 0):.1f} us ({_median(ours, part, 1):.1f} s)" for part in ours[0].parts
    )
    start = float(np.median([cost.start_s for cost in ours]))
    return f"{medians['servebench']:.1f} us/token = {ratios}; start and end {start:.1f} s; {parts}"


def _median(costs: Sequence[Cost], part: str, which: int) -> float:
    return float(np.median([cost.parts[part][which] for cost in costs]))


def main() -> None:
    """Measure the cases named, or the usual ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *CASES], metavar="CASE")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench = Bench(folder, build(folder), folder / "floor")
        subprocess.run(["gcc", "-O2", "-o", str(bench.floor_c), str(FLOOR / "floor.c")], check=True)
        print(f"load average {os.getloadavg()[0]:.1f}")
        for label in given.names or USUAL:
            measure(bench, label, given.rounds)


if __name__ == "__main__":
    main()
