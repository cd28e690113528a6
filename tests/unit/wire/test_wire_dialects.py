"""What single events mean in the two OpenAI dialects."""

import json
from typing import Any

import pytest

from servebench.core.outcomes import CHUNK_KINDS
from servebench.wire.endpoint import Delta, Endpoint, PayloadError, Usage
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.lenient import sound

CHAT, TEXT = ENDPOINTS["openai-chat"], ENDPOINTS["openai-completions"]


def chat(said: Any, finish: str | None = None, **more: Any) -> Delta:  # noqa: ANN401 - any JSON
    event = {"choices": [{"index": 0, "delta": said, "finish_reason": finish}], **more}
    return CHAT.decode_event(json.dumps(event).encode())


def kind_of(delta: Delta) -> str:
    return CHUNK_KINDS[delta.kind]


KINDS: dict[str, tuple[Any, str | None, str]] = {
    "content": ({"content": "a"}, None, "content"),
    "content and finish": ({"content": "a"}, "stop", "content"),
    "blank is content": ({"content": " "}, None, "content"),
    "content before reasoning": ({"content": "a", "reasoning": "b"}, None, "content"),
    "reasoning_content": ({"reasoning_content": "a", "content": None}, None, "reasoning"),
    "reasoning": ({"reasoning": "a", "content": ""}, None, "reasoning"),
    "tool name": ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, None, "tool"),
    "tool arguments": ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, None, "tool"),
    "second of two tools": ({"tool_calls": [{"function": {}}, {"function": {"arguments": "1"}}]}, None, "tool"),
    "old function call": ({"function_call": {"name": "f"}}, None, "tool"),
    "tool without text": ({"tool_calls": [{"index": 0, "id": "x", "function": None}]}, None, "other"),
    "empty tool list": ({"tool_calls": []}, None, "other"),
    "refusal": ({"refusal": "no"}, None, "refusal"),
    "role": ({"role": "assistant", "content": ""}, None, "role"),
    "role and null": ({"role": "assistant", "content": None}, None, "role"),
    "role and content": ({"role": "assistant", "content": "a"}, None, "content"),
    "finish": ({}, "length", "finish"),
    "finish and role": ({"role": "assistant"}, "length", "finish"),
    "finish and null": (None, "stop", "finish"),
    "empty finish reason": ({}, "", "other"),
    "empty": ({}, None, "other"),
    "null": (None, None, "other"),
    "parts": ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, None, "content"),
    "parts without text": ({"content": [{"type": "image_url"}]}, None, "other"),
}


@pytest.mark.parametrize(("said", "finish", "kind"), KINDS.values(), ids=KINDS.keys())
def test_an_event_is_of_the_kind_of_what_it_carries(said: object, finish: str | None, kind: str) -> None:
    delta = chat(said, finish)
    assert kind_of(delta) == kind
    assert (delta.finish, delta.ended) == ((finish, 1) if finish else (None, 0))


def test_the_text_of_parts_is_joined() -> None:
    assert chat({"content": [{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}]}).text == "abc"


def test_an_event_of_another_choice_has_no_text_and_no_finish_reason() -> None:
    delta = CHAT.decode_event(b'{"choices":[{"index":2,"delta":{"content":"x"},"finish_reason":"stop"}]}')
    assert (kind_of(delta), delta.choice, delta.text, delta.finish) == ("content", 2, None, None)
    assert (delta.seen, delta.ended) == (0b100, 0b100)


def test_several_choices_in_one_event_count_under_the_first_that_carries_text() -> None:
    said = [
        {"index": 0, "delta": {}, "finish_reason": "stop"},
        {"index": 1, "delta": {"content": "b"}},
        {"index": 2, "delta": {"content": "c"}},
    ]
    delta = CHAT.decode_event(json.dumps({"choices": said}).encode())
    assert (kind_of(delta), delta.choice, delta.text, delta.finish) == ("content", 1, None, "stop")
    assert (delta.seen, delta.ended) == (0b111, 0b001)


USAGES: dict[str, tuple[Any, Usage | None]] = {
    "whole": (
        {
            "prompt_tokens": 3,
            "completion_tokens": 7,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": None},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
        Usage(3, 7, 2, 5),
    ),
    "no details": ({"prompt_tokens": 3, "completion_tokens": 0}, Usage(3, 0, None, None)),
    "null details": (
        {"completion_tokens": 1, "prompt_tokens_details": None, "completion_tokens_details": None},
        Usage(None, 1, None, None),
    ),
    "empty": ({}, None),
    "null": (None, None),
    "negative": ({"completion_tokens": -1}, None),
    "beyond int32": ({"completion_tokens": 2**31}, None),
}


@pytest.mark.parametrize(("usage", "read"), USAGES.values(), ids=USAGES.keys())
def test_usage_is_read_where_it_counts_answer_tokens(usage: object, read: Usage | None) -> None:
    for choices in ([], None, [{"index": 0, "delta": {}}]):
        delta = CHAT.decode_event(json.dumps({"choices": choices, "usage": usage}).encode())
        assert delta.usage == read
        assert kind_of(delta) == ("other" if read is None else "usage")


ERRORS: dict[str, tuple[bytes, str]] = {
    "object": (b'{"error":{"message":"full","code":503}}', "full"),
    "string": (b'{"error":"full","error_type":"overloaded"}', "full"),
    "nested": (b'{"type":"error","error":{"error":{"message":"full"}}}', "full"),
    "without message": (b'{"error":{"code":503}}', '{"code": 503}'),
    "beside choices": (b'{"choices":[{"index":0,"delta":{"content":"x"}}],"error":{"message":"full"}}', "full"),
    "old vLLM": (b'{"object":"error","message":"full","code":40001}', "full"),
    "bare code and message": (b'{"message":"full","type":"Busy","code":503}', "full"),
    "with NaN": (b'{"error":{"message":"full","at":NaN}}', "full"),
}


@pytest.mark.parametrize("endpoint", [CHAT, TEXT], ids=["chat", "completions"])
@pytest.mark.parametrize(("payload", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_read_in_every_shape_servers_give_it(endpoint: Endpoint, payload: bytes, message: str) -> None:
    delta = endpoint.decode_event(payload)
    assert (kind_of(delta), delta.error) == ("error", message)


@pytest.mark.parametrize("absent", [b"null", b"{}", b'""', b"false"])
def test_an_error_field_that_says_nothing_is_no_error(absent: bytes) -> None:
    delta = CHAT.decode_event(b'{"error":%s,"choices":[{"index":0,"delta":{"content":"x"}}]}' % absent)
    assert (kind_of(delta), delta.error) == ("content", None)


MALFORMED = {
    "cut": b'{"choices":[{"index":0',
    "list": b"[1]",
    "text": b"hello",
    "number": b"1",
    "null": b"null",
    "choices is a text": b'{"choices":"x"}',
    "choice is a number": b'{"choices":[1]}',
    "choices is an object": b'{"choices":{"delta":{"content":"x"},"text":"x"}}',
    "no UTF-8": b'{"choices":[{"delta":{"content":"\xff"},"text":"\xff"}]}',
    "deep": b'{"choices":' + b"[" * 100_000,
}


@pytest.mark.parametrize("endpoint", [CHAT, TEXT], ids=["chat", "completions"])
@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_event_of_a_dialect_is_called_so(endpoint: Endpoint, payload: bytes) -> None:
    with pytest.raises(PayloadError):
        endpoint.decode_event(payload)


def test_errors_nested_without_end_are_read() -> None:
    deep = b'{"error":' * 900 + b'"x"' + b"}" * 900
    assert CHAT.decode_event(deep).error


@pytest.mark.parametrize("payload", [b"", b"  ", b": keep-alive", b" : OPENROUTER PROCESSING"])
def test_empty_data_and_wrapped_comments_carry_nothing(payload: bytes) -> None:
    assert CHAT.decode_event(payload) == Delta(CHUNK_KINDS.index("other"))


@pytest.mark.parametrize("payload", [b"[DONE]", b" [DONE] ", b'"[DONE]"', b"[done]"])
def test_done_is_the_terminal_signal(payload: bytes) -> None:
    delta = CHAT.decode_event(payload)
    assert (kind_of(delta), delta.done) == ("done", True)


def test_numbers_that_are_none_do_not_lose_the_text_beside_them() -> None:
    numbers = b'"logprobs":{"content":[{"logprob":-Infinity},{"logprob":NaN}]}'
    assert CHAT.decode_event(b'{"choices":[{"delta":{"content":"No"},%s}]}' % numbers).text == "No"


def test_a_pair_of_surrogates_is_its_character_and_half_of_one_stays_for_the_other_half() -> None:
    assert CHAT.decode_event(b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}').text == "a\ud83d"
    assert sound("a\ud83d" + "\udeb2b\ud83d") == "a\U0001f6b2b\ufffd"
    assert CHAT.decode_event(b'{"choices":[{"delta":{"content":"\\ud83d\\udeb2"}}]}').text == "🚲"


def test_completions_carry_text() -> None:
    delta = TEXT.decode_event(b'{"choices":[{"index":0,"text":"Once","finish_reason":null}]}')
    assert (kind_of(delta), delta.text) == ("content", "Once")
    last = TEXT.decode_event(b'{"choices":[{"index":0,"text":"","finish_reason":"length"}]}')
    assert (kind_of(last), last.text, last.finish) == ("finish", None, "length")


def test_a_whole_answer_is_read_from_its_message() -> None:
    delta = CHAT.decode_body(
        b'{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"All"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":1,"completion_tokens":2}}'
    )
    assert (delta.text, delta.finish, delta.model, delta.usage) == ("All", "stop", "m", Usage(1, 2, None, None))


@pytest.mark.parametrize("payload", [b"{}", b'{"choices":[]}', b'{"usage":{"completion_tokens":1}}'])
def test_a_whole_answer_without_choices_is_none(payload: bytes) -> None:
    with pytest.raises(PayloadError):
        CHAT.decode_body(payload)
