"""How late one worker sends at a high rate, beside a bare dispatcher with the same load.

    python -m tests.bench.bench_dispatch [--rate 1000] [--seconds 8] [--tokens 8] [--rounds 3]

Server: floor/mockserver.c, 50 ms to the first token, 20 ms per token. `floor` is floor/openloop.py: a timerfd and
gevent sockets, nothing else. `servebench` is a whole `servebench run` with one worker: `dispatch` is when the
dispatcher handed a request over, `send` just before its first byte, both behind the intended time. The first second is
left out on both sides: it opens the connections. The last lines are ratios of the medians of p99, both to the floor's
lag, which is taken when a request goes to its socket.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tests.bench.bench_transport import FLOOR, build
from tests.bench.bench_whole import Bench, Load, newest_run, run_servebench, served_by


class Lags(NamedTuple):
    """Lags in us at p50 and p99."""

    p50: float
    p99: float

    @classmethod
    def of(cls, lags_ns: NDArray[np.int64]) -> "Lags":
        """Return the percentiles of lags in ns."""
        return cls(*(float(value) / 1e3 for value in np.percentile(lags_ns, (50, 99))))


def floor_lags(bench: Bench, load: Load, tokens: int) -> dict[str, Lags]:
    """Run the bare dispatcher."""

    def run(port: int) -> str:
        command = [sys.executable, str(FLOOR / "openloop.py"), str(port), str(load.rate), str(load.long), str(tokens)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout

    lags_ns = np.array(json.loads(served_by(bench, load, run)), np.int64)
    return {"send": Lags.of(lags_ns[int(load.rate or 0) :])}


def our_lags(bench: Bench, load: Load, tokens: int) -> dict[str, Lags]:
    """Run servebench and read its rows."""
    served_by(bench, load, lambda port: run_servebench(bench, load, port, load.long, tokens))
    table = pq.read_table(newest_run(bench) / "requests", columns=["intended_ns", "dispatched_ns", "sent_ns"])
    intended, dispatched, sent = (column.to_numpy() for column in table.columns)
    later = intended >= 1_000_000_000
    return {
        "dispatch": Lags.of((dispatched - intended)[later]),
        "send": Lags.of((sent - intended)[later]),
    }


def main() -> None:
    """Alternate both and print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    load = Load(0, int(given.rate * given.seconds), rate=given.rate)
    clients = {"floor": floor_lags, "servebench": our_lags}
    p99: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), build(Path(name)), Path())
        for _ in range(given.rounds):
            for client, run in clients.items():
                found = run(bench, load, given.tokens)
                for what, lags in found.items():
                    p99[client, what].append(lags.p99)
                shown = "   ".join(f"{what} {lags.p50:.0f} / {lags.p99:.0f} us" for what, lags in found.items())
                print(f"{client:<11}{given.rate:.0f}/s  {shown}", flush=True)
    floor = float(np.median(p99["floor", "send"]))
    for what in ("dispatch", "send"):
        ours = float(np.median(p99["servebench", what]))
        print(f"{what} lag p99 at {given.rate:.0f}/s: {ours:.0f} us = {ours / floor:.2f} x the floor")


if __name__ == "__main__":
    main()
