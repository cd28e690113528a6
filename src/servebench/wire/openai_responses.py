"""Know the dialect of OpenAI's Responses: events named by `type`, one `response` object with a status at the end.

Followed: the streaming reference of the Responses API (platform.openai.com/docs/api-reference/responses-streaming).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from servebench.core.records import Message
from servebench.wire.dialect import (
    CONTENT,
    DONE,
    NOTHING,
    OTHER,
    REASONING,
    REFUSAL,
    TOOL,
    Anything,
    compact,
    count,
    failed,
    no_answer,
    typed_decoder,
)
from servebench.wire.endpoint import Called, Delta, Ending, Endpoint, ParamValue, Usage
from servebench.wire.lenient import join_parts


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _UsageFields(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Part(msgspec.Struct, gc=False):
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    model: str | None = None
    status: str | None = None
    output: list[_Item] | None = None
    usage: _UsageFields | None = None
    incomplete_details: _Incomplete | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    logprobs: list[Anything] | None = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    message: str | None = None


_DELTA_KINDS = {
    "response.output_text.delta": CONTENT,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
    "response.refusal.delta": REFUSAL,
    "response.function_call_arguments.delta": TOOL,
    "response.custom_tool_call_input.delta": TOOL,
    "response.mcp_call_arguments.delta": TOOL,
    "response.code_interpreter_call_code.delta": TOOL,
}
"""Events that carry generated text. Those named `.done` repeat it whole and are no token events."""

_ENDS = frozenset({"response.completed", "response.incomplete"})
_FAILURES = frozenset({"response.failed", "response.cancelled"})
_OVER = frozenset({"completed", "incomplete"})


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
        "input": [{"role": message.role, "content": message.content} for message in messages],
        "max_output_tokens": max_tokens,
        "stream": stream,
    }
    return msgspec.json.encode(compact(fields, params))


def _read_event(event: _Event) -> Delta:
    kind = _DELTA_KINDS.get(event.type)
    if kind is None and event.delta and event.type.endswith(".delta"):
        kind = _kind_of_unknown(event.type)
    if kind is not None:
        return _read_delta(kind, event)
    if event.error or event.type == "error":
        return failed(event.error or {"message": event.message})
    if event.item is not None and event.type == "response.output_item.added":
        return _begun(event.item)
    return NOTHING if event.response is None else _read_state(event.type, event.response)


def _kind_of_unknown(name: str) -> int:
    """Return what a delta carries whose event is not named above: new tools get new names, as older ones had others."""
    return REASONING if "reasoning" in name else CONTENT if "audio" in name or "text" in name else TOOL


def _read_state(name: str, response: _Response) -> Delta:
    """Return the delta of an event that holds the response itself: as it begins, goes on, or ended."""
    if name in _FAILURES:
        return failed(response.error or f"the response {name.partition('.')[2]}", model=response.model)
    if name not in _ENDS:
        return Delta(OTHER, model=response.model)
    return Delta(
        DONE.kind,
        seen=1,
        ended=1,
        finish=_finish(response),
        usage=_usage(response.usage),
        model=response.model,
        done=True,
    )


def _read_delta(kind: int, event: _Event) -> Delta:
    text = event.delta
    if not text:
        return NOTHING
    tokens = len(event.logprobs) if event.logprobs else None
    if event.type == "response.output_text.delta":
        return Delta(CONTENT, text=text, seen=1, tokens=tokens)
    if event.type.endswith("audio.delta"):
        return Delta(CONTENT, seen=1, tokens=tokens)  # sound, which is no text to count
    calls = (Called(None, None, text),) if kind == TOOL else ()
    return Delta(kind, aside=text, seen=1, tokens=tokens, calls=calls)


def _begun(item: _Item) -> Delta:
    """Return the delta of an output item that begins: the name of a tool is generated, an empty message is not."""
    called = (item.name or "") + (item.arguments or "")
    return Delta(TOOL, aside=called, seen=1, calls=_calls([item])) if called else NOTHING


def _finish(response: _Response) -> str | None:
    details = response.incomplete_details
    return response.status if details is None or not details.reason else details.reason


def _usage(fields: _UsageFields | None) -> Usage | None:
    if fields is None:
        return None
    asked, answered = fields.input_tokens_details, fields.output_tokens_details
    return Usage(
        count(fields.input_tokens),
        count(fields.output_tokens),
        None if asked is None else count(asked.cached_tokens),
        None if answered is None else count(answered.reasoning_tokens),
    )


def _read_response(response: _Response) -> Delta:
    """Return what a whole response says; `seen` is 0 for an object that is none."""
    if response.error or response.status in {"failed", "cancelled"}:
        return failed(response.error or f"the response {response.status}", model=response.model)
    if response.output is None or response.status not in _OVER:
        return NOTHING
    kind, texts, asides = OTHER, [], []
    for item in response.output:
        item_kind, text, aside = _read_item(item)
        kind = min(kind, item_kind)
        texts.append(text)
        asides.append(aside)
    return Delta(
        kind,
        text="".join(texts) or None,
        finish=_finish(response),
        seen=1,
        ended=1,
        usage=_usage(response.usage),
        model=response.model,
        aside="".join(asides) or None,
        calls=_calls(response.output),
    )


def _calls(items: Sequence[_Item]) -> tuple[Called, ...]:
    return tuple(Called(None, item.name, (item.arguments or "") + (item.input or "")) for item in items if item.name)


def _read_item(item: _Item) -> tuple[int, str, str]:
    """Return the kind of an output item with its answer text and whatever else it holds."""
    parts = item.content or []
    text = "".join(part.text or "" for part in parts)
    if item.type == "message":
        refusal = "".join(part.refusal or "" for part in parts)
        return (CONTENT if text else REFUSAL if refusal else OTHER), text, refusal
    if item.type == "reasoning":
        thought = text + "".join(part.text or "" for part in item.summary or ())
        return (REASONING if thought else OTHER), "", thought
    called = (item.name or "") + (item.arguments or "") + (item.input or "")
    return (TOOL if called else OTHER), "", called


def _repair(value: dict[str, Any]) -> None:
    value.pop("logprobs", None)
    if not isinstance(value.get("delta"), str):
        value["delta"] = join_parts([value.get("delta")])


decode_event = typed_decoder(_Event, _read_event, repair=_repair)
_decode_response = typed_decoder(_Response, _read_response)


def decode_body(payload: bytes) -> Delta:
    """Return what a whole answer says; raises PayloadError for what is no response that ended."""
    delta = _decode_response(payload)
    if delta.error is None and not delta.seen:
        raise no_answer(payload, "a response that ended")
    return delta


OPENAI_RESPONSES = Endpoint(
    name="openai-responses",
    path="/v1/responses",
    body=body,
    decode_event=decode_event,
    decode_body=decode_body,
    end_mark=b'"response.completed"',
    ending=Ending.SIGNAL,
)
