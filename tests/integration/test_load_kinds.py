"""Closed load and conversations against the server's own log."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.integration.test_load_against_truth import environment, manifest_of, rows_of, run_folder
from tests.servers.simulator import StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def run(
    folder: Path, text: str, url: str, workers: int, *options: str
) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Run a workload to its end; return exit code, rows and manifest."""
    (folder / "w.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "servebench.cli", "run", str(folder / "w.yaml"), "--url", url),
            *("--workers", str(workers), "--out", str(folder / "runs"), "--no-report"),
            *options,
        ],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (folder / "runs").exists(), done.stderr
    return done.returncode, rows_of(run_folder(folder)), manifest_of(run_folder(folder))


CLOSED = """
name: closed
seed: 3
target: {endpoint: openai-chat, model: sim-1}
prompts: {source: {kind: mt-bench}, output_tokens: {from: fixed, tokens: 10}}
load: {kind: closed, users: 7, requests: 150, warmup_requests: 20}
"""


def test_closed_load_sends_exactly_so_many_requests_from_one_pool(tmp_path: Path, start_sim: StartSim) -> None:
    sim = start_sim(preset="demo")
    code, rows, manifest = run(tmp_path, CLOSED, f"http://127.0.0.1:{sim.port}", workers=2)
    truth = sim.stop()
    assert code in {0, 3}
    assert sorted(row["seq"] for row in rows) == list(range(170))
    assert len(truth) == 170
    assert {row["request_id"] for row in rows} == {record.request_id for record in truth}
    assert (manifest["planned"], manifest["engine"], manifest["schedule_hash"]) == (170, "closed", None)
    assert sum(row["measured"] for row in rows) == 150
    assert all(row["intended_ns"] is None for row in rows)
    assert len({row["worker"] for row in rows}) == 2
    assert most_at_once([(r.t_received_ns, r.t_done_ns) for r in truth if r.t_done_ns is not None]) == 7
    warmup, measured = manifest["phases"]
    assert (warmup["name"], warmup["measured"], measured["name"]) == ("warmup", False, "closed")
    assert measured["start_ns"] == warmup["end_ns"] == min(r["dispatched_ns"] for r in rows if r["measured"])
    assert measured["end_ns"] >= max(r["end_ns"] for r in rows)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "max_only"])
def test_a_server_that_would_answer_shorter_answers_as_long_as_asked_where_lengths_are_exact(
    exact: bool, tmp_path: Path, start_sim: StartSim
) -> None:
    sim = start_sim("--answer-tokens", "natural", preset="fast")
    text = CLOSED.replace("requests: 150, warmup_requests: 20", "requests: 30").replace("tokens: 10", "tokens: 300")
    text += "requests: {lengths: exact}\n" if exact else ""
    code, rows, _ = run(tmp_path, text, f"http://127.0.0.1:{sim.port}", 1)
    truth = {record.request_id: record.completion_tokens for record in sim.stop()}
    assert code in {0, 3}
    assert {row["request_id"]: row["output_tokens"] for row in rows} == truth
    assert (set(truth.values()) == {300}) == exact
    lengths = json.loads((run_folder(tmp_path) / "summary.json").read_bytes())["lengths"]
    met = sum(tokens == 300 for tokens in truth.values())
    assert (lengths["mode"], lengths["asked"], lengths["met"]) == ("exact" if exact else "max_only", 30, met)


def test_users_back_off_from_a_server_that_is_down(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    text = CLOSED.replace("users: 7, requests: 150, warmup_requests: 20", "users: 5, duration: 3s")
    code, rows, _ = run(tmp_path, text, f"http://127.0.0.1:{port}", 1, "--no-preflight")
    assert code == 3
    assert {row["outcome"] for row in rows} == {"connect_error"}
    by_time = sorted(row["dispatched_ns"] for row in rows)
    assert 5 < len(by_time) <= 5 * (3_000_000_000 // 300_000_000 + 1), "at most one try per user and pause"


def most_at_once(spans: list[tuple[int, int]]) -> int:
    """Return the largest number of spans that overlap."""
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    level = highest = 0
    for _, step in steps:
        level += step
        highest = max(highest, level)
    return highest


class Talker(BaseHTTPRequestHandler):
    """An endpoint that notes each request's messages and answers with its number; refuses what says so."""

    protocol_version = "HTTP/1.1"
    heard: list[tuple[str, list[dict[str, str]]]]

    def do_GET(self) -> None:
        self._answer(200, "application/json", b'{"object": "list", "data": [{"id": "talker"}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.heard.append((self.headers["X-Request-Id"], body["messages"]))
        if len(body["messages"]) == 3 and len(self.heard) % 5 == 0:
            self._answer(500, "application/json", b'{"error": {"message": "no"}}')
            return
        text = f"answer to {self.headers['X-Request-Id']}"
        event = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
        self._answer(200, "text/event-stream", f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode())

    def _answer(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def talker() -> Iterator[tuple[str, list[tuple[str, list[dict[str, str]]]]]]:
    heard: list[tuple[str, list[dict[str, str]]]] = []
    handler = type("Handler", (Talker,), {"heard": heard})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", heard
    server.shutdown()
    server.server_close()
    thread.join()


CLOSED_TALK = """
name: closed-talk
seed: 3
target: {endpoint: openai-chat, model: talker}
prompts:
  source: {kind: mt-bench}
  conversation: {turns: {from: uniform, min: 2, max: 4}, think_time: 200ms}
load: {kind: closed, users: 4, think_time: 500ms, requests: 60}
"""


def test_closed_users_live_through_one_conversation_after_the_other(
    tmp_path: Path, talker: tuple[str, list[tuple[str, list[dict[str, str]]]]]
) -> None:
    url, heard = talker
    _, rows, manifest = run(tmp_path, CLOSED_TALK, url, workers=2)
    assert sorted(row["seq"] for row in rows) == list(range(60))
    assert manifest["planned"] == 60
    said = dict(heard)
    assert said.keys() == {row["request_id"] for row in rows}
    sessions: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["dispatched_ns"]):
        sessions.setdefault(row["session"], []).append(row)
    assert all(turns[0]["seq"] == session for session, turns in sessions.items())
    assert {len(turns) for turns in sessions.values()} <= {1, 2, 3, 4}
    for turns in sessions.values():
        assert [row["turn"] for row in turns] == list(range(len(turns)))
        assert len({row["worker"] for row in turns}) == 1
        history: list[str] = []
        for before, row in pairwise(turns):
            assert before["outcome"] == "ok", "a conversation goes on behind an answer only"
            assert row["sent_ns"] >= before["end_ns"] + 200_000_000
            history += [said[before["request_id"]][-1]["content"], f"answer to {before['request_id']}"]
            assert [message["content"] for message in said[row["request_id"]][:-1]] == history
    if len(manifest["members"]) == 1:  # a worker that a crowded machine silenced has its users taken over
        assert most_at_once([(turns[0]["sent_ns"], turns[-1]["end_ns"]) for turns in sessions.values()]) <= 4


CONVERSATIONS = """
name: talk
seed: 3
target: {endpoint: openai-chat, model: talker}
prompts:
  source: {kind: mt-bench}
  conversation: {turns: {from: fixed, count: 3}, think_time: 300ms}
load:
  kind: open
  phases:
    - {name: talk, shape: steady, rate_per_s: 4, duration: 8s}
"""


def test_later_turns_follow_the_answer_behind_the_history_they_made(
    tmp_path: Path, talker: tuple[str, list[tuple[str, list[dict[str, str]]]]]
) -> None:
    url, heard = talker
    _, rows, manifest = run(tmp_path, CONVERSATIONS, url, workers=2)
    assert sorted(row["seq"] for row in rows) == list(range(manifest["planned"]))
    sessions: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        sessions.setdefault(row["session"], []).append(row)
    assert len(sessions) > 15
    said = dict(heard)
    assert len(said) == len(heard), "a turn was sent twice"
    assert said.keys() == {row["request_id"] for row in rows if row["sent_ns"] is not None}
    # The server says no usage: its tokens are counted by events, and by the client's own vocabulary beside it.
    answered = [row for row in rows if row["outcome"] == "ok"]
    assert {(row["token_source"], row["counted_source"]) for row in answered} == {("events", "o200k")}
    assert all(row["output_tokens"] == 1 < row["output_tokens_counted"] for row in answered)
    skipped = 0
    for turns in sessions.values():
        assert [row["turn"] for row in turns] == [0, 1, 2]
        assert len({row["worker"] for row in turns}) == 1, "a conversation stays with its worker"
        for before, row in pairwise(turns):
            if before["outcome"] != "ok":
                assert (row["outcome"], row["sent_ns"]) == ("skipped", None)
                skipped += 1
                continue
            assert row["intended_ns"] == before["end_ns"] + 300_000_000
            assert row["sent_ns"] >= row["intended_ns"]
            earlier = said[before["request_id"]]
            now = said[row["request_id"]]
            assert now[: len(earlier)] == earlier
            assert now[len(earlier)] == {"role": "assistant", "content": f"answer to {before['request_id']}"}
            assert [message["role"] for message in now[len(earlier) + 1 :]] == ["user"]
    assert skipped > 0, "the server refused some second turns"
    plan_rows = pq.read_table(run_folder(tmp_path) / "requests").num_rows
    assert plan_rows == manifest["rows"]


FEW_USERS = """
name: few
seed: 3
target: {endpoint: openai-chat, model: sim-1}
prompts: {source: {kind: mt-bench}, output_tokens: {from: fixed, tokens: 5}}
load: {kind: closed, users: 1, requests: 12}
"""


def test_closed_load_with_fewer_users_than_workers_ends_after_its_requests(tmp_path: Path, start_sim: StartSim) -> None:
    sim = start_sim(preset="fast")
    code, rows, manifest = run(tmp_path, FEW_USERS, f"http://127.0.0.1:{sim.port}", workers=2)
    assert code in {0, 3}
    assert sorted(row["seq"] for row in rows) == list(range(12))
    assert manifest["planned"] == len(sim.stop()) == 12
