"""Know Ollama's chat dialect: a line of JSON per event, the last one with `done` and the counts.

Followed: docs/api.md of Ollama, "Generate a chat completion".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from servebench.core.records import Message
from servebench.wire.dialect import (
    CONTENT,
    FINISH,
    NOTHING,
    OTHER,
    REASONING,
    ROLE,
    TOOL,
    as_json,
    compact,
    count,
    failed,
    no_answer,
    typed_decoder,
)
from servebench.wire.endpoint import Called, Delta, Ending, Endpoint, ParamValue, Usage


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Spoken(msgspec.Struct, gc=False):
    role: str | None = None
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Line(msgspec.Struct, gc=False):
    model: str | None = None
    message: _Spoken | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_REQUEST_FIELDS = frozenset({"format", "keep_alive", "think", "options", "tools"})
"""Params that stand beside the messages; all others are options of the model."""


def body(
    *,
    model: str | None,
    messages: Sequence[Message],
    max_tokens: int | None,
    stream: bool,
    params: Mapping[str, ParamValue],
) -> bytes:
    """Return the request body; params that the request does not know, such as temperature, go into `options`."""
    beside = {key: value for key, value in params.items() if key in _REQUEST_FIELDS}
    options = compact(
        {"num_predict": max_tokens}, {key: value for key, value in params.items() if key not in _REQUEST_FIELDS}
    )
    fields = {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "stream": stream,
        "options": options or None,
    }
    return msgspec.json.encode(compact(fields, beside))


def _read(line: _Line) -> Delta:
    """Return what a line, or a whole answer, says; `seen` is 0 for an object that is neither."""
    if line.error:
        return failed(line.error)
    said = line.message
    if said is None and not line.done:
        return NOTHING
    kind, text, aside = (OTHER, None, None) if said is None else _said(said)
    if line.done:
        kind = FINISH if kind in {OTHER, ROLE} else kind
        usage = Usage(count(line.prompt_eval_count), count(line.eval_count), None, None)
        return Delta(
            kind,
            text=text,
            finish=line.done_reason or None,
            seen=1,
            ended=1,
            usage=usage,
            model=line.model,
            done=True,
            aside=aside,
            calls=_calls(said),
        )
    return Delta(kind, text=text, seen=1, model=line.model, aside=aside, calls=_calls(said))


def _calls(said: _Spoken | None) -> tuple[Called, ...]:
    """Return the tools that a line calls, each whole."""
    if said is None or not said.tool_calls:
        return ()
    functions = [call.function for call in said.tool_calls if call.function is not None]
    return tuple(Called(None, function.name, as_json(function.arguments)) for function in functions)


def _said(said: _Spoken) -> tuple[int, str | None, str | None]:
    """Return kind, answer text and what else was generated."""
    calls = said.tool_calls
    called = "".join(_called(call.function) for call in calls if call.function is not None) if calls else ""
    aside = (said.thinking or "") + called or None
    if said.content:
        return CONTENT, said.content, aside
    if said.thinking:
        return REASONING, None, aside
    return (TOOL if called else ROLE if said.role else OTHER), None, aside


def _called(function: _Function) -> str:
    return (function.name or "") + as_json(function.arguments)


decode_event = typed_decoder(_Line, _read)


def decode_body(payload: bytes) -> Delta:
    """Return what a whole answer says; raises PayloadError for an object that is not done."""
    delta = decode_event(payload)
    if delta.error is None and not delta.ended:
        raise no_answer(payload, "an answer that is done")
    return delta


OLLAMA_CHAT = Endpoint(
    name="ollama-chat",
    path="/api/chat",
    body=body,
    decode_event=decode_event,
    decode_body=decode_body,
    ending=Ending.SIGNAL,
    end_mark=b'"done":true',
    lines=True,
)
