"""Whole runs with retries and headers, and with too few open files, against what the server saw."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest
from tests.integration.test_load_against_truth import environment, manifest_of, rows_of, run_folder

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SECRET = "canary-7f3a9c"
ANSWER = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
WORKLOAD = """
name: options
seed: 3
target: {endpoint: openai-chat, model: m}
prompts: {source: {kind: mt-bench}, output_tokens: {from: fixed, tokens: 1}}
"""


class Handler(BaseHTTPRequestHandler):
    """Refuses the first try of every third request with 429; answers at once, or when `released` is set."""

    protocol_version = "HTTP/1.1"
    lock: Lock
    heads: list[dict[str, str]]
    released: Event

    def do_GET(self) -> None:
        self._answer(200, "application/json", b'{"object": "list", "data": [{"id": "m"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            self.heads.append({name.lower(): value for name, value in self.headers.items()})
        self.released.wait(30)
        _, seq, attempt = self.headers["X-Request-Id"].split("-")
        if attempt == "0" and int(seq) % 3 == 0:
            self._answer(429, "application/json", b"{}", retry_after="1")
        else:
            self._answer(200, "text/event-stream", ANSWER)

    def _answer(self, status: int, kind: str, data: bytes, retry_after: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Quiet(ThreadingHTTPServer):
    """Says nothing of clients that leave."""

    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[Handler]]]:
    released = Event()
    released.set()
    handler = type("OneHandler", (Handler,), {"lock": Lock(), "heads": [], "released": released})
    with Quiet(("127.0.0.1", 0), handler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}", handler
        released.set()
        listening.shutdown()


def run(
    folder: Path, text: str, url: str, *, open_files: int | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    (folder / "w.yaml").write_text(WORKLOAD + text, encoding="utf-8")
    command = [sys.executable, "-m", "servebench.cli", "run", str(folder / "w.yaml"), "--url", url]
    command += ["--workers", "1", "--out", str(folder / "runs"), "--no-report", "--no-preflight"]
    if open_files is not None:
        command = ["bash", "-c", f'ulimit -n {open_files}; exec "$0" "$@"', *command]
    return subprocess.run(
        command,
        env=environment(folder) | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_retries_are_rows_that_match_the_server_and_hold_up_no_arrival(
    tmp_path: Path, server: tuple[str, type[Handler]]
) -> None:
    url, handler = server
    done = run(
        tmp_path,
        "load: {kind: open, arrivals: {process: constant}, "
        "phases: [{name: even, shape: steady, rate_per_s: 10, duration: 3s}]}\n"
        "requests: {retries: {max: 2}, headers: {X-Team: blue}}\n",
        url,
        SERVEBENCH_HEADERS=f"X-Gateway-Key: {SECRET}",
    )
    assert done.returncode in {0, 3}, done.stderr
    rows = rows_of(run_folder(tmp_path))
    attempts = Counter(row["seq"] for row in rows)
    assert attempts == {seq: 2 if seq % 3 == 0 else 1 for seq in range(30)}
    assert manifest_of(run_folder(tmp_path))["planned"] == 30
    assert Counter(row["request_id"] for row in rows) == Counter(head["x-request-id"] for head in handler.heads)
    by_key: dict[tuple[int, int], dict[str, Any]] = {(row["seq"], row["attempt"]): row for row in rows}
    for seq in range(0, 30, 3):
        first, second = by_key[seq, 0], by_key[seq, 1]
        assert (first["http_status"], first["retry_after_s"], second["outcome"]) == (429, 1.0, "ok")
        assert second["sent_ns"] >= first["end_ns"] + 1_000_000_000
        assert second["dispatched_ns"] is None
    assert all(head["x-team"] == "blue" and head["x-gateway-key"] == SECRET for head in handler.heads)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "load",
    [
        "load: {kind: closed, users: 200, requests: 400}",
        "load: {kind: open, phases: [{name: even, shape: steady, rate_per_s: 100, duration: 4s}]}",
    ],
    ids=["closed", "open"],
)
def test_too_few_open_files_end_the_run_with_that_message_and_its_way_out(
    load: str, tmp_path: Path, server: tuple[str, type[Handler]]
) -> None:
    url, handler = server
    handler.released.clear()
    done = run(tmp_path, load + "\nrequests: {timeouts: {total: 5s}}\n", url, open_files=120)
    assert done.returncode == 4, done.stderr
    told = [line for line in done.stderr.splitlines() if "open files" in line]
    assert told[-1] == done.stderr.splitlines()[-1]
    assert all("raise the limit of open files (ulimit -n)" in line for line in told), done.stderr
    json.loads((run_folder(tmp_path) / "run.json").read_bytes())
