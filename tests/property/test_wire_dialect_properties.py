"""Hold every endpoint to what must be true of any answer that resembles its own."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.captures import Capture, load_capture

from servebench.core.records import Answer
from servebench.wire.endpoint import Delta, PayloadError
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.ndjson import LineDecoder
from servebench.wire.timeline import End, Timeline

GOLDEN = Path(__file__).parents[1] / "golden"

FILES_OF = {
    "openai-chat": "data/*/chat_*.txt",
    "openai-completions": "data/*/completions_*.txt",
    "openai-responses": "dialects/*/responses_*.txt",
    "openai-embeddings": "dialects/*/embeddings*.txt",
    "anthropic-messages": "dialects/*/anthropic_*.txt",
    "tgi-generate": "dialects/handmade/tgi_*.txt",
    "triton-generate": "dialects/*/*generate*.txt",
    "kserve-v2": "dialects/*/*infer*.txt",
    "ollama-chat": "dialects/handmade/ollama_*.txt",
}


def captures(name: str) -> list[Capture]:
    found = [load_capture(path) for path in sorted(GOLDEN.glob(FILES_OF[name]))]
    assert found
    return [capture for capture in found if len(capture.body) < 6000]


def payloads(name: str) -> list[Any]:
    """Return the JSON of every event and whole body in the answers of an endpoint, each once."""
    found: dict[str, None] = {}
    for capture in captures(name):
        for block in re.split(rb"\r?\n\r?\n|\n(?={)", capture.body):
            text = block.partition(b"data:")[2] or block
            if text.lstrip()[:1] in {b"{", b"["} and b"[DONE]" not in text and b"curl:" not in text:
                found[text.decode().strip()] = None
    return [json.loads(text) for text in found]


PAYLOADS = {name: payloads(name) for name in ENDPOINTS}
CAPTURES = {name: captures(name) for name in ENDPOINTS}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["", "\ud83d", "stop", "response.completed", "message_delta", 2**31 - 1, 2**31, -1]),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)


def places(tree: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - any JSON
    """Yield where something stands in a JSON value, as the keys that lead there."""
    yield place
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        yield from places(value, (*place, key))


def changed(tree: Any, place: tuple[str | int, ...], new: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return the value with another one at a place."""
    if not place:
        return new
    copy: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[place[0]] = changed(copy[place[0]], place[1:], new)
    return copy


@st.composite
def mutants(draw: st.DrawFn, name: str) -> Any:  # noqa: ANN401 - any JSON
    """Draw a payload of an endpoint in which up to three things are something else."""
    tree = draw(st.sampled_from(PAYLOADS[name]))
    for _ in range(draw(st.integers(0, 3))):
        tree = changed(tree, draw(st.sampled_from(list(places(tree)))), draw(TREES))
    return tree


def read(decode: Callable[[bytes], Delta], payload: bytes) -> Delta | None:
    """Return what a payload says, None where the dialect calls it malformed in the one way it may."""
    try:
        return decode(payload)
    except PayloadError:
        return None


@pytest.mark.parametrize("name", ENDPOINTS)
@given(data=st.data())
def test_a_payload_that_resembles_a_real_one_is_read_or_called_malformed(name: str, data: st.DataObject) -> None:
    endpoint = ENDPOINTS[name]
    payload = json.dumps(data.draw(mutants(name))).encode()
    for decode in (endpoint.decode_event, endpoint.decode_body):
        delta = read(decode, payload)
        if delta is not None:
            assert 0 <= delta.kind < 10
            assert 0 <= delta.choice <= 127
            assert delta.tokens is None or delta.tokens >= 0
            assert delta.usage is None or all(count is None or 0 <= count < 2**31 for count in delta.usage)
            assert delta.ended & ~delta.seen == 0


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """Draw a real response with a few bytes changed, put in, or taken out, and perhaps no end."""
    data = bytearray(draw(st.sampled_from(CAPTURES[name])).framed())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(
            st.one_of(
                st.binary(max_size=3), st.sampled_from([b"\n", b"\r\n\r\n", b"data: ", b"{", b'"', b"\xff", b"0"])
            )
        )
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 5, 60]))])


def timeless(name: str, parts: list[bytes], end: End, *, stream: bool) -> dict[str, Any]:
    """Return all of an answer that does not depend on when its bytes were read."""
    timeline = Timeline(ENDPOINTS[name], stream=stream, keep_text=True)
    for number, part in enumerate(parts):
        timeline.feed(part, 1000 + number, 5)
    answer: Answer = timeline.finish(end, 10**6)
    fields = asdict(answer)
    for stamp in ("headers_ns", "end_ns"):
        fields[stamp] = fields[stamp] is None
    if answer.chunks is not None:
        columns = fields["chunks"]
        assert {len(column) for column in columns.values()} == {len(answer.chunks)}
        for stamp in ("ns", "read"):
            columns[stamp] = len(columns[stamp])
    json.dumps([fields["text"], fields["asides"], answer.error_message], ensure_ascii=False).encode()
    return fields


@pytest.mark.parametrize("name", ENDPOINTS)
@given(data=st.data())
def test_a_damaged_response_gives_one_answer_however_it_is_cut(name: str, data: st.DataObject) -> None:
    response = data.draw(damaged(name))
    end, stream, step = data.draw(st.sampled_from(list(End))), data.draw(st.booleans()), data.draw(st.integers(1, 300))
    parts = [response[start : start + step] for start in range(0, len(response), step)]
    whole = timeless(name, [response] if response else [], end, stream=stream)
    assert timeless(name, parts, end, stream=stream) == whole
    assert whole["response_bytes"] == len(response)


@given(
    lines=st.lists(st.sampled_from([b"", b" ", b'{"a":1}', b"\xe6\xbc\xa2", b"x\r"]), max_size=8),
    step=st.integers(1, 30),
)
def test_any_cut_of_lines_gives_the_lines_that_are_not_blank(lines: list[bytes], step: int) -> None:
    data = b"\n".join(lines)
    decoder = LineDecoder()
    parts = [data[start : start + step] for start in range(0, len(data), step)]
    found = [event.data for part in parts for event in decoder.feed(part)]
    left = decoder.flush()
    whole = [line for line in lines if line.strip()]
    assert found + ([] if left is None else [left.data]) == whole
