"""The load generator against the server's own log: who was asked what and when, also when processes die."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from tests.commands import free_port
from tests.servers.simulator import Sim, StartSim, sim_starter

from servebench.sim.truth import TruthRecord

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
LOCUSTFILE = ROOT / "locustfiles" / "replay.py"
TICK_NS = 1024

WORKLOAD = """
name: truth
seed: 3
target: {{endpoint: openai-chat, model: sim-1}}
prompts:
  source: {{kind: mt-bench}}
  output_tokens: {{from: fixed, tokens: 40}}
load:
  kind: open
  arrivals: {{process: poisson}}
  phases:
    - {{name: steady, shape: steady, rate_per_s: {rate}, duration: {duration}}}
"""


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "SERVEBENCH_OUT": str(folder / "runs"), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start processes that are ended with the test; what they print goes to numbered logs."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **more: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"process-{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=tmp_path,
                env=environment(tmp_path) | more,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def workload(folder: Path, *, rate: float, duration: str) -> Path:
    path = folder / "truth.yaml"
    path.write_text(WORKLOAD.format(rate=rate, duration=duration), encoding="utf-8")
    return path


def run_folder(folder: Path) -> Path:
    (found,) = (child for child in (folder / "runs").iterdir() if not child.name.startswith("."))
    return found


def rows_of(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / "requests").to_pylist()
    return rows


def manifest_of(run: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((run / "run.json").read_bytes())
    return manifest


def by_id(records: list[TruthRecord]) -> dict[str, TruthRecord]:
    found = {record.request_id: record for record in records if record.request_id is not None}
    assert len(found) == len(records), "the server saw a request id twice, or none"
    return found


def await_file(run: Callable[[], Path], pattern: str, seconds: float = 60, count: int = 1) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if len(list(run().glob(pattern))) >= count:
                return
        except (ValueError, FileNotFoundError):
            pass
        time.sleep(0.05)
    pytest.fail(f"no {pattern} after {seconds:g} s")


def test_rows_say_what_the_server_saw_and_when_it_sent(tmp_path: Path, start_sim: StartSim, spawn: Any) -> None:  # noqa: ANN401
    sim = start_sim(preset="demo")
    command = ("servebench.cli", "run", str(workload(tmp_path, rate=8, duration="6s")), "--workers", "2")
    process = spawn(*command, "--url", f"http://127.0.0.1:{sim.port}", "--out", str(tmp_path / "runs"))
    assert process.wait(120) in {0, 3}, "a busy machine makes the run invalid, its rows are still complete"
    truth, run = by_id(sim.stop()), run_folder(tmp_path)
    rows, manifest = rows_of(run), manifest_of(run)

    assert len(rows) > 20
    assert {row["request_id"] for row in rows} == truth.keys()
    assert sorted(row["seq"] for row in rows) == list(range(manifest["planned"]))
    assert len({row["worker"] for row in rows}) == 2

    stamp_errors, gap_errors, ttft_errors = [], [], []
    for row in rows:
        told = truth[row["request_id"]]
        assert (row["outcome"], row["output_tokens"], row["input_tokens"]) == (
            "ok",
            told.completion_tokens,
            told.prompt_tokens,
        )
        tokens = [ns for ns, kind in zip(row["chunk_ns"], row["chunk_kind"], strict=True) if kind == "content"]
        got = np.array(tokens) + manifest["epoch_monotonic_ns"]
        sent = np.array(told.t_send_ns)
        assert len(got) == len(sent)
        stamp_errors += (got - sent).tolist()
        gap_errors += np.abs(np.diff(got) - np.diff(sent)).tolist()
        ttft_errors.append((tokens[0] - row["sent_ns"]) - (sent[0] - told.t_received_ns))
    assert min(stamp_errors) >= -TICK_NS, "a token cannot arrive before it was sent"
    assert np.median(stamp_errors) < 1_000_000
    assert np.median(gap_errors) < 200_000
    assert min(ttft_errors) >= -2 * TICK_NS, "the client's time to first token holds the server's"


def test_a_killed_workers_share_is_taken_over_and_what_it_lost_is_named(
    tmp_path: Path,
    start_sim: StartSim,
    spawn: Any,  # noqa: ANN401
) -> None:
    sim = start_sim(preset="fast")
    command = ("servebench.cli", "run", str(workload(tmp_path, rate=60, duration="14s")), "--workers", "3")
    process = spawn(*command, "--url", f"http://127.0.0.1:{sim.port}", "--out", str(tmp_path / "runs"))
    await_file(lambda: run_folder(tmp_path), "requests/part-*.parquet")
    killed = kill_one_worker(process)
    killed_ns = time.monotonic_ns()
    assert process.wait(120) in {0, 3}, "the run goes on; it is invalid when more than 1 % is lost"
    truth, run = by_id(sim.stop()), run_folder(tmp_path)
    rows, manifest = rows_of(run), manifest_of(run)

    seqs = [row["seq"] for row in rows]
    assert len(seqs) == len(set(seqs)), "sent twice"
    lost = {seq for first, last in manifest["lost"] for seq in range(first, last + 1)}
    assert lost
    assert set(seqs) | lost == set(range(manifest["planned"]))
    assert not set(seqs) & lost

    seen_twice = len(truth) - len({record.request_id for record in truth.values()})
    assert seen_twice == 0
    lost_times_ns = [intended_of(manifest, tmp_path)[seq] for seq in lost]
    killed_at_ns = killed_ns - manifest["epoch_monotonic_ns"]
    takeover_ns = max(member["from_ns"] for member in manifest["members"])
    assert killed_at_ns < takeover_ns
    assert max(lost_times_ns) < takeover_ns, "after the takeover nothing is lost"
    states = {worker["pid"]: worker["state"] for worker in manifest["workers"]}
    assert states[killed] == "lost"


def kill_one_worker(process: subprocess.Popen[bytes]) -> int:
    """Kill -9 a Locust worker that a run started; return its pid."""
    workers = [child for child in psutil.Process(process.pid).children(recursive=True) if "--worker" in child.cmdline()]
    assert len(workers) == 3
    workers[0].send_signal(signal.SIGKILL)
    return int(workers[0].pid)


def intended_of(manifest: dict[str, Any], folder: Path) -> dict[int, int]:
    """Return seq -> intended time of the plan, as the dry run writes it."""
    out = folder / "plan.parquet"
    if not out.exists():
        done = subprocess.run(
            [sys.executable, "-m", "servebench.cli", "plan", str(folder / "truth.yaml"), "--out", str(out)],
            env=environment(folder),
            check=True,
            capture_output=True,
        )
        assert done.returncode == 0
    plan = pq.read_table(out)
    assert plan.num_rows == manifest["planned_total"]
    return {row["seq"]: row["intended_ns"] for row in plan.select(["seq", "intended_ns"]).to_pylist()}


def test_a_server_that_dies_costs_requests_but_no_row(tmp_path: Path, start_sim: StartSim, spawn: Any) -> None:  # noqa: ANN401
    sim: Sim = start_sim(preset="fast")
    command = ("servebench.cli", "run", str(workload(tmp_path, rate=20, duration="12s")), "--workers", "1")
    process = spawn(*command, "--url", f"http://127.0.0.1:{sim.port}", "--out", str(tmp_path / "runs"))
    await_file(lambda: run_folder(tmp_path), "requests/part-*.parquet")
    sim.process.kill()
    assert process.wait(120) in {0, 1, 3}
    rows, manifest = rows_of(run_folder(tmp_path)), manifest_of(run_folder(tmp_path))
    assert sorted(row["seq"] for row in rows) == list(range(manifest["planned"]))
    outcomes = {row["outcome"] for row in rows}
    assert "ok" in outcomes
    assert "connect_error" in outcomes
    assert outcomes <= {"ok", "connect_error", "truncated"}


def test_locusts_own_command_drives_records_and_reports(tmp_path: Path, start_sim: StartSim, spawn: Any) -> None:  # noqa: ANN401
    sim = start_sim(preset="fast")
    flags = ("--headless", "-u", "10", "-r", "10", "-t", "6s", "--only-summary")
    process = spawn("locust", "-f", str(LOCUSTFILE), "--host", f"http://127.0.0.1:{sim.port}", *flags)
    assert process.wait(120) == 0
    truth, run = by_id(sim.stop()), run_folder(tmp_path)
    rows, manifest = rows_of(run), manifest_of(run)
    assert len(rows) > 20
    assert {row["request_id"] for row in rows} == truth.keys()
    assert manifest["engine"] == "tokens"
    assert manifest["planned"] == len(rows)
    assert {row["phase"] for row in rows} == {"manual"}
    assert (run / "report.html").exists()


def test_the_web_page_drives_several_runs_each_recorded_and_reported(
    tmp_path: Path,
    start_sim: StartSim,
    spawn: Any,  # noqa: ANN401
) -> None:
    sim = start_sim(preset="demo")
    page = Page(free_port())
    url = f"http://127.0.0.1:{sim.port}"
    command = ("servebench.cli", "ui", "--url", url, "--workers", "2", "--web-port", str(page.port))
    process = spawn(*command, "--out", str(tmp_path / "runs"))
    page.await_workers(2)
    page.post("/swarm", user_count="4", spawn_rate="4", host=url, rate_per_user="1")
    page.await_requests(3)
    page.post("/swarm", user_count="10", spawn_rate="10", host=url, rate_per_user="2")
    page.post("/stats/reset")  # Locust's figures begin anew; no row goes, none comes twice
    page.await_requests(20)
    page.get("/stop")
    page.await_workers(2)
    page.post("/swarm", user_count="6", spawn_rate="6", host=url, rate_per_user="1")
    page.await_requests(3, below=20)  # the page shows the last run's figures for two seconds more
    page.get("/stop")
    await_file(lambda: tmp_path, "runs/2*/report.html", count=2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0

    truth = by_id(sim.stop())
    runs = sorted(path for path in (tmp_path / "runs").iterdir() if not path.name.startswith("."))
    assert len(runs) == 2
    rows = [rows_of(run) for run in runs]
    assert {row["request_id"] for of_run in rows for row in of_run} == truth.keys()
    for run, of_run in zip(runs, rows, strict=True):
        assert {row["run_id"] for row in of_run} == {run.name}
        assert manifest_of(run)["planned"] == len(of_run) == len({row["seq"] for row in of_run})
        assert {row["outcome"] for row in of_run} == {"ok"}, "requests in flight at Stop are drained"
    (first,) = manifest_of(runs[0])["phases"]
    rates = [step["rate_per_s"] for step in first["steps"]]
    assert (rates[0], rates[-1]) == (4.0, 20.0)
    assert {row["step"] for row in rows[0]} >= {0, 1}


def test_a_run_that_drains_while_the_next_one_goes_on_does_not_end_it(
    tmp_path: Path,
    start_sim: StartSim,
    spawn: Any,  # noqa: ANN401
) -> None:
    sim = start_sim(preset="demo")
    page = Page(free_port())
    url = f"http://127.0.0.1:{sim.port}"
    command = ("servebench.cli", "ui", "--url", url, "--workers", "1", "--web-port", str(page.port))
    process = spawn(*command, "--out", str(tmp_path / "runs"))
    page.await_workers(1)
    page.post("/swarm", user_count="8", spawn_rate="8", host=url, rate_per_user="1")
    page.await_requests(3)
    page.get("/stop")
    page.await_workers(1)
    page.post("/swarm", user_count="2", spawn_rate="2", host=url, rate_per_user="1")
    await_file(lambda: tmp_path, "runs/2*/report.html")
    stats = json.loads(page.get("/stats/requests"))
    assert stats["state"] == "running"
    page.get("/stop")
    await_file(lambda: tmp_path, "runs/2*/report.html", count=2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    first, second = sorted(path for path in (tmp_path / "runs").iterdir() if not path.name.startswith("."))
    drained_ns = max(row["end_ns"] for row in rows_of(first)) + manifest_of(first)["epoch_monotonic_ns"]
    assert manifest_of(second)["epoch_monotonic_ns"] < drained_ns, "the runs overlapped"


class Page:
    """Locust's web interface, as a script uses it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> bytes:
        return self._fetch(Request(f"http://127.0.0.1:{self.port}{path}", method="POST" if path == "/stop" else "GET"))

    def post(self, path: str, **form: str) -> bytes:
        data = urlencode(form).encode()
        return self._fetch(Request(f"http://127.0.0.1:{self.port}{path}", data=data))

    def await_workers(self, count: int) -> None:
        self._await(lambda stats: sum(w["state"] == "ready" for w in stats.get("workers") or []) >= count)

    def await_requests(self, count: int, below: int = 10**9) -> None:
        def reached(stats: dict[str, Any]) -> bool:
            ended = [s["num_requests"] for s in stats["stats"] if s["name"] == "Aggregated"]
            return any(count <= number < below for number in ended)

        self._await(reached)

    def _await(self, reached: Callable[[dict[str, Any]], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if reached(json.loads(self.get("/stats/requests"))):
                    return
            except OSError:
                pass
            time.sleep(0.1)
        pytest.fail(f"the page did not get there in {seconds:g} s")

    @staticmethod
    def _fetch(request: Request) -> bytes:
        with urlopen(request, timeout=10) as answer:
            body: bytes = answer.read()
        return body
