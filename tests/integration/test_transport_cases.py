"""The transport against recorded responses, its times compared with the server's own log."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.transport_servers import Replay, case, replay

from servebench.core.outcomes import TOKEN_KIND_CODES, Outcome
from servebench.core.target import parse_target
from servebench.loadgen.transport.client import Client
from servebench.loadgen.transport.exchange import Exchange
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.model import Timeouts

pytestmark = pytest.mark.integration

BODY = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()

# What each case says, from the case catalogue: outcome, error class, text, number of token events.
EXPECTED = {
    "S00": (Outcome.OK, None, " w1 w2 w3 w4 w5 w6 w7 w8 w9 w10", 10),
    "S08": (Outcome.OK, None, "漢字🚲é", 2),
    "S09": (Outcome.OK, None, "left right", 2),
    "S11": (Outcome.OK, None, "abcd", 4),
    "O03": (Outcome.OK, None, "TTFT", 3),
    "H03": (Outcome.TRUNCATED, "connection_reset", "one two three", 3),
    "H05": (Outcome.TRUNCATED, "truncated", "looks complete", 2),
    "H08": (Outcome.TIMEOUT, "timeout_idle", "stalled", 2),
    "H11": (Outcome.OK, None, "gzip", 2),
    "H13": (Outcome.OK, None, "oldschool", 2),
    "H16": (Outcome.OK, None, "final", 1),
}
WHOLE = sorted(set(EXPECTED) - {"H03", "H08"})
"""Cases whose plan neither resets nor stalls, so that the bytes alone make the outcome."""


def perform(server: Replay, timeouts: Timeouts | None = None) -> Exchange:
    client = Client(
        parse_target(server.url), ENDPOINTS["openai-chat"], timeouts or Timeouts(), headers={}, keep_text=True
    )
    try:
        return client.perform(BODY, "case-1", time.monotonic_ns())
    finally:
        client.close()


def token_times(exchange: Exchange) -> list[int]:
    chunks = exchange.answer.chunks
    assert chunks is not None
    return [ns for ns, kind in zip(chunks.ns, chunks.kind, strict=True) if kind in TOKEN_KIND_CODES]


def token_writes(server: Replay) -> list[dict[str, Any]]:
    """Return the write that completed each token event, as the plan's labels name them ("token3", "tokens1-3")."""
    writes = []
    for write in server.events("sent"):
        word = write["label"].split("+")[0]
        if word.startswith("tokens"):
            first, last = word.removeprefix("tokens").split("-")
            writes += [write] * (int(last) - int(first) + 1)
        elif word.startswith("token"):
            writes.append(write)
    return writes


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_token_is_stamped_between_its_write_and_the_next(name: str, tmp_path: Path) -> None:
    outcome, error_class, text, tokens = EXPECTED[name]
    with replay([case(name)], tmp_path) as server:
        exchange = perform(server, Timeouts(idle_ns=2_000_000_000))
    writes, sent = token_writes(server), server.events("sent")
    answer = exchange.answer
    assert (answer.outcome, answer.error_class, answer.text) == (outcome, error_class, text)
    times = token_times(exchange)
    assert len(times) == len(writes) == tokens
    for stamp, write in zip(times, writes, strict=True):
        later = [other["t_ns"] for other in sent if other["begin"] >= write["end"]]
        assert write["t_ns"] <= stamp < min(later, default=2**63)
    assert all((a == b) == (v is w) for (a, b), (v, w) in zip(pairwise(times), pairwise(writes), strict=True))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_read_has_a_kernel_stamp_that_precedes_it(name: str, tmp_path: Path) -> None:
    with replay([case(name)], tmp_path) as server:
        chunks = perform(server, Timeouts(idle_ns=300_000_000)).answer.chunks
    assert chunks is not None
    assert len(chunks) > 0
    assert min(chunks.delay_ns) >= 0


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("name", WHOLE)
def test_cutting_the_bytes_elsewhere_changes_nothing(name: str, size: int, tmp_path: Path) -> None:
    outcome, error_class, text, tokens = EXPECTED[name]
    with replay([case(name)], tmp_path, "--chunk-bytes", str(size)) as server:
        exchange = perform(server)
    answer = exchange.answer
    assert (answer.outcome, answer.error_class, answer.text) == (outcome, error_class, text)
    assert len(token_times(exchange)) == tokens


def test_an_idle_stream_ends_the_set_time_after_its_last_byte(tmp_path: Path) -> None:
    with replay([case("H08")], tmp_path) as server:
        exchange = perform(server, Timeouts(idle_ns=2_000_000_000))
    last = server.events("sent")[-1]
    assert exchange.answer.error_message == "nothing came for 2s (requests.timeouts.idle)"
    assert exchange.answer.end_ns >= last["t_ns"] + 2_000_000_000


def test_sent_precedes_the_arrival_of_the_request(tmp_path: Path) -> None:
    with replay([case("S11")], tmp_path) as server:
        stamps = perform(server).stamps
    (request,), (accept,) = server.events("request"), server.events("accept")
    assert stamps.dispatched_ns is not None
    assert stamps.connect_start_ns is not None
    assert stamps.connect_end_ns is not None
    assert stamps.sent_ns is not None
    assert stamps.send_end_ns is not None
    assert stamps.dispatched_ns <= stamps.connect_start_ns < accept["t_ns"]
    assert stamps.connect_end_ns <= stamps.sent_ns < request["t_ns"]
    assert stamps.sent_ns <= stamps.send_end_ns


def test_the_request_arrives_whole_with_its_head(tmp_path: Path) -> None:
    with replay([case("H15")], tmp_path) as server:
        client = Client(
            parse_target(server.url.replace("//", "//me:secret@") + "/v1?tier=2"),
            ENDPOINTS["openai-chat"],
            Timeouts(),
            headers={"X-Extra": "7"},
        )
        body = b'{"pad": "' + b"x" * (20 << 20) + b'"}'
        exchange = client.perform(body, "abc-1-0", None)
        client.close()
    (request,) = server.events("request")
    assert exchange.answer.outcome is Outcome.OK
    assert request["body_bytes"] == len(body)
    assert request["head"][0] == "POST /v1/chat/completions?tier=2 HTTP/1.1"
    assert {
        f"Host: 127.0.0.1:{server.port}",
        "Content-Type: application/json",
        "Accept-Encoding: identity",
        "X-Extra: 7",
        "X-Request-Id: abc-1-0",
    } <= set(request["head"])
    assert "Authorization: Basic bWU6c2VjcmV0" in request["head"]
    head_bytes = sum(len(line) + 2 for line in request["head"]) + 2
    assert exchange.request_bytes == head_bytes + len(body)
