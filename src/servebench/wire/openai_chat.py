"""Know the chat-completions dialect: `choices[].delta` in events, `choices[].message` in whole answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from servebench.core.records import Message
from servebench.wire.endpoint import Endpoint, ParamValue
from servebench.wire.lenient import join_parts
from servebench.wire.openai import (
    CONTENT,
    FINISH,
    OTHER,
    REASONING,
    REFUSAL,
    ROLE,
    TOOL,
    UsageFields,
    body_decoder,
    event_decoder,
    listed,
    write_body,
)


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Said(msgspec.Struct, gc=False):
    content: str | None = None
    role: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int | None = None
    finish_reason: str | None = None
    delta: _Said | None = None
    message: _Said | None = None


class _Chat(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: UsageFields | None = None
    error: Any = None
    model: str | None = None


def body(
    *,
    model: str | None,
    messages: Sequence[Message],
    max_tokens: int | None,
    stream: bool,
    params: Mapping[str, ParamValue],
) -> bytes:
    """Return the request body; None leaves a field out, `params` extend and override."""
    fields = {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "max_tokens": max_tokens,
    }
    return write_body(fields, params, stream=stream)


def _classify(choice: _Choice) -> tuple[int, str | None]:
    said = choice.delta or choice.message
    if said is None:
        return (FINISH if choice.finish_reason else OTHER), None
    if said.content:
        return CONTENT, said.content
    return _classify_rest(choice, said), None


def _classify_rest(choice: _Choice, said: _Said) -> int:
    if said.reasoning_content or said.reasoning:
        return REASONING
    if _calls_a_tool(said):
        return TOOL
    if said.refusal:
        return REFUSAL
    if choice.finish_reason:
        return FINISH
    return ROLE if said.role else OTHER


def _calls_a_tool(said: _Said) -> bool:
    functions = [call.function for call in said.tool_calls or ()] + [said.function_call]
    return any(function is not None and (function.name or function.arguments) for function in functions)


def _repair(value: dict[str, Any]) -> _Chat:
    for choice in listed(value.get("choices")):
        for key in ("delta", "message"):
            said = choice.get(key) if isinstance(choice, dict) else None
            if isinstance(said, dict):
                for part in ("content", "reasoning_content", "reasoning"):
                    said[part] = join_parts(said.get(part))
    return msgspec.convert(value, _Chat)


decode_event = event_decoder(msgspec.json.Decoder(_Chat).decode, _repair, _classify)

OPENAI_CHAT = Endpoint(
    name="openai-chat",
    path="/v1/chat/completions",
    body=body,
    decode_event=decode_event,
    decode_body=body_decoder(decode_event),
)
