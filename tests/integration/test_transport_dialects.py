"""Every dialect over real sockets, its times compared with the server's own log."""

import re
import time
from pathlib import Path

import pytest
from tests.captures import load_capture
from tests.transport_servers import replay, write_case

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, Message
from servebench.core.target import parse_target
from servebench.loadgen.transport.client import Client
from servebench.wire.endpoint import Endpoint
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.model import Timeouts

pytestmark = pytest.mark.integration

DIALECTS = Path(__file__).parents[1] / "golden" / "dialects"
ANSWERS = {
    "openai-responses": ("handmade/responses_text", "Grüße 🚲"),
    "anthropic-messages": ("handmade/anthropic_text", "Hello, 漢字"),
    "tgi-generate": ("handmade/tgi_length", "Deep learning is"),
    "triton-generate": ("triton/generate_stream", "tok0 tok1 tok2 tok3 tok4 "),
    "kserve-v2": ("mlserver/infer_stream", "tok0 tok1 tok2 tok3 "),
    "ollama-chat": ("handmade/ollama_text", "The sky"),
    "openai-embeddings": ("handmade/embeddings", None),
}


NO_SIGNAL = {"triton-generate", "kserve-v2", "openai-embeddings"}
"""Dialects whose answers end with their body."""


def events_of(endpoint: Endpoint, body: bytes) -> list[bytes]:
    """Return the body as the pieces that are written: its events, or the whole."""
    if not endpoint.streams:
        return [body]
    return body.splitlines(keepends=True) if endpoint.lines else re.findall(rb"(?s).+?\n\n", body)


@pytest.mark.parametrize("name", ANSWERS)
def test_each_event_is_stamped_when_its_bytes_came(name: str, tmp_path: Path) -> None:
    file, text = ANSWERS[name]
    endpoint = ENDPOINTS[name].at("toy", stream=True)
    capture = load_capture(DIALECTS / f"{file}.txt")
    chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events_of(endpoint, capture.body)]
    pieces = [(capture.head, "0 head"), *((chunk, "10 event") for chunk in chunks), (b"0\r\n\r\n", "10 end")]
    with replay([write_case(tmp_path, pieces)], tmp_path) as server:
        answer = perform(endpoint, server.url)
    sent_ns = [write["t_ns"] for write in server.events("sent")]
    assert (answer.outcome, answer.text, answer.streamed) == (Outcome.OK, text, endpoint.streams)
    assert answer.chunks is not None
    assert len(sent_ns) == len(chunks) + 2
    assert len(answer.chunks) == (len(chunks) if endpoint.streams else 0)
    events = list(zip(answer.chunks.ns, answer.chunks.read, sent_ns[1:], strict=False))
    for stamp, read, event_sent_ns in events:
        # A busy machine may read several writes at once; their stamp is then that of the last.
        last = max(place for place, other in enumerate(events) if other[1] == read)
        following = sent_ns[2 + last] if last + 1 < len(events) else time.monotonic_ns()
        assert event_sent_ns <= stamp < following
    assert answer.end_ns >= sent_ns[-1 if name in NO_SIGNAL else -2]
    assert name in NO_SIGNAL or answer.end_ns == answer.chunks.ns[-1]


@pytest.mark.parametrize("name", sorted(set(ANSWERS) - NO_SIGNAL))
def test_an_answer_is_over_with_its_last_event_though_the_body_is_not(name: str, tmp_path: Path) -> None:
    endpoint = ENDPOINTS[name].at("toy", stream=True)
    capture = load_capture(DIALECTS / f"{ANSWERS[name][0]}.txt")
    chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events_of(endpoint, capture.body)]
    pieces = [(capture.head, "0 head"), *((chunk, "10 event") for chunk in chunks)]
    with replay([write_case(tmp_path, pieces, "@hold 20000")], tmp_path) as server:
        answer = perform(endpoint, server.url)
    [held] = server.events("held")
    assert (answer.outcome, held["client_closed"]) == (Outcome.OK, True)


def perform(endpoint: Endpoint, url: str) -> Answer:
    body = endpoint.body(model="toy", messages=[Message("user", "hi")], max_tokens=5, stream=True, params={})
    client = Client(parse_target(url), endpoint, Timeouts(), headers={}, keep_text=True, stream=endpoint.streams)
    try:
        return client.perform(body, "dialect-1", time.monotonic_ns()).answer
    finally:
        client.close()
