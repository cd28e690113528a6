"""Know the dialect of Anthropic's Messages: a message that starts, content blocks with deltas, a message that stops.

Followed: "Streaming Messages" of the Messages API (docs.anthropic.com), version 2023-06-01.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from servebench.core.records import Message
from servebench.wire.dialect import (
    CONTENT,
    DONE,
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


class _UsageFields(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Block(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    data: str | None = None
    name: str | None = None
    input: Any = None


class _Change(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct, gc=False):
    model: str | None = None
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: _UsageFields | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Change | None = None
    usage: _UsageFields | None = None
    error: Any = None


def body(
    *,
    model: str | None,
    messages: Sequence[Message],
    max_tokens: int | None,
    stream: bool,
    params: Mapping[str, ParamValue],
) -> bytes:
    """Return the request body; system messages become the field of that name, `params` extend and override.

    Anthropic refuses a request without `max_tokens`; without one it is left out all the same, because a limit that
    nobody asked for would change the load.
    """
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    fields = {
        "model": model,
        "system": system or None,
        "messages": [
            {"role": message.role, "content": message.content} for message in messages if message.role != "system"
        ],
        "max_tokens": max_tokens,
        "stream": stream,
    }
    return msgspec.json.encode(compact(fields, params))


def _read_event(event: _Event) -> Delta:
    if event.type == "content_block_delta" and event.delta is not None:
        return _read_change(event.delta)
    if event.type == "error" or event.error:
        return failed(event.error or "an error without words")
    if event.type == "message_stop":
        return DONE
    return _read_frame(event)


def _read_frame(event: _Event) -> Delta:
    """Return the delta of what stands around the text: starts of message and blocks, and the end with its reason."""
    if event.type == "message_delta":
        return _read_end(event)
    if event.type == "content_block_start" and event.content_block is not None:
        return _read_block(event.content_block)
    if event.type == "message_start" and event.message is not None:
        # The count of output tokens that it holds is of the message's start, so it is no count of the answer.
        usage = _usage(event.message.usage)
        begun = None if usage is None else usage._replace(output_tokens=None)
        return Delta(ROLE, seen=1, usage=begun, model=event.message.model)
    return NOTHING


def _read_change(change: _Change) -> Delta:
    if change.text:
        return Delta(CONTENT, text=change.text, seen=1)
    if change.thinking:
        return Delta(REASONING, aside=change.thinking, seen=1)
    if not change.partial_json:
        return NOTHING
    return Delta(TOOL, aside=change.partial_json, seen=1, calls=(Called(None, None, change.partial_json),))


def _read_block(block: _Block) -> Delta:
    """Return the delta of a block that begins: mostly empty, but a tool's name is generated text."""
    kind, text, aside = _read_content(block)
    if kind == OTHER:
        return NOTHING
    return Delta(kind, text=text or None, aside=aside or None, seen=1, calls=_calls([block]))


def _read_end(event: _Event) -> Delta:
    reason = None if event.delta is None else event.delta.stop_reason
    usage = _usage(event.usage)
    if not reason:
        return Delta(OTHER, usage=usage)
    return Delta(FINISH, finish=reason, seen=1, ended=1, usage=usage)


def _usage(fields: _UsageFields | None) -> Usage | None:
    """Return the counts; what the dialect counts apart, read from the cache and written to it, is part of the input."""
    if fields is None:
        return None
    parts = [fields.input_tokens, fields.cache_read_input_tokens, fields.cache_creation_input_tokens]
    asked = None if fields.input_tokens is None else sum(part for part in parts if part is not None)
    return Usage(count(asked), count(fields.output_tokens), count(fields.cache_read_input_tokens), None)


def _read_message(message: _Message) -> Delta:
    """Return what a whole message says; `seen` is 0 for an object that is none."""
    if message.error:
        return failed(message.error)
    if message.content is None:
        return NOTHING
    kind, texts, asides = OTHER, [], []
    for block in message.content:
        block_kind, text, aside = _read_content(block)
        kind = min(kind, block_kind)
        texts.append(text)
        asides.append(aside)
    return Delta(
        kind,
        text="".join(texts) or None,
        finish=message.stop_reason or None,
        seen=1,
        ended=1,
        usage=_usage(message.usage),
        model=message.model,
        aside="".join(asides) or None,
        calls=_calls(message.content),
    )


def _calls(blocks: Sequence[_Block]) -> tuple[Called, ...]:
    """Return the tools that are called; what a stream adds to the last one comes as changes."""
    return tuple(Called(None, block.name, as_json(block.input)) for block in blocks if block.name)


def _read_content(block: _Block) -> tuple[int, str, str]:
    """Return the kind of a content block with its answer text and whatever else it holds."""
    if block.text:
        return CONTENT, block.text, ""
    if block.thinking or block.data:
        # `data` is reasoning that is kept from the reader: generated, but no text to count.
        return REASONING, "", block.thinking or ""
    if not block.name:
        return OTHER, "", ""
    return TOOL, "", block.name + as_json(block.input)


decode_event = typed_decoder(_Event, _read_event)
_decode_message = typed_decoder(_Message, _read_message)


def decode_body(payload: bytes) -> Delta:
    """Return what a whole answer says; raises PayloadError for what is no message."""
    delta = _decode_message(payload)
    if delta.error is None and not delta.seen:
        raise no_answer(payload, "content")
    return delta


ANTHROPIC_MESSAGES = Endpoint(
    name="anthropic-messages",
    path="/v1/messages",
    body=body,
    decode_event=decode_event,
    decode_body=decode_body,
    end_mark=b'"message_stop"',
    ending=Ending.SIGNAL,
    headers=MappingProxyType({"anthropic-version": "2023-06-01"}),
    key_header="x-api-key",
)
