"""A command that is stopped while it starts ends at once, without a traceback; SERVEBENCH_EARLY_STOPS=20 tries more."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
TIMES = int(os.environ.get("SERVEBENCH_EARLY_STOPS", "4"))
SILENT = "http://127.0.0.1:9"
BEGIN = "from servebench.cli import start; print('begun', flush=True); start.main()"
"""What comes before is Python's own start, in which it answers a Ctrl-C by itself."""
COMMANDS = {
    "master": (
        "master",
        "builtin:bursty",
        "--url",
        SILENT,
        "--model",
        "m",
        "--expect-workers",
        "1",
        "--bind",
        "{host}",
    ),
    "worker": ("worker", "--master", "{host}"),
    "run": ("run", "builtin:bursty", "--url", SILENT, "--no-preflight", "--expect-workers", "1", "--bind", "{host}"),
    "sim": ("sim",),
}


class Stopped(NamedTuple):
    """How a command ended that got a signal `after_s` from its first own line."""

    number: signal.Signals
    after_s: float
    code: int
    said: str


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stop_at_any_instant_of_the_start_ends_it_without_a_traceback(command: str, tmp_path: Path) -> None:
    rng = random.Random(command)
    instants = [(rng.uniform(0.1, 3), rng.choice([signal.SIGINT, signal.SIGTERM])) for _ in range(TIMES)]
    with ThreadPoolExecutor(2) as two:
        found = list(two.map(partial(stopped, command, tmp_path), range(TIMES), instants))
    for one in found:
        assert "Traceback" not in one.said, one
        # Before the command listens SIGTERM does what it does to any process; a simulator that served ends well.
        allowed = (
            {130}
            | ({-signal.SIGTERM} if one.number == signal.SIGTERM else set())
            | ({0} if command == "sim" else set())
        )
        assert one.code in allowed, one
    assert list(tmp_path.glob("*/runs/*")) == []


def stopped(command: str, folder: Path, index: int, instant: tuple[float, signal.Signals]) -> Stopped:
    """Start a command in a folder of its own and stop it at an instant."""
    after_s, number = instant
    own = folder / str(index)
    own.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    with (own / "stderr").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, *(word.format(host=host) for word in COMMANDS[command])],
            cwd=own,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"begun\n"
        time.sleep(after_s)
        process.send_signal(number)
        process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    return Stopped(number, after_s, process.returncode, (own / "stderr").read_text("utf-8", "replace"))
