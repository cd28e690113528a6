"""Know the text-completions dialect: `choices[].text` in events as in whole answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from servebench.core.records import Message
from servebench.wire.dialect import CONTENT, FINISH, OTHER, REASONING, listed, prompt_text
from servebench.wire.endpoint import Endpoint, ParamValue
from servebench.wire.lenient import join_parts
from servebench.wire.openai import LogProbs, Said, UsageFields, Vendor, body_decoder, event_decoder, pin, write_body
from servebench.wire.openai_repair import repair_envelope
from servebench.wire.plain import SomeText


class _Choice(msgspec.Struct, gc=False):
    index: int | None = None
    finish_reason: str | None = None
    text: str | None = None
    reasoning: str | None = None
    logprobs: LogProbs | None = None
    usage: UsageFields | None = None
    error: Any = None


class _Completion(msgspec.Struct, gc=False):
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
    """Return the request body; the prompt is the contents of the messages, an empty line between them."""
    fields = {"model": model, "prompt": prompt_text(messages), "max_tokens": max_tokens}
    return write_body(fields, params, stream=stream)


def _classify(choice: _Choice) -> Said:
    if choice.text:
        return CONTENT, choice.text, choice.reasoning or None
    if choice.reasoning:
        return REASONING, None, choice.reasoning
    return (FINISH if choice.finish_reason else OTHER), None, None


def _repair(value: dict[str, Any]) -> None:
    repair_envelope(value)
    for choice in listed(value.get("choices")):
        if isinstance(choice, dict):
            choice["text"] = join_parts(choice.get("text"))


class _PlainChoice(msgspec.Struct, gc=False):
    text: SomeText
    index: Literal[0] = 0
    finish_reason: None = None
    reasoning: None = None
    logprobs: None = None
    usage: None = None
    error: None = None


class _PlainCompletion(msgspec.Struct, gc=False):
    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None
    x_groq: None = None


_plain = msgspec.json.Decoder(_PlainCompletion).decode


def _decode_plain(payload: bytes) -> str:
    return _plain(payload).choices[0].text


decode_event = event_decoder(_Completion, _repair, _classify)

OPENAI_COMPLETIONS = Endpoint(
    name="openai-completions",
    path="/v1/completions",
    body=body,
    decode_event=decode_event,
    decode_body=body_decoder(decode_event),
    decode_plain=_decode_plain,
    pin=pin,
)
