"""Know the embeddings dialect: a list of vectors in one piece, so that only the whole request has a time.

Followed: "Create embeddings" of the OpenAI API reference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from servebench.core.records import Message
from servebench.wire.dialect import (
    NOTHING,
    OTHER,
    Anything,
    compact,
    count,
    failed,
    no_answer,
    prompt_text,
    typed_decoder,
)
from servebench.wire.endpoint import Delta, Endpoint, ParamValue, Usage


class _UsageFields(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None


class _Vectors(msgspec.Struct, gc=False):
    data: list[Anything] | None = None
    model: str | None = None
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
    """Return the request body; `params` extend and override."""
    return msgspec.json.encode(compact({"model": model, "input": prompt_text(messages)}, params))


def _read(vectors: _Vectors) -> Delta:
    """Return what an answer says; `seen` is 0 for an object without vectors."""
    if vectors.error:
        return failed(vectors.error)
    if not vectors.data:
        return NOTHING
    usage = None if vectors.usage is None else Usage(count(vectors.usage.prompt_tokens), None, None, None)
    return Delta(OTHER, seen=1, ended=1, usage=usage, model=vectors.model)


decode_event = typed_decoder(_Vectors, _read)


def decode_body(payload: bytes) -> Delta:
    """Return what an answer says; raises PayloadError for an object without vectors."""
    delta = decode_event(payload)
    if delta.error is None and not delta.seen:
        raise no_answer(payload, "data")
    return delta


OPENAI_EMBEDDINGS = Endpoint(
    name="openai-embeddings",
    path="/v1/embeddings",
    body=body,
    decode_event=decode_event,
    decode_body=decode_body,
    streams=False,
)
