"""A rate that is changed by hand, as the server's own log sees it; and what such a run leaves where others can look."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.servers.simulator import Sim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
S = 1_000_000_000
SLOW_S = 60
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


class Desk:
    """A web page that load is driven from."""

    def __init__(self, sim: Sim, process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self.sim, self.process, self.folder = sim, process, folder
        self.address = f"http://127.0.0.1:{port}"

    def post(self, path: str, **form: str) -> None:
        data = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.address}/{path}", data, timeout=SLOW_S) as answer:
            assert b'"success":true' in b"".join(answer.read().split())

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.address}/{path}", timeout=SLOW_S) as answer:
            data: bytes = answer.read()
            return data

    def await_text(self, path: str, text: bytes) -> None:
        deadline = time.monotonic() + SLOW_S
        while True:
            try:
                if text in b"".join(self.get(path).split()):
                    return
            except (urllib.error.URLError, OSError):
                pass
            assert time.monotonic() < deadline, f"no {text!r} at /{path}"
            time.sleep(0.1)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    with sim_starter(tmp_path) as start_sim:
        sim = start_sim(preset="fast")
        command = [
            *(sys.executable, "-m", "servebench.cli", "ui", "--workers", "1", "--web-port", str(port)),
            *("--out", str(tmp_path / "runs"), "--drain", "2s"),
        ]
        environment = {
            **kept,
            "PYTHONPATH": str(ROOT / "src"),
            "SERVEBENCH_URL": f"http://eve:pw-canary-1@127.0.0.1:{sim.port}/v1?key=canary-2",
            "SERVEBENCH_API_KEY": "sk-canary-3",
        }
        with (tmp_path / "ui.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            yield Desk(sim, process, port, tmp_path)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(SLOW_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def test_an_edited_rate_is_followed_within_a_second_and_nothing_secret_can_be_seen(desk: Desk) -> None:
    desk.await_text("worker-count", b'"worker_count":1')
    desk.post("swarm", user_count="5", spawn_rate="100")
    desk.await_text("servebench/live", b'"state":"running"')
    edits = []
    for users in ("40", "5"):
        time.sleep(3)
        edits.append(time.monotonic_ns())
        desk.post("swarm", user_count=users, spawn_rate="100")
    time.sleep(3.5)
    lines = [child.cmdline() for child in psutil.Process(desk.process.pid).children(recursive=True)]
    pages = desk.get("") + desk.get("servebench/live") + desk.get("servebench/runs")
    desk.post("stop")
    desk.await_text("servebench/live", b'"state":"closed"')
    arrived = [record.t_first_byte_ns for record in desk.sim.stop() if "chat" in record.path]

    up, down = (sum(edit + S < at <= edit + 3 * S for at in arrived) for edit in edits)
    assert 50 < up < 115, "40 a second for two seconds, from a second after the edit on; Poisson"
    assert down < 25, "and 5 a second after the next"

    assert len(lines) == 2
    assert "canary" not in " ".join(word for line in lines for word in line)
    assert b"canary" not in pages
    assert "canary" not in (desk.folder / "ui.log").read_text(encoding="utf-8")
    files = [path for path in (desk.folder / "runs").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path.name for path in files if b"canary" in path.read_bytes()] == []
    for path in files:
        for part in path.relative_to(desk.folder / "runs").parts:
            assert re.fullmatch(r"[A-Za-z0-9._-]{1,120}", part), "a name for every file system"
            assert not RESERVED.fullmatch(part)
            assert not part.endswith(".")
