"""A run that its own rules end: told in verdict, events and exit code, with everything sent accounted for."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.integration.test_load_against_truth import run_folder
from tests.integration.test_load_kinds import run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

WORKLOAD = """
name: ended
seed: 3
target: {{endpoint: openai-chat, model: m}}
prompts: {{source: {{kind: mt-bench}}}}
load: {{kind: closed, users: 2, requests: {requests}, think_time: 20ms}}
{rules}
"""
GOOD = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


class Failing(BaseHTTPRequestHandler):
    """Answers the first `good` requests, refuses the others; `served` counts all."""

    protocol_version = "HTTP/1.1"
    good: int
    served: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.served.append(self.headers["X-Request-Id"])
        well = len(self.served) <= self.good
        self.send_response(200 if well else 500)
        self.send_header("Content-Type", "text/event-stream" if well else "application/json")
        body = GOOD if well else b'{"error": {"message": "no"}}'
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(params=[10**9])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[str]]]:
    """Give the address of a server, and the requests that it saw."""
    seen: list[str] = []
    handler = type("Handler", (Failing,), {"good": request.param, "served": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}", seen
        http.shutdown()
        thread.join()


def events_of(folder: Path) -> list[str]:
    lines = (run_folder(folder) / "events.jsonl").read_text().splitlines()
    return [event["text"] for event in map(json.loads, lines) if event["kind"] == "stop"]


@pytest.mark.parametrize("served", [60], indirect=True)
def test_too_many_errors_end_a_run_and_its_numbers(tmp_path: Path, served: tuple[str, list[str]]) -> None:
    url, seen = served
    text = WORKLOAD.format(requests=100_000, rules="stop: {errors: 40}")
    code, rows, manifest = run(tmp_path, text, url, 1, "--no-preflight")
    assert code == 3
    assert manifest["stop_cause"].startswith("stop rule: ")
    assert manifest["stop_cause"] in manifest["verdict"]["reasons"][0]
    assert events_of(tmp_path) == [manifest["stop_cause"]]
    assert {row["request_id"] for row in rows if row["sent_ns"] is not None} == set(seen)
    assert sum(row["outcome"] == "http_error" for row in rows) >= 40
    assert manifest["planned"] == len(rows) < 100_000


def test_an_objective_that_is_lost_ends_a_run_as_missed(tmp_path: Path, served: tuple[str, list[str]]) -> None:
    url, _ = served
    rules = "objectives: {e2e: {p95: 1us}}\nstop: {objectives: true}"
    code, rows, manifest = run(tmp_path, WORKLOAD.format(requests=2_000, rules=rules), url, 1, "--no-preflight")
    assert code == (1 if manifest["verdict"]["valid"] else 3), "a crowded client may spoil its seconds"
    assert manifest["verdict"]["objectives"] == "missed"
    assert not any("the run was stopped" in reason for reason in manifest["verdict"]["reasons"])
    assert manifest["stop_cause"].startswith("out of reach: request p95 < 0.001 ms: ")
    assert any("ended early by stop.objectives" in reason for reason in manifest["verdict"]["reasons"])
    assert 100 < len(rows) < 2_000
