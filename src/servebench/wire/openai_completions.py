"""Know the text-completions dialect: `choices[].text` in events as in whole answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from servebench.core.records import Message
from servebench.wire.endpoint import Delta, Endpoint, ParamValue, PayloadError
from servebench.wire.lenient import excerpt, join_parts
from servebench.wire.openai import (
    CONTENT,
    ERROR,
    FINISH,
    OTHER,
    REASONING,
    UsageFields,
    listed,
    read_envelope,
    read_unusual,
    stated_error,
    write_body,
)


class _Choice(msgspec.Struct, gc=False):
    index: int | None = None
    finish_reason: str | None = None
    text: str | None = None
    reasoning: str | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: UsageFields | None = None
    error: Any = None
    model: str | None = None


_decode = msgspec.json.Decoder(_Completion).decode


def body(
    *,
    model: str | None,
    messages: Sequence[Message],
    max_tokens: int | None,
    stream: bool,
    params: Mapping[str, ParamValue],
) -> bytes:
    """Return the request body; the prompt is the contents of the messages, an empty line between them."""
    fields = {
        "model": model,
        "prompt": "\n\n".join(message.content for message in messages),
        "max_tokens": max_tokens,
    }
    return write_body(fields, params, stream=stream)


def decode_event(payload: bytes) -> Delta:
    """Return what the data of one event says. Raises PayloadError where it is nothing this dialect knows."""
    try:
        completion = _decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        loose = read_unusual(payload, _repair)
        if isinstance(loose, Delta):
            return loose
        return read_envelope(loose, _classify)
    delta = read_envelope(completion, _classify)
    if delta.kind == OTHER and not delta.seen:
        error = stated_error(payload)
        if error is not None:
            return Delta(ERROR, error=error)
    return delta


def decode_body(payload: bytes) -> Delta:
    """Return what a whole answer says. Raises PayloadError where it holds neither choices nor an error."""
    delta = decode_event(payload)
    if delta.error is None and not delta.seen:
        msg = f"neither choices nor error: {excerpt(payload, 300)}"
        raise PayloadError(msg)
    return delta


def _classify(choice: _Choice) -> tuple[int, str | None]:
    if choice.text:
        return CONTENT, choice.text
    if choice.reasoning:
        return REASONING, None
    return (FINISH if choice.finish_reason else OTHER), None


def _repair(value: dict[str, Any]) -> _Completion:
    for choice in listed(value.get("choices")):
        if isinstance(choice, dict):
            choice["text"] = join_parts(choice.get("text"))
    return msgspec.convert(value, _Completion)


OPENAI_COMPLETIONS = Endpoint(
    name="openai-completions",
    path="/v1/completions",
    body=body,
    decode_event=decode_event,
    decode_body=decode_body,
)
