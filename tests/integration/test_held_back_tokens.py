"""First tokens that a server's kernel holds back: a real socket without TCP_NODELAY, and the same with it."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
TOKENS, PACE_S = 30, 0.006
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(text: str) -> bytes:
    data = f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}]})}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(connection: socket.socket, *, no_delay: bool) -> None:
    """Answer requests of one connection: the head at once, the tokens at an even pace, each by a write of its own."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(no_delay))
    with connection, connection.makefile("rb") as requests:
        while requests.readline():
            length = 0
            while (line := requests.readline()) not in {b"\r\n", b""}:
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            requests.read(length)
            connection.sendall(HEAD)
            for number in range(TOKENS):
                time.sleep(PACE_S)
                connection.sendall(event(f"word{number} "))
            connection.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


@contextmanager
def served(*, no_delay: bool) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), kwargs={"no_delay": no_delay}, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("no_delay", [False, True])
def test_a_wait_of_the_servers_kernel_is_told_apart_from_its_own(tmp_path: Path, no_delay: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    arguments = ["--concurrency", "1", "--requests", "16", "--workers", "1", "--no-preflight", "--model", "m"]
    with served(no_delay=no_delay) as url:
        done = subprocess.run(
            [sys.executable, "-m", "servebench.cli", "run", "--url", url, *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT / "src")},
        )
    assert done.returncode in {0, 3}, done.stdout + done.stderr
    summary = json.loads(next(tmp_path.glob("runs/*/summary.json")).read_text())
    told = [sentence for sentence in summary["standouts"] if "TCP_NODELAY" in sentence]
    assert summary["measured"]["ok"] == 16
    assert bool(told) == (not no_delay), summary["standouts"]
