"""Hold the short cut for common reads to what the parsers make of the same bytes."""

import json
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.core.records import Answer
from servebench.wire.endpoint import PayloadError
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.plain import REFUSALS
from servebench.wire.timeline import End, Timeline

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FIELDS: dict[str, list[Any]] = {
    "index": [0, None, 1, 200],
    "finish_reason": [None, "", "stop"],
    "logprobs": [None, {"content": [{}, {}]}],
}
SPOKEN: dict[str, list[Any]] = {
    "content": ["a", "ü\n", "", None, [{"text": "b"}]],
    "role": [None, "assistant"],
    "reasoning_content": [None, "", "thought"],
    "refusal": [None, "no"],
    "tool_calls": [None, [], [{"function": {"name": "f", "arguments": "{}"}}]],
}
AROUND: dict[str, list[Any]] = {
    "model": ["m", None, ""],
    "usage": [None, {"completion_tokens": 3}],
    "error": [None, "", {"message": "broke"}],
}


def mostly_first(fields: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects in which most fields are missing or have the first value."""
    values = {name: st.one_of(st.just(found[0]), st.sampled_from(found)) for name, found in fields.items()}
    return st.fixed_dictionaries({}, optional=values)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Return the JSON of one event of the chat or the text dialect, odd ones among them."""
    spoken = draw(mostly_first(SPOKEN))
    choice = {**draw(mostly_first(FIELDS)), "delta": spoken, "text": spoken.get("content", "c")}
    choices = [choice] * draw(st.sampled_from([1, 1, 1, 1, 0, 2]))
    text = json.dumps({**draw(mostly_first(AROUND)), "choices": choices}, ensure_ascii=draw(st.booleans()))
    return text.encode()


PLAIN = b'{"model":"m","choices":[{"index":0,"text":"t","delta":{"content":"t"},"finish_reason":null}]}'
EVENTS = st.one_of(
    st.just(b"data: " + PLAIN + b"\n\n"),
    st.just(b"data: " + PLAIN + b"\n\n"),
    payloads().map(lambda payload: b"data: " + payload + b"\n\n"),
    st.sampled_from(
        [
            b"data: [DONE]\n\n",
            b"data:" + PLAIN + b"\n\n",
            b"data: " + PLAIN + b"\r\n\r\n",
            b"data: {\ndata: }\n\n",
            b"data: {}{}\n\n",
            b'data: {"choices":[\n\n',
            b": ping\n\n",
            b"event: error\ndata: " + PLAIN + b"\n\n",
            b"data: " + PLAIN + b"\n",
            b"\n\n",
        ]
    ),
)


def chunk(data: bytes, form: bytes) -> bytes:
    return form % len(data) + b"\r\n" + data + b"\r\n"


@st.composite
def responses(draw: st.DrawFn) -> list[bytes]:
    """Return the reads of a response: mostly a chunk each, which mostly holds one event."""
    reads, waiting = [], b""
    forms = st.sampled_from([b"%x", b"%x", b"%X", b"%x;ext=1", b"0%x"])
    for event in draw(st.lists(EVENTS, max_size=12)):
        whole = chunk(waiting + event, draw(forms))
        waiting, cut = b"", draw(st.sampled_from(["no", "no", "no", "join", "read", "chunk"]))
        if cut == "chunk":
            half = len(event) // 2
            whole = chunk(event[:half], b"%x") + chunk(event[half:], b"%x") if half else whole
        if cut == "read":
            place = draw(st.integers(1, len(whole) - 1))
            reads += [whole[:place], whole[place:]]
        elif cut == "join" and reads:
            reads[-1] += whole
        else:
            reads.append(whole)
    if draw(st.booleans()):
        reads.append(b"0\r\n\r\n")
    return [HEAD, *reads]


def answered(endpoint: str, reads: list[bytes], *, short_cut: bool) -> tuple[Answer, int, int | None]:
    """Return what a response says, its reads taken in one go where the short cut may be taken."""
    timeline = Timeline(ENDPOINTS[endpoint], keep_text=True)
    waiting = deque((read, 100 + 10 * number, number % 3 - 1) for number, read in enumerate(reads))
    while waiting:
        if not (short_cut and timeline.feed_plain(waiting)):
            timeline.feed(*waiting.popleft())
    return timeline.finish(End.EOF, 10_000), timeline.read_count, timeline.first_token_ns


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions"])
@given(reads=responses())
def test_the_short_cut_says_of_every_stream_what_the_parsers_say(endpoint: str, reads: list[bytes]) -> None:
    assert answered(endpoint, reads, short_cut=True) == answered(endpoint, reads, short_cut=False)


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions"])
@given(payload=st.one_of(payloads(), st.binary(max_size=30), st.just(PLAIN)))
def test_what_is_taken_for_plain_says_one_text_of_choice_0_and_no_more(endpoint: str, payload: bytes) -> None:
    decode_plain, decode_event = ENDPOINTS[endpoint].decode_plain, ENDPOINTS[endpoint].decode_event
    assert decode_plain is not None
    try:
        text = decode_plain(payload)
    except REFUSALS:
        return
    try:
        delta = decode_event(payload)
    except PayloadError as error:
        raise AssertionError(payload) from error
    assert text
    assert (delta.kind, delta.choice, delta.text, delta.seen, delta.ended) == (0, 0, text, 1, 0)
    assert [delta.finish, delta.usage, delta.error, delta.aside, delta.tokens, delta.done] == [*[None] * 5, False]
