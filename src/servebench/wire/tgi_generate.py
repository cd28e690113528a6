"""Know the dialect of Text Generation Inference: one token per event, the last one with text and details of the whole.

Followed: the OpenAPI description of TGI 3 (`/generate_stream`, `/generate`).
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
    Anything,
    compact,
    convert,
    count,
    failed,
    no_answer,
    prompt_text,
    typed_decoder,
)
from servebench.wire.endpoint import Delta, Ending, Endpoint, ParamValue, PayloadError, Usage


class _Token(msgspec.Struct, gc=False):
    text: str | None = None
    special: bool | None = None


class _Details(msgspec.Struct, gc=False):
    finish_reason: str | None = None
    generated_tokens: int | None = None
    input_length: int | None = None
    prefill: list[Anything] | None = None


class _Event(msgspec.Struct, gc=False):
    token: _Token | None = None
    generated_text: str | None = None
    details: _Details | None = None
    error: Any = None


def body(
    *,
    model: str | None,
    messages: Sequence[Message],
    max_tokens: int | None,
    stream: bool,
    params: Mapping[str, ParamValue],
) -> bytes:
    """Return the request body; everything but the text is a generation parameter."""
    parameters = compact({"max_new_tokens": max_tokens, "details": True}, params)
    return msgspec.json.encode({"inputs": prompt_text(messages), "parameters": parameters})


def _read_event(event: _Event) -> Delta:
    if event.error:
        return failed(event.error)
    token, details = event.token, event.details
    over = details is not None or event.generated_text is not None
    if token is None and not over:
        return NOTHING
    # A special token, such as the end of sequence, is generated, but no part of the text.
    text = None if token is None or token.special else token.text
    kind = CONTENT if text else FINISH if over else OTHER
    return Delta(
        kind,
        text=text or None,
        finish=None if details is None else details.finish_reason,
        seen=1,
        ended=int(over),
        usage=_usage(details),
        done=over,
        tokens=None if token is None else 1,
    )


def _usage(details: _Details | None) -> Usage | None:
    if details is None:
        return None
    asked = len(details.prefill) if details.prefill else details.input_length
    return Usage(count(asked), count(details.generated_tokens), None, None)


def _read_whole(answer: _Event) -> Delta:
    if answer.error:
        return failed(answer.error)
    if answer.generated_text is None:
        return NOTHING
    details = answer.details
    finish = None if details is None else details.finish_reason
    kind = CONTENT if answer.generated_text else FINISH
    return Delta(kind, text=answer.generated_text or None, finish=finish, seen=1, ended=1, usage=_usage(details))


decode_event = typed_decoder(_Event, _read_event)
_decode_whole = typed_decoder(_Event, _read_whole)


def decode_body(payload: bytes) -> Delta:
    """Return what a whole answer says, also as the only member of a list; raises PayloadError for anything else."""
    delta = _decode_list(payload) if payload.lstrip()[:1] == b"[" else _decode_whole(payload)
    if delta.error is None and not delta.seen:
        raise no_answer(payload, "generated_text")
    return delta


def _decode_list(payload: bytes) -> Delta:
    try:
        answers = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        msg = f"no JSON: {error}"
        raise PayloadError(msg) from None
    return _read_whole(convert(answers[0], _Event, payload)) if len(answers) == 1 else NOTHING


TGI_GENERATE = Endpoint(
    name="tgi-generate",
    path="/generate_stream",
    whole_path="/generate",
    body=body,
    decode_event=decode_event,
    decode_body=decode_body,
    ending=Ending.SIGNAL,
    end_mark=b'"generated_text":"',
)
