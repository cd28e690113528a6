"""Answers are checked while a real master and worker run, against the log of a server that knows what it answered."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from tests.integration.test_load_against_truth import environment, manifest_of, rows_of, run_folder

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SCHEMA = {"type": "object", "required": ["answer"], "properties": {"answer": {"type": "integer"}}}


class Kind(NamedTuple):
    """One way to answer: the text, its finish reason, and what the checks below must make of it."""

    text: str
    finish: str
    accepted: bool | None
    reason: str | None


KINDS = (
    Kind('{"answer": 42}', "stop", True, None),
    Kind('{"answer": "x"}', "stop", False, "json_schema: breaks properties.answer.type"),
    Kind("It is 42.", "stop", False, "json: the text is no JSON"),
    Kind('{"answer": 4', "length", False, "truncated"),
    Kind("  ", "stop", False, "empty"),
    Kind('{"answer": 1' + " 1" * 150, "stop", False, "repeating"),
    Kind('{"answer": 7}', "stop", False, "python: seven"),
    Kind('{"answer": 8}', "stop", None, "not checked: ZeroDivisionError: division by zero"),
    Kind('{"answer": 9}', "stop", None, "not checked: took longer than 2s"),
)

OWN = """
import json, time

def judged(answer):
    number = json.loads(answer.text)["answer"]
    if number == 8:
        1 / 0
    if number == 9:
        time.sleep(60)
    return number != 7 or "seven"
"""

WORKLOAD = """
name: accepted
seed: 3
target: {endpoint: openai-chat, model: m}
prompts: {source: {kind: mt-bench}}
load: {kind: closed, users: 6, requests: 45}
accept:
  - json_schema: answer.json
  - python: own:judged
  - time_limit: 2s
objectives: {accepted_share: {min: 99%}}
"""


class Answering(BaseHTTPRequestHandler):
    """Streams the kind of answer that the request's number chooses, and notes which."""

    protocol_version = "HTTP/1.1"
    log: dict[str, Kind]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        identity = self.headers["X-Request-Id"]
        kind = KINDS[int(identity.split("-")[1]) % len(KINDS)]
        self.log[identity] = kind
        events: list[dict[str, Any]] = [
            *(
                {"choices": [{"index": 0, "delta": {"content": part}}]}
                for part in (kind.text[:3], kind.text[3:])
                if part
            ),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": kind.finish}]},
            {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}},
        ]
        body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, Kind]]]:
    """Give the address of a server and its log, by request id."""
    log: dict[str, Kind] = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Answering,), {"log": log})) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}", log
        http.shutdown()
        thread.join()


def run(folder: Path, url: str, text: str = WORKLOAD) -> subprocess.CompletedProcess[str]:
    (folder / "own.py").write_text(OWN)
    (folder / "answer.json").write_text(json.dumps(SCHEMA))
    (folder / "w.yaml").write_text(text)
    return subprocess.run(
        [
            *(sys.executable, "-m", "servebench.cli", "run", str(folder / "w.yaml"), "--url", url, "--workers", "1"),
            *("--out", str(folder / "runs"), "--no-report", "--no-preflight"),
        ],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_each_row_says_what_the_checks_made_of_the_answer_that_the_server_sent(
    tmp_path: Path, server: tuple[str, dict[str, Kind]]
) -> None:
    url, log = server
    done = run(tmp_path, url)
    rows = rows_of(run_folder(tmp_path))
    assert len(rows) == len(log) == 45, done.stderr
    found = {row["request_id"]: (row["outcome"], row["accepted"], row["accept_reason"]) for row in rows}
    assert found == {identity: ("ok", kind.accepted, kind.reason) for identity, kind in log.items()}
    for row in rows:
        assert (row["validated_ns"] is None) is (row["accepted"] is None)
        assert row["validated_ns"] is None or row["validated_ns"] > row["end_ns"]
    verdict = manifest_of(run_folder(tmp_path))["verdict"]
    assert done.returncode == (1 if verdict["valid"] else 3), "a crowded client may spoil its seconds"
    assert verdict["objectives"] == "missed"
    assert any(reason.startswith("10 answers could not be checked") for reason in verdict["reasons"])
    summary = json.loads((run_folder(tmp_path) / "summary.json").read_text())["acceptance"]
    (level,) = summary["levels"]
    assert (level["checked"], level["accepted"], level["unchecked"]) == (35, 5, 10)
    assert {item["reason"]: item["n"] for item in summary["reasons"]} == Counter(
        kind.reason for kind in log.values() if kind.reason is not None
    )


def test_a_file_of_checks_that_does_not_load_ends_the_run_before_its_load(
    tmp_path: Path, server: tuple[str, dict[str, Kind]]
) -> None:
    url, log = server
    (tmp_path / "other.py").write_text("import nothing_of_this_name\ndef judged(answer): return True\n")
    done = run(tmp_path, url, WORKLOAD.replace("own:judged", "other:judged"))
    assert done.returncode == 2, done.stderr
    assert "No module named 'nothing_of_this_name'" in done.stderr
    assert log == {}
