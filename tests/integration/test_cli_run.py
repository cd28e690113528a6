"""Whole runs as a user starts them: the simulated engine, a master and workers, a verdict at the end."""

import json
import re
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from tests.commands import command, environment, free_port, servebench

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sim:
    """A running simulator: its address, and the log of what it really sent."""

    url: str
    truth: Path


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Sim]:
    truth = tmp_path / "truth.jsonl"
    arguments = ("sim", "--preset", "fast", "--model", "tiny", "--truth-log", str(truth))
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening ")
        yield Sim(url=line.split()[1], truth=truth)
        process.send_signal(signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A command under way, its stderr in a file."""

    process: subprocess.Popen[bytes]
    words: Path

    def said(self) -> str:
        """Return what it wrote to stderr so far."""
        return self.words.read_text()

    def await_words(self, pattern: str, seconds: float = 60.0) -> None:
        """Wait until stderr matches; fail after `seconds` or when the process ended without."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.said()):
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator["Starter"]:
    starter = Starter(tmp_path)
    yield starter
    for one in starter.started:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
            one.process.wait(60)


class Starter:
    """Starts commands that a test goes on to disturb, and ends them after it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[Started] = []

    def __call__(self, *arguments: str) -> Started:
        """Start a command in the test's folder, with a session of its own."""
        words = self._folder / f"stderr-{len(self.started)}"
        with words.open("wb") as errors, (self._folder / "stdout").open("wb") as output:
            process = subprocess.Popen(
                command(*arguments),
                cwd=self._folder,
                env=environment(),
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.started.append(Started(process=process, words=words))
        return self.started[-1]


def only_run(folder: Path) -> Path:
    """Return the one run folder below `folder`/runs; fail when anything else lies there."""
    found = sorted((folder / "runs").iterdir())
    assert len(found) == 1, found
    return found[0]


def manifest_of(run: Path, exit_code: int | None) -> dict[str, Any]:
    """Return run.json after checking that the exit code is its verdict's.

    On a crowded machine the client may be too slow, which makes a run INVALID: that is no fault of these tests. Any
    other reason is.
    """
    manifest: dict[str, Any] = json.loads((run / "run.json").read_text())
    verdict = manifest["verdict"]
    assert exit_code == {"valid": 0, "invalid": 3, "interrupted": 130}[verdict["status"]]
    if verdict["status"] == "invalid":
        assert [reason for reason in verdict["reasons"] if "Add workers" not in reason] == []
    return manifest


def rows_of(run: Path) -> list[tuple[int, str, int | None]]:
    """Return (seq, outcome, sent_ns) of every row, read without the product."""
    query = "select seq, outcome, sent_ns from read_parquet(?) order by seq"
    return duckdb.execute(query, [str(run / "requests" / "*.parquet")]).fetchall()


def children_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the processes that a command has started."""
    return psutil.Process(process.pid).children(recursive=True)


QUICK = ("--rate", "20", "--duration", "5s", "--input-tokens", "50", "--output-tokens", "8", "--workers", "2")


def test_a_quick_run_records_every_planned_request_once_and_ends_with_its_verdict(tmp_path: Path, sim: Sim) -> None:
    done = servebench(tmp_path, "run", "--url", sim.url, *QUICK, "--show-invalid")
    run = only_run(tmp_path)
    manifest = manifest_of(run, done.returncode)
    rows = rows_of(run)
    assert len(rows) > 50
    assert [seq for seq, _, _ in rows] == list(range(manifest["planned"]))
    assert {outcome for _, outcome, _ in rows} == {"ok"}
    assert manifest["lost"] == []

    lines = done.stdout.splitlines()
    assert "VALID" in lines[0]
    assert len(lines) <= 30
    assert lines[-1].startswith("Next     servebench table runs/")
    assert "Model: tiny, the only one served." in done.stderr

    seen = [json.loads(line) for line in sim.truth.read_text().splitlines()]
    assert len([one for one in seen if "completions" in json.dumps(one)]) == len(rows)


def test_a_run_leaves_its_workload_its_logs_and_nothing_else_beside_the_run_folder(tmp_path: Path, sim: Sim) -> None:
    done = servebench(tmp_path, "run", "--url", sim.url, *QUICK, "--run-name", "../../x", "--json")
    run = only_run(tmp_path)
    manifest = manifest_of(run, done.returncode)
    assert sorted(path.name for path in (run / "log").iterdir()) == ["master.log", "worker-1.log", "worker-2.log"]
    assert json.loads(done.stdout)["verdict"] == manifest["verdict"]
    again = servebench(tmp_path, "plan", str(run / "workload.yaml"), "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["schedule_hash"] == manifest["schedule_hash"]


def test_without_a_terminal_progress_is_plain_lines_without_escapes(tmp_path: Path, sim: Sim) -> None:
    done = servebench(tmp_path, "run", "--url", sim.url, *QUICK, "--no-report")
    manifest_of(only_run(tmp_path), done.returncode)
    assert not {"\x1b", "\r"} & set(done.stdout + done.stderr)
    assert re.search(r"^\d\d:\d\d:\d\d[+-]\d\d:\d\d steady \d+% sent \d+/\d+ ", done.stderr, re.MULTILINE)
    assert len(done.stderr.partition("steady ")[0].splitlines()) <= 6, "few words before the first request"
    assert not (only_run(tmp_path) / "report.html").exists()


def test_quiet_prints_the_verdict_line_only(tmp_path: Path, sim: Sim) -> None:
    done = servebench(tmp_path, "run", "--url", sim.url, *QUICK, "--quiet", "--model", "tiny")
    manifest_of(only_run(tmp_path), done.returncode)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_a_closed_port_and_an_unknown_model_are_told_before_anything_is_written(tmp_path: Path, sim: Sim) -> None:
    closed = servebench(tmp_path, "run", "--url", "http://127.0.0.1:9", *QUICK)
    assert closed.returncode == 2
    assert "nothing listens at 127.0.0.1:9 (connection refused)" in closed.stderr
    wrong = servebench(tmp_path, "run", "--url", sim.url, *QUICK, "--model", "llama")
    assert wrong.returncode == 2
    assert 'does not serve "llama". It serves: tiny' in wrong.stderr
    assert not (tmp_path / "runs").exists()


def test_a_run_whose_first_twenty_requests_fail_is_given_up_with_the_reason_and_exits_3(tmp_path: Path) -> None:
    arguments = ("run", "--url", "http://127.0.0.1:9", "--rate", "20", "--duration", "10m", "--output-tokens", "8")
    done = servebench(tmp_path, *arguments, "--no-preflight", "--model", "tiny", "--workers", "1")
    assert done.returncode == 3, done.stderr
    assert "INVALID" in done.stdout.splitlines()[0]
    assert re.search(r"the first \d+ requests all failed \(connection_refused \d+\)", " ".join(done.stdout.split()))
    assert re.search(r"Stopping: the first \d+ requests all failed", done.stderr)
    rows = rows_of(only_run(tmp_path))
    assert {outcome for _, outcome, _ in rows} == {"connect_error"}
    assert 20 <= len(rows) < 1_000, "not the 12,000 of ten minutes"


def test_a_run_that_shall_keep_going_sends_every_request_though_all_fail(tmp_path: Path) -> None:
    arguments = ("run", "--url", "http://127.0.0.1:9", *QUICK, "--no-preflight", "--model", "tiny", "--keep-going")
    done = servebench(tmp_path, *arguments)
    assert done.returncode == 3, done.stderr
    assert "Stopping" not in done.stderr
    run = only_run(tmp_path)
    assert len(rows_of(run)) == json.loads((run / "run.json").read_text())["planned_total"] > 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_stop_drains_writes_everything_and_exits_130(
    tmp_path: Path, sim: Sim, start: Starter, number: signal.Signals
) -> None:
    started = start(
        "run", "--url", sim.url, "--rate", "20", "--duration", "10m", "--output-tokens", "8", "--workers", "2"
    )
    started.await_words(r"steady 0% sent [1-9]|steady began")
    children = children_of(started.process)
    assert len(children) == 3
    time.sleep(2)
    started.process.send_signal(number)
    assert started.process.wait(60) == 130, started.said()
    assert "Stopping: no new requests." in started.said()
    run = only_run(tmp_path)
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["verdict"]["status"] == "interrupted"
    rows = rows_of(run)
    assert 0 < len(rows) == manifest["planned"] < manifest["planned_total"]
    assert "INTERRUPTED" in (tmp_path / "stdout").read_text().splitlines()[0]
    assert not [child for child in children if child.is_running()]


def test_two_stops_cancel_what_is_open_and_the_run_stays_readable(tmp_path: Path, start: Starter) -> None:
    engine = start("sim", "--port", "0", "--port-file", str(tmp_path / "port"), "--fault", "stall:1.0")
    deadline = time.monotonic() + 20
    while not (tmp_path / "port").exists():
        assert time.monotonic() < deadline, engine.said()
        time.sleep(0.05)
    url = f"http://127.0.0.1:{(tmp_path / 'port').read_text().strip()}"
    started = start("run", "--url", url, "--rate", "5", "--duration", "10m", "--workers", "1", "--drain", "60s")
    started.await_words(r"steady 0% sent [1-9]|steady began")
    time.sleep(2)
    started.process.send_signal(signal.SIGINT)
    started.await_words("Stopping")
    assert started.process.poll() is None
    started.process.send_signal(signal.SIGINT)
    assert started.process.wait(30) == 130, started.said()
    outcomes = {outcome for _, outcome, _ in rows_of(only_run(tmp_path))}
    assert "cancelled" in outcomes


def test_a_stop_before_the_load_leaves_nothing_behind(tmp_path: Path, sim: Sim, start: Starter) -> None:
    started = start("run", "--url", sim.url, "--rate", "5", "--duration", "60s", "--expect-workers", "1")
    started.await_words("only one served")
    deadline = time.monotonic() + 20
    while not children_of(started.process):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    started.process.send_signal(signal.SIGINT)
    assert started.process.wait(60) == 130, started.said()
    assert "nothing was recorded" in started.said()
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("command", ["run", "master"])
def test_a_stop_while_the_master_waits_for_workers_ends_it(
    command: str, tmp_path: Path, sim: Sim, start: Starter
) -> None:
    port = free_port()
    workload = ("--rate", "5", "--duration", "60s") if command == "run" else ("builtin:bursty",)
    started = start(
        command, *workload, "--url", sim.url, "--expect-workers", "1", "--bind", f"127.0.0.1:{port}",
        "--expect-workers-max-wait", "600", "--model", "tiny",
    )  # fmt: skip
    deadline, said = time.monotonic() + 60, ""
    while "Waiting for workers to be ready, 0 of 1" not in said:
        assert time.monotonic() < deadline, said
        assert started.process.poll() is None, said
        time.sleep(0.05)
        said = started.said() + "".join(log.read_text() for log in tmp_path.glob("runs/.starting-*/log/master.log"))
    started.process.send_signal(signal.SIGINT)
    assert started.process.wait(60) == 130, started.said()
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_killed_worker_is_named_and_its_requests_are_accounted_for(tmp_path: Path, sim: Sim, start: Starter) -> None:
    started = start(
        "run", "--url", sim.url, "--rate", "30", "--duration", "12s", "--output-tokens", "8", "--workers", "2"
    )
    started.await_words("steady began|steady 0%")
    time.sleep(2)
    workers = [child for child in children_of(started.process) if "--worker" in child.cmdline()]
    assert len(workers) == 2
    workers[0].kill()
    started.process.wait(90)
    assert "ended (exit code -9)" in started.said()
    run = only_run(tmp_path)
    manifest = json.loads((run / "run.json").read_text())
    seqs = {seq for seq, _, _ in rows_of(run)}
    lost = {seq for first, last in manifest["lost"] for seq in range(first, last + 1)}
    assert seqs | lost == set(range(manifest["planned"]))
    assert not seqs & lost
    assert max(seqs) == manifest["planned"] - 1


def test_when_the_command_itself_is_killed_the_load_ends_and_the_run_is_closed(
    tmp_path: Path, sim: Sim, start: Starter
) -> None:
    started = start(
        "run", "--url", sim.url, "--rate", "20", "--duration", "10m", "--output-tokens", "8", "--workers", "1"
    )
    started.await_words("steady began|steady 0%")
    time.sleep(1)
    children = children_of(started.process)
    started.process.kill()
    started.process.wait(10)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    run = next(path for path in (tmp_path / "runs").iterdir() if not path.name.startswith("."))
    assert json.loads((run / "run.json").read_text())["state"] == "closed"


def test_remote_workers_join_a_run_that_starts_none_itself(tmp_path: Path, sim: Sim, start: Starter) -> None:
    bind = f"127.0.0.1:{free_port()}"
    started = start("run", "--url", sim.url, *QUICK[:-2], "--expect-workers", "2", "--bind", bind)
    for _ in range(2):
        start("worker", "--master", bind, "--url", sim.url)
    code = started.process.wait(90)
    manifest = manifest_of(only_run(tmp_path), code)
    assert len(manifest["workers"]) == 2
    assert len(rows_of(only_run(tmp_path))) == manifest["planned"]


def test_no_secret_of_the_address_or_the_environment_is_written_anywhere(tmp_path: Path, sim: Sim) -> None:
    url = sim.url.replace("http://", "http://user:pw-canary-41@") + "/v1?api-key=sk-canary-42"
    done = servebench(tmp_path, "run", "--url", url, *QUICK, "--model", "tiny", SERVEBENCH_API_KEY="sk-canary-7f3a")
    manifest_of(only_run(tmp_path), done.returncode)
    assert "canary" not in done.stdout + done.stderr
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert len(written) > 8
    assert [path for path in written if b"canary" in path.read_bytes()] == []


def test_the_web_page_starts_drives_a_run_and_ends_cleanly(tmp_path: Path, sim: Sim, start: Starter) -> None:
    port = str(free_port())
    started = start("ui", "--url", sim.url, "--workers", "1", "--web-port", port, "--drain", "5s")
    started.await_words(rf"Web page: http://127\.0\.0\.1:{port} ")
    page = f"http://127.0.0.1:{port}"

    def fetch(path: str, form: dict[str, str] | None = None) -> bytes:
        data = urllib.parse.urlencode(form).encode() if form is not None else None
        with urllib.request.urlopen(page + path, data=data, timeout=10) as answer:
            body: bytes = answer.read()
        return body

    deadline = time.monotonic() + 30
    while True:
        try:
            if json.loads(fetch("/stats/requests"))["workers"]:
                break
        except OSError:
            pass
        assert time.monotonic() < deadline, started.said()
        time.sleep(0.1)
    fetch("/swarm", {"user_count": "10", "spawn_rate": "10", "host": sim.url})
    started.await_words(r" sent [1-9]", 40)
    children = children_of(started.process)
    started.process.send_signal(signal.SIGINT)
    assert started.process.wait(60) == 0, started.said()
    assert not [child for child in children if child.is_running()]
    assert len(rows_of(only_run(tmp_path))) > 0


def test_a_taken_web_port_is_told_with_a_free_one(tmp_path: Path, sim: Sim) -> None:
    taken = sim.url.rpartition(":")[2]
    done = servebench(tmp_path, "ui", "--url", sim.url, "--web-port", taken)
    assert done.returncode == 2
    assert re.search(
        rf"cannot listen at 127\.0\.0\.1:{taken}: Address already in use.\n  try: --web-port \d+", done.stderr
    )
