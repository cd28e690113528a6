"""What an open tab costs: the master's CPU and the workers' dispatch lag, in turns with and without its polls.

Run: `python -m tests.bench.bench_desk [TURNS]`. The polls are those of Locust's page (statistics, failures, exceptions
every 2 s) and of the LLM tab (once a second); the load is RATE req/s from one worker on the simulated engine.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import duckdb
import msgspec
import psutil
from tests.servers.simulator import sim_starter

ROOT = Path(__file__).parents[2]
RATE = 20
TURN_S = 10.0
PATIENCE_S = 90.0
EVERY_SECOND = "servebench/live?since={next}"
EVERY_TWO = ("stats/requests", "exceptions", "tasks", "logs")


class Turn(msgspec.Struct):
    """One stretch of the run: monotonic ns, and the CPU seconds that the master used in it."""

    polled: bool
    begin_ns: int
    end_ns: int
    cpu_s: float


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        data: bytes = answer.read()
        return data


def awaited(address: str, text: bytes) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if text in b"".join(get(address).split()):
                return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.2)
    raise SystemExit(f"no {text!r} at {address}")


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def turn(desk: str, master: psutil.Process, *, polled: bool) -> Turn:
    begin_ns, before, since, second = time.monotonic_ns(), cpu_s(master), 0, 0
    while time.monotonic_ns() - begin_ns < TURN_S * 1e9:
        if polled:
            since = msgspec.json.decode(get(f"{desk}/{EVERY_SECOND.format(next=since)}"))["next"]
            for path in EVERY_TWO if second % 2 == 0 else ():
                get(f"{desk}/{path}")
        second += 1
        time.sleep(max(0.0, begin_ns / 1e9 + second - time.monotonic()))
    return Turn(polled, begin_ns, time.monotonic_ns(), cpu_s(master) - before)


def lag_ms(run: Path, turns: list[Turn]) -> tuple[int, float, float]:
    """Return n, p50 and p99 of dispatch lag of the requests that were due in some turns."""
    epoch_ns = msgspec.json.decode((run / "run.json").read_bytes())["epoch_monotonic_ns"]
    when = " or ".join(f"intended_ns between {t.begin_ns - epoch_ns} and {t.end_ns - epoch_ns}" for t in turns)
    lag = "(dispatched_ns - intended_ns) / 1e6"
    query = f"select count(*), median({lag}), quantile_cont({lag}, 0.99) from read_parquet(?) where {when}"
    found = duckdb.execute(query, [str(run / "requests" / "*.parquet")]).fetchone()
    assert found is not None
    n, p50, p99 = found
    return int(n), float(p50), float(p99)


def measured(desk: str, process: subprocess.Popen[bytes], count: int) -> list[Turn]:
    awaited(f"{desk}/worker-count", b'"worker_count":1')
    form = f"user_count={RATE}&spawn_rate={RATE}".encode()
    urllib.request.urlopen(f"{desk}/swarm", form, timeout=PATIENCE_S).close()
    awaited(f"{desk}/servebench/live", b'"state":"running"')
    time.sleep(3)
    children = psutil.Process(process.pid).children()
    master = next(child for child in children if "--master" in child.cmdline())
    turns = [turn(desk, master, polled=index % 2 == 1) for index in range(2 * count)]
    urllib.request.urlopen(f"{desk}/stop", b"", timeout=PATIENCE_S).close()
    awaited(f"{desk}/servebench/live", b'"state":"closed"')
    return turns


def main(count: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as name, sim_starter(Path(name)) as start_sim:
        folder, sim = Path(name), start_sim(preset="demo")
        command = [sys.executable, "-m", "servebench.cli", "ui", "--url", f"http://127.0.0.1:{sim.port}"]
        command += ["--workers", "1", "--web-port", str(port), "--out", str(folder / "runs"), "--drain", "2s"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SERVEBENCH_METRICS_LISTEN": "off"}
        with (folder / "ui.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            turns = measured(f"http://127.0.0.1:{port}", process, count)
            run = next(path for path in (folder / "runs").iterdir() if not path.name.startswith("."))
            print(f"load average {os.getloadavg()[0]:.1f}, {count} turns of {TURN_S:g} s each")
            for polled in (False, True):
                mine = [t for t in turns if t.polled is polled]
                share = sum(t.cpu_s for t in mine) / sum((t.end_ns - t.begin_ns) / 1e9 for t in mine)
                n, p50, p99 = lag_ms(run, mine)
                title = "a tab open" if polled else "no tab"
                print(f"{title:<11} master {100 * share:5.2f} % of a core   lag p50 {p50:.3f} p99 {p99:.2f} ms, n {n}")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
