"""Know the chat-completions dialect: `choices[].delta` in events, `choices[].message` in whole answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from servebench.core.records import Message
from servebench.wire.dialect import CONTENT, FINISH, OTHER, REASONING, REFUSAL, ROLE, TOOL, listed
from servebench.wire.endpoint import Called, Endpoint, ParamValue
from servebench.wire.lenient import join_parts
from servebench.wire.openai import (
    LogProbs,
    Said,
    UsageFields,
    Vendor,
    body_decoder,
    event_decoder,
    joined,
    pin,
    write_body,
)
from servebench.wire.openai_repair import repair_envelope, repair_tools
from servebench.wire.plain import NothingListed, SomeText


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Custom(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    function: _Function | None = None
    custom: _Custom | None = None


class _Audio(msgspec.Struct, gc=False):
    transcript: str | None = None
    data: str | None = None


class _Spoken(msgspec.Struct, gc=False):
    content: str | None = None
    role: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    audio: _Audio | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int | None = None
    finish_reason: str | None = None
    delta: _Spoken | None = None
    message: _Spoken | None = None
    logprobs: LogProbs | None = None
    usage: UsageFields | None = None
    error: Any = None


class _Chat(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: UsageFields | None = None
    error: Any = None
    model: str | None = None
    x_groq: Vendor | None = None


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


def _classify(choice: _Choice) -> Said:
    said = choice.delta or choice.message
    if said is None:
        return (FINISH if choice.finish_reason else OTHER), None, None
    if not said.content:
        return _classify_rest(choice, said)
    if said.reasoning_content or said.reasoning or said.tool_calls:
        return CONTENT, said.content, joined(said.reasoning_content or said.reasoning, _called(said))
    return CONTENT, said.content, None


def _classify_rest(choice: _Choice, said: _Spoken) -> Said:
    reasoning, called = said.reasoning_content or said.reasoning, _called(said)
    if reasoning:
        return REASONING, None, joined(reasoning, called)
    if called:
        return TOOL, None, called
    if said.refusal:
        return REFUSAL, None, said.refusal
    if said.audio is not None and (said.audio.transcript or said.audio.data):
        # Sound is the answer, but no text of it; what is said in it is text that was generated.
        return CONTENT, None, said.audio.transcript or None
    if choice.finish_reason:
        return FINISH, None, None
    return (ROLE if said.role else OTHER), None, None


def _called(said: _Spoken) -> str | None:
    """Return names and arguments of the tools that are called, None where nothing of them is there."""
    if not said.tool_calls and said.function_call is None:
        return None
    functions = [*map(_function, said.tool_calls or ()), said.function_call]
    return joined(*(text for function in functions if function for text in (function.name, function.arguments)))


def _calls(choice: _Choice) -> tuple[Called, ...]:
    """Return the parts of tool calls; those of a whole message have no index and stand one after the other."""
    said = choice.delta or choice.message
    if said is None:
        return ()
    parts = ((call.index, _function(call)) for call in said.tool_calls or ())
    found = [Called(index, part.name, part.arguments) for index, part in parts if part is not None]
    if said.function_call is not None:
        found.append(Called(None, said.function_call.name, said.function_call.arguments))
    return tuple(found)


def _function(call: _ToolCall) -> _Function | None:
    """Return the function that a call names; a custom tool has free text for arguments."""
    custom = call.custom
    return call.function if custom is None else _Function(name=custom.name, arguments=custom.input)


def _repair(value: dict[str, Any]) -> None:
    repair_envelope(value)
    for choice in listed(value.get("choices")):
        for key in ("delta", "message"):
            said = choice.get(key) if isinstance(choice, dict) else None
            if isinstance(said, dict):
                for part in ("content", "reasoning_content", "reasoning"):
                    said[part] = join_parts(said.get(part))
                repair_tools(said)


class _PlainDelta(msgspec.Struct, gc=False):
    content: SomeText
    reasoning_content: None = None
    reasoning: None = None
    refusal: None = None
    tool_calls: NothingListed = None
    function_call: None = None
    audio: None = None


class _PlainChoice(msgspec.Struct, gc=False):
    delta: _PlainDelta
    index: Literal[0] = 0
    finish_reason: None = None
    logprobs: None = None
    usage: None = None
    error: None = None


class _PlainChat(msgspec.Struct, gc=False):
    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None
    x_groq: None = None


_plain = msgspec.json.Decoder(_PlainChat).decode


def _decode_plain(payload: bytes) -> str:
    return _plain(payload).choices[0].delta.content


decode_event = event_decoder(_Chat, _repair, _classify, _calls)

OPENAI_CHAT = Endpoint(
    name="openai-chat",
    path="/v1/chat/completions",
    body=body,
    decode_event=decode_event,
    decode_body=body_decoder(decode_event),
    decode_plain=_decode_plain,
    pin=pin,
)
