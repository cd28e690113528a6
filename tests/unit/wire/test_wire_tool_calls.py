"""Tools that an answer calls are told apart, with name and arguments, streamed or whole, in each dialect that has them.

The bytes follow the specifications: OpenAI's chat completions and responses, Anthropic's messages, Ollama's chat.
"""

import json
from typing import Any

import pytest

from servebench.core.records import Answer, ToolCall
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.timeline import End, Timeline

ROME, TIME = ToolCall("weather", '{"city": "Rome"}'), ToolCall("time", "{}")


def answered(endpoint: str, body: bytes, kind: str) -> Answer:
    timeline = Timeline(ENDPOINTS[endpoint], stream=kind != "application/json", keep_text=True)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    timeline.feed(head.encode() + body, 1, -1)
    return timeline.finish(End.COMPLETE, 2)


def streamed(endpoint: str, events: list[dict[str, Any]]) -> Answer:
    return answered(
        endpoint, b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events), "text/event-stream"
    )


def whole(endpoint: str, body: dict[str, Any]) -> Answer:
    return answered(endpoint, json.dumps(body).encode(), "application/json")


def chat_call(index: int, name: str | None, arguments: str) -> dict[str, Any]:
    call = {"index": index, "function": {"name": name, "arguments": arguments}}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


CHAT_END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}


def test_chat_streams_calls_piece_by_piece_and_interleaved() -> None:
    events = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Let me see."}}]},
        chat_call(0, "weather", ""),
        chat_call(0, None, '{"city":'),
        chat_call(1, "time", ""),
        chat_call(0, None, ' "Rome"}'),
        chat_call(1, None, "{}"),
        CHAT_END,
    ]
    found = streamed("openai-chat", events)
    assert (found.text, found.tools, found.finish_reason) == ("Let me see.", (ROME, TIME), "tool_calls")


def test_chat_streams_a_name_with_every_piece_of_one_call() -> None:
    events = [chat_call(0, "weather", '{"city":'), chat_call(0, "weather", ' "Rome"}'), CHAT_END]
    assert streamed("openai-chat", events).tools == (ROME,)


def test_chat_answers_whole_with_text_reasoning_and_calls() -> None:
    calls = [{"id": "1", "type": "function", "function": tool._asdict()} for tool in (ROME, TIME)]
    message = {"role": "assistant", "content": "Well.", "reasoning_content": "Hm.", "tool_calls": calls}
    found = whole("openai-chat", {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    assert (found.text, found.tools) == ("Well.", (ROME, TIME))


def test_tools_of_other_choices_are_not_the_answers() -> None:
    other = {"choices": [{"index": 1, "delta": {"tool_calls": [{"index": 0, "function": ROME._asdict()}]}}]}
    end = {"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}
    assert streamed("openai-chat", [other, chat_call(0, "time", "{}"), CHAT_END, end]).tools == (TIME,)


def test_anthropic_streams_and_answers_whole_with_tool_use_blocks() -> None:
    def block(index: int, name: str, *pieces: str) -> list[dict[str, Any]]:
        begin = {
            "type": "content_block_start",
            "index": index,
            "content_block": {"type": "tool_use", "name": name, "input": {}},
        }
        deltas = [
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in pieces
        ]
        return [begin, *deltas, {"type": "content_block_stop", "index": index}]

    end: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {}},
        *block(0, "weather", '{"city":', ' "Rome"}'),
        *block(1, "time", "{}"),
        *end,
    ]
    assert streamed("anthropic-messages", events).tools == (ROME, TIME)
    content = [{"type": "tool_use", "name": "weather", "input": {"city": "Rome"}}]
    found = whole("anthropic-messages", {"type": "message", "content": content, "stop_reason": "tool_use"})
    assert [(tool.name, json.loads(tool.arguments)) for tool in found.tools] == [("weather", {"city": "Rome"})]


def test_responses_stream_and_answer_whole_with_function_calls() -> None:
    def item(name: str, arguments: str) -> dict[str, Any]:
        return {"type": "function_call", "name": name, "arguments": arguments}

    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "item": item("weather", "")},
        {"type": "response.function_call_arguments.delta", "delta": '{"city":'},
        {"type": "response.function_call_arguments.delta", "delta": ' "Rome"}'},
        {"type": "response.output_item.added", "item": item("time", "")},
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    assert streamed("openai-responses", events).tools == (ROME, TIME)
    found = whole("openai-responses", {"status": "completed", "output": [item(*ROME), item(*TIME)]})
    assert found.tools == (ROME, TIME)


def test_ollama_streams_lines_with_whole_calls() -> None:
    calls = [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]
    lines = [{"message": {"role": "assistant", "content": "", "tool_calls": calls}, "done": False}, {"done": True}]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    found = answered("ollama-chat", body, "application/x-ndjson")
    assert [(tool.name, json.loads(tool.arguments)) for tool in found.tools] == [("weather", {"city": "Rome"})]


@pytest.mark.parametrize("arguments", ["", "{", "no json"])
def test_arguments_are_kept_as_they_came(arguments: str) -> None:
    assert streamed("openai-chat", [chat_call(0, "weather", arguments), CHAT_END]).tools == (
        ToolCall("weather", arguments),
    )


def test_arguments_without_a_call_before_them_are_no_call() -> None:
    assert streamed("openai-chat", [chat_call(0, None, "{}"), CHAT_END]).tools == ()
