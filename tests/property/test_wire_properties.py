"""Hold the wire to what must be true of any bytes, cut anywhere."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.core.records import Answer
from servebench.wire.endpoint import Delta, Endpoint, PayloadError
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.sse import EventDecoder
from servebench.wire.timeline import End, Timeline

CHAT = ENDPOINTS["openai-chat"]

BOM = b"\xef\xbb\xbf"
LINES = st.sampled_from(
    [
        b"",
        b"",
        b"data: a",
        b"data:b",
        b"data",
        b"data:  two blanks",
        b"data: \xe6\xbc\xa2\xc2\x85",
        b"datafoo: x",
        b"event: error",
        b"event:x",
        b": comment",
        b":",
        b"id: 1",
        b"no colon",
        BOM + b"data: late mark",
        b" data: leading blank",
    ]
)
LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n"])
LINEWISE = st.lists(st.tuples(LINES, LINE_ENDS).map(b"".join)).map(b"".join)
STREAMS = st.builds(
    lambda mark, body, tail: mark + body + tail,
    st.sampled_from([b"", b"", BOM, BOM[:1], BOM[:2], BOM + BOM]),
    st.one_of(LINEWISE, st.text("data: \n\r", max_size=60).map(str.encode)),
    st.sampled_from([b"", b"data: [DONE]", b"data: x\n", b"da", b"\r"]),
)
CUTS = st.lists(st.integers(0, 400), max_size=20)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return the data cut at these places, empty pieces dropped."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:stop] for start, stop in pairwise(places)]


def reference_events(stream: bytes) -> list[tuple[bytes, bytes]]:
    """Read a whole stream as the WHATWG text describes it, line by line, with no thought of speed."""
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(BOM))
    events, name, buffer = [], b"", b""
    for line in lines[:-1]:
        if line == b"":
            if buffer:
                events.append((name, buffer[:-1]))
            name, buffer = b"", b""
        elif b":" in line:
            field, value = line.split(b":", 1)
            value = value[1:] if value[:1] == b" " else value
            buffer += value + b"\n" if field == b"data" else b""
            name = value if field == b"event" else name
        elif line == b"data":
            buffer += b"\n"
        elif line == b"event":
            name = b""
    return events


def decoded(parts: list[bytes]) -> list[tuple[bytes, bytes]]:
    decoder = EventDecoder()
    return [(event.name, event.data) for part in parts for event in decoder.feed(part)]


@given(stream=STREAMS, cuts=CUTS)
def test_any_cut_of_a_stream_gives_the_events_of_the_reference(stream: bytes, cuts: list[int]) -> None:
    assert decoded(pieces(stream, cuts)) == reference_events(stream)


@given(stream=STREAMS)
def test_byte_by_byte_gives_the_events_of_the_reference(stream: bytes) -> None:
    assert decoded([stream[at : at + 1] for at in range(len(stream))]) == reference_events(stream)


@given(units=st.lists(st.one_of(st.binary(max_size=20).map(lambda b: b"data: " + b + b"\n\n"), LINEWISE), max_size=8))
def test_reads_that_end_where_events_end_give_the_events_of_the_reference(units: list[bytes]) -> None:
    assert decoded(units) == reference_events(b"".join(units))


@given(stream=STREAMS, cuts=CUTS)
def test_flush_gives_what_a_blank_line_at_the_end_would_have_completed(stream: bytes, cuts: list[int]) -> None:
    decoder = EventDecoder()
    count = sum(len(decoder.feed(part)) for part in pieces(stream, cuts))
    left = decoder.flush()
    completed = reference_events(stream + b"\n\n")[count:]
    assert ([] if left is None else [(left.name, left.data)]) == completed


def chat_event(index: int, content: str | None, finish: str | None, usage: int | None) -> bytes:
    event: dict[str, Any] = {"model": "m", "choices": [{"index": index, "delta": {}, "finish_reason": finish}]}
    if content is not None:
        event["choices"][0]["delta"]["content"] = content
    if usage is not None:
        event["usage"] = {"prompt_tokens": 3, "completion_tokens": usage}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


EVENTS = st.one_of(
    st.builds(
        chat_event,
        st.integers(0, 2),
        st.one_of(st.none(), st.text(max_size=5)),
        st.sampled_from([None, None, None, "", "stop", "length"]),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    st.sampled_from(
        [
            b": ping\n\n",
            b"data: [DONE]\n\n",
            b"data:[DONE]",
            b'event: error\ndata: {"message":"no"}\n\n',
            b'data: {"error":"full"}\n\n',
            b'data: {"choices"\n\n',
            b"data:\r\n\r\n",
            b"data: NaN\n\n",
        ]
    ),
)
HEADS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n",
    ]
)


def framed(head: bytes, events: list[bytes], framing: str, tail: bytes) -> bytes:
    """Return a response around events; chunked puts each into a chunk of its own."""
    body = b"".join(events)
    if framing == "chunked":
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events if event)
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n" + tail
    if framing == "length":
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body + tail
    return head + b"\r\n" + body


RESPONSES = st.builds(
    framed,
    HEADS,
    st.lists(EVENTS, max_size=8),
    st.sampled_from(["chunked", "length", "close"]),
    st.sampled_from([b"", b"", b"junk", b"\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]),
)
DAMAGED = st.builds(
    lambda response, at, junk, keep: (
        response[: at % (len(response) + 1)] + junk + response[at % (len(response) + 1) :]
    )[: len(response) - keep],
    RESPONSES,
    st.integers(0, 2000),
    st.sampled_from([b"", b"\x00", b"\r\n", b"zz", b"\xff\xfe", b"}"]),
    st.integers(0, 40),
)
ENDS = st.sampled_from(list(End))


def answer(parts: list[bytes], end: End) -> tuple[Answer, bool, bool]:
    timeline = Timeline(CHAT, keep_text=True)
    for number, part in enumerate(parts):
        timeline.feed(part, 1000 + number, 5)
    return timeline.finish(end, 10**6), timeline.message_done, timeline.keep_alive


def timeless(parts: list[bytes], end: End) -> dict[str, Any]:
    """Return all of an answer that does not depend on when its bytes were read."""
    said, message_done, keep_alive = answer(parts, end)
    fields = asdict(said)
    for name in ("headers_ns", "end_ns"):
        fields[name] = fields[name] is None
    if fields["chunks"] is not None:
        for name in ("ns", "read"):
            fields["chunks"][name] = len(fields["chunks"][name])
    return fields | {"message_done": message_done, "keep_alive": keep_alive}


@given(response=st.one_of(RESPONSES, DAMAGED), cuts=CUTS, end=ENDS)
def test_any_cut_of_a_response_gives_the_same_answer(response: bytes, cuts: list[int], end: End) -> None:
    assert timeless(pieces(response, cuts), end) == timeless([response], end)


@given(response=st.one_of(RESPONSES, DAMAGED), end=ENDS)
def test_byte_by_byte_gives_the_same_answer(response: bytes, end: End) -> None:
    single = [response[at : at + 1] for at in range(len(response))]
    assert timeless(single, end) == timeless([response] if response else [], end)


@given(parts=st.lists(st.binary(max_size=60), max_size=5), end=ENDS)
def test_no_bytes_make_a_timeline_raise(parts: list[bytes], end: End) -> None:
    said, _, _ = answer(parts, end)
    assert said.response_bytes == sum(map(len, parts))


@given(head=HEADS, coding=st.sampled_from([b"gzip", b"deflate", b"br"]), body=st.binary(max_size=80), end=ENDS)
def test_no_body_makes_a_timeline_raise(head: bytes, coding: bytes, body: bytes, end: End) -> None:
    said, _, _ = answer([head + b"Content-Encoding: " + coding + b"\r\n\r\n", body], end)
    assert said.http_status in {200, 503}


@given(
    events=st.lists(st.text(st.characters(codec="ascii"), min_size=1, max_size=5), min_size=1, max_size=8), cuts=CUTS
)
def test_an_event_has_the_stamp_and_number_of_the_read_that_completes_it(events: list[str], cuts: list[int]) -> None:
    blocks = [chat_event(0, text, None, None) for text in events]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % sum(map(len, blocks))
    response = head + b"".join(blocks)
    complete_at = [len(head) + sum(map(len, blocks[: number + 1])) for number in range(len(blocks))]
    timeline, fed, ends = Timeline(CHAT), 0, []
    for part in pieces(response, cuts):
        fed += len(part)
        ends.append(fed)
        timeline.feed(part, 10 * fed, fed)
    chunks = timeline.finish(End.COMPLETE, 0).chunks
    assert chunks is not None
    reads = [next(number for number, end in enumerate(ends) if end >= place) for place in complete_at]
    assert list(chunks.read) == reads
    assert list(chunks.ns) == [10 * ends[read] for read in reads]
    assert list(chunks.delay_ns) == [ends[read] for read in reads]
    assert timeline.first_token_ns == chunks.ns[0]


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.sampled_from(["stop", "\ud83d", ""])
)
NAMES = st.sampled_from(
    [
        "choices", "delta", "message", "content", "text", "role", "index", "finish_reason", "usage", "error", "model",
        "tool_calls", "function", "name", "arguments", "prompt_tokens", "completion_tokens", "object", "code",
        "prompt_tokens_details", "cached_tokens", "reasoning", "reasoning_content", "refusal", "function_call",
    ]
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=5)),
    max_leaves=12,
)
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.one_of(
            st.lists(
                st.one_of(
                    TREES,
                    st.fixed_dictionaries(
                        {},
                        optional={
                            "index": st.one_of(st.none(), st.integers(-3, 300)),
                            "delta": TREES,
                            "text": TREES,
                            "finish_reason": st.one_of(st.none(), st.text(max_size=4)),
                        },
                    ),
                ),
                max_size=3,
            ),
            SCALARS,
        ),
        "usage": TREES,
        "error": TREES,
        "model": TREES,
    },
)


def read(decode: Callable[[bytes], Delta], payload: bytes) -> Delta | None:
    """Return what a payload says, None where the dialect calls it malformed in the one way it may."""
    try:
        return decode(payload)
    except PayloadError:
        return None


@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=ENDPOINTS.keys())
@given(tree=st.one_of(CHOICES, TREES))
def test_any_json_is_read_or_called_malformed(endpoint: Endpoint, tree: object) -> None:
    payload = json.dumps(tree).encode()
    for decode in (endpoint.decode_event, endpoint.decode_body):
        delta = read(decode, payload)
        if delta is not None:
            assert 0 <= delta.choice <= 127
            assert delta.usage is None or all(count is None or count >= 0 for count in delta.usage)


@given(tree=CHOICES, cuts=CUTS)
def test_any_json_event_makes_an_answer_that_can_be_written(tree: object, cuts: list[int]) -> None:
    body = b"data: " + json.dumps(tree).encode() + b"\n\n"
    said, _, _ = answer(pieces(framed(b"HTTP/1.1 200 OK\r\n", [body], "length", b""), cuts), End.COMPLETE)
    for word in (said.error_message, said.finish_reason, said.model):
        assert word is None or 0 < len(word.encode("utf-8")) <= 500
    assert said.text is not None
    assert said.text.encode("utf-8").decode() == said.text
