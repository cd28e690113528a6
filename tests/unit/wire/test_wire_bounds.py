"""What one answer may cost: events and bodies of any size, floods, and texts without end."""

import gzip
import json
import tracemalloc

import pytest

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer
from servebench.wire.account import MAX_EVENTS, MAX_TEXT
from servebench.wire.body import MAX_BODY_BYTES, MAX_EVENT_BYTES, Body
from servebench.wire.coding import PIECE_BYTES
from servebench.wire.endpoint import PayloadError
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.lenient import MAX_LENIENT_BYTES
from servebench.wire.timeline import End, Timeline

OK = b"HTTP/1.1 200 OK\r\n"
SSE = OK + b"Content-Type: text/event-stream\r\n"
LINES = OK + b"Content-Type: application/x-ndjson\r\n"
READ = 64 * 1024


def answer(endpoint: str, head: bytes, body: bytes, *, stream: bool = True) -> Answer:
    timeline = Timeline(ENDPOINTS[endpoint], stream=stream, keep_text=True)
    timeline.feed(head + b"\r\n", 0, -1)
    for start in range(0, len(body), READ):
        timeline.feed(body[start : start + READ], start, -1)
    return timeline.finish(End.EOF, 1 << 40)


def event(content: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":%s}}]}\n\n' % json.dumps(content).encode()


@pytest.mark.parametrize(("endpoint", "head"), [("openai-chat", SSE), ("ollama-chat", LINES)])
def test_an_event_that_never_ends_is_given_up_and_costs_no_more_than_the_bound(endpoint: str, head: bytes) -> None:
    body = b"data: " + b"x" * (MAX_EVENT_BYTES + READ)
    tracemalloc.start()
    said = answer(endpoint, head, body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (said.outcome, said.error_class) == (Outcome.MALFORMED, "event_too_big")
    assert peak < 3 * MAX_EVENT_BYTES


def test_an_event_just_below_the_bound_is_read() -> None:
    text = "A" * (MAX_EVENT_BYTES - 100)
    assert answer("openai-chat", SSE, event(text) + b"data: [DONE]\n\n").text == text


def test_a_whole_body_without_end_is_given_up() -> None:
    said = answer("openai-embeddings", OK, b'{"data":[' + b"1," * (MAX_BODY_BYTES // 2 + READ), stream=False)
    assert (said.outcome, said.error_class) == (Outcome.MALFORMED, "body_too_big")


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_flood_of_tiny_events_ends_one_request_with_a_bounded_number_of_rows(coding: str) -> None:
    flood = b"data:\n\n" * (MAX_EVENTS + 200_000)
    head, body = (SSE + b"Content-Encoding: gzip\r\n", gzip.compress(flood, 1)) if coding == "gzip" else (SSE, flood)
    said = answer("openai-chat", head, body)
    assert (said.outcome, said.error_class) == (Outcome.MALFORMED, "too_many_events")
    assert said.chunks is not None
    assert MAX_EVENTS < len(said.chunks) < MAX_EVENTS + 200_000


@pytest.mark.parametrize(
    ("head", "filling", "outcome", "error_class"),
    [
        (OK + b"Content-Type: text/html\r\n", b"<", Outcome.MALFORMED, "not_a_stream"),
        (b"HTTP/1.1 500 No\r\n", b"x", Outcome.HTTP_ERROR, "http_500"),
        (OK + b"Content-Type: text/plain\r\n", b" ", Outcome.MALFORMED, "body_too_big"),
        (SSE, b"\n", Outcome.MALFORMED, "body_too_big"),
        (SSE, b": \n", Outcome.MALFORMED, "event_too_big"),
    ],
)
def test_of_a_bomb_in_a_bomb_no_more_comes_out_than_is_looked_at(
    head: bytes, filling: bytes, outcome: Outcome, error_class: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inflated = 0

    def counting(self: Body, part: bytes) -> None:
        nonlocal inflated
        inflated += len(part)
        take(self, part)

    take = Body._take
    monkeypatch.setattr(Body, "_take", counting)
    bomb = gzip.compress(gzip.compress(filling * (64 << 20), 1))
    assert len(bomb) < READ
    said = answer("openai-chat", head + b"Content-Encoding: gzip, gzip\r\n", bomb)
    assert (said.outcome, said.error_class) == (outcome, error_class)
    assert inflated <= MAX_BODY_BYTES + PIECE_BYTES


def test_a_text_beyond_the_bound_is_counted_and_not_kept() -> None:
    piece = "A" * (1 << 20)
    pieces = MAX_TEXT // len(piece) + 1
    said = answer("openai-chat", SSE, event(piece) * pieces + b"data: [DONE]\n\n")
    assert (said.outcome, said.output_tokens) == (Outcome.OK, pieces)
    assert (said.text, said.asides) == (None, ())


def test_a_huge_payload_gets_no_second_try() -> None:
    payload = b'{"choices":[],"x":NaN,"y":"' + b"A" * MAX_LENIENT_BYTES + b'"}'
    with pytest.raises(PayloadError, match="not as the dialect has them"):
        ENDPOINTS["openai-chat"].decode_event(payload)


def test_of_choices_beyond_what_the_columns_tell_apart_nothing_is_read() -> None:
    choices: list[object] = [{"index": index, "delta": {}, "finish_reason": None} for index in range(128)]
    late = {"index": 0, "delta": {"content": "late"}, "finish_reason": "stop"}
    delta = ENDPOINTS["openai-chat"].decode_event(json.dumps({"choices": [*choices, late]}).encode())
    assert (delta.text, delta.ended) == (None, 0)
