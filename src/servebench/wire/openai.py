"""Know what the two OpenAI dialects share: usage, errors, the envelope around choices, and the request body."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from servebench.core.outcomes import ChunkKind
from servebench.wire.endpoint import KIND_CODE, MAX_CHOICE, Delta, ParamValue, PayloadError, Usage
from servebench.wire.lenient import error_text, excerpt, load_object

CONTENT = KIND_CODE[ChunkKind.CONTENT]
REASONING = KIND_CODE[ChunkKind.REASONING]
TOOL = KIND_CODE[ChunkKind.TOOL]
REFUSAL = KIND_CODE[ChunkKind.REFUSAL]
ROLE = KIND_CODE[ChunkKind.ROLE]
FINISH = KIND_CODE[ChunkKind.FINISH]
USAGE = KIND_CODE[ChunkKind.USAGE]
ERROR = KIND_CODE[ChunkKind.ERROR]
OTHER = KIND_CODE[ChunkKind.OTHER]

DONE = Delta(KIND_CODE[ChunkKind.DONE], done=True)
NOTHING = Delta(OTHER)

_MAX_COUNT = 2**31 - 1
_LAST_TOKEN_KIND = REFUSAL


class PromptDetails(msgspec.Struct, gc=False):
    """Part of usage."""

    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    """Part of usage."""

    reasoning_tokens: int | None = None


class UsageFields(msgspec.Struct, gc=False):
    """The `usage` object; all of it may be missing."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Choice(Protocol):
    """What both dialects have in a choice."""

    index: int | None
    finish_reason: str | None


C = TypeVar("C", bound=Choice)
C_co = TypeVar("C_co", bound=Choice, covariant=True)


class Envelope(Protocol[C_co]):
    """What both dialects have around choices."""

    @property
    def choices(self) -> Sequence[C_co] | None:
        """Choices; None or empty in events that carry usage or filters only."""
        ...

    usage: UsageFields | None
    error: Any  # a string, an object or null, as the server likes
    model: str | None


def read_envelope(envelope: Envelope[C], classify: Callable[[C], tuple[int, str | None]]) -> Delta:
    """Return what an event or body says; `classify` gives kind and answer text of one choice.

    An event with several choices counts under the first that carries generated text, else under the first.
    """
    choices = envelope.choices
    usage = None if envelope.usage is None else read_usage(envelope.usage)
    if envelope.error:
        return Delta(ERROR, error=error_text(envelope.error), usage=usage, model=envelope.model)
    if not choices:
        return Delta(OTHER if usage is None else USAGE, usage=usage, model=envelope.model)
    if len(choices) > 1:
        return _read_choices(choices, classify, usage, envelope.model)
    choice = choices[0]
    kind, text = classify(choice)
    if kind == OTHER and usage is not None:
        kind = USAGE
    index, finish = choice.index, choice.finish_reason
    if not index:
        return Delta(kind, 0, text, finish or None, 1, 1 if finish else 0, usage, envelope.model)
    index = clamp_choice(index)
    bit = 1 << index
    return Delta(kind, index, None, None, bit, bit if finish else 0, usage, envelope.model)


def _read_choices(
    choices: Sequence[C], classify: Callable[[C], tuple[int, str | None]], usage: Usage | None, model: str | None
) -> Delta:
    seen = ended = 0
    kind, at, text, finish = OTHER, 0, None, None
    for position, choice in enumerate(choices):
        index = clamp_choice(choice.index or 0)
        own_kind, own_text = classify(choice)
        seen |= 1 << index
        if choice.finish_reason:
            ended |= 1 << index
        if index == 0:
            text, finish = own_text, choice.finish_reason or None
        if position == 0 or (kind > _LAST_TOKEN_KIND and own_kind <= _LAST_TOKEN_KIND):
            kind, at = own_kind, index
    if kind == OTHER and usage is not None:
        kind = USAGE
    return Delta(kind, at, text, finish, seen, ended, usage, model)


def clamp_choice(index: int) -> int:
    """Return the index as the chunk columns can hold it."""
    return min(max(index, 0), MAX_CHOICE)


def read_usage(fields: UsageFields) -> Usage | None:
    """Return the counts of a usage object; None where it counts no answer tokens, as `{}` does."""
    output = _count(fields.completion_tokens)
    if output is None:
        return None
    prompt, completion = fields.prompt_tokens_details, fields.completion_tokens_details
    return Usage(
        _count(fields.prompt_tokens),
        output,
        None if prompt is None else _count(prompt.cached_tokens),
        None if completion is None else _count(completion.reasoning_tokens),
    )


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= _MAX_COUNT else None


def read_unusual(payload: bytes, repair: Callable[[dict[str, Any]], Envelope[C]]) -> Envelope[C] | Delta:
    """Return what a payload says that the typed decoder refused: `[DONE]`, nothing at all, or looser JSON.

    `repair` types the loose object. Raises PayloadError for a payload that is no JSON object of the dialect.
    """
    stripped = payload.strip()
    if stripped == b"[DONE]":
        return DONE
    if not stripped or stripped.startswith(b":"):
        # A proxy that wraps comments as data sends `data: : keep-alive`; it carries nothing.
        return NOTHING
    value = load_object(payload)
    if value.get("error"):
        return Delta(ERROR, error=error_text(value["error"]))
    try:
        return repair(value)
    except (msgspec.ValidationError, RecursionError) as error:
        msg = f"{error}: {excerpt(payload, 300)}"
        raise PayloadError(msg) from None


def event_decoder(
    strict: Callable[[bytes], Envelope[C]],
    repair: Callable[[dict[str, Any]], Envelope[C]],
    classify: Callable[[C], tuple[int, str | None]],
) -> Callable[[bytes], Delta]:
    """Return the function that reads the data of one event of a dialect.

    `strict` decodes the common form and raises msgspec's errors for others, which `repair` types instead. The function
    returned raises PayloadError for what neither takes.
    """

    def decode_event(payload: bytes) -> Delta:
        try:
            envelope = strict(payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            loose = read_unusual(payload, repair)
            return loose if isinstance(loose, Delta) else read_envelope(loose, classify)
        delta = read_envelope(envelope, classify)
        if delta.kind == OTHER and not delta.seen:
            error = stated_error(payload)
            if error is not None:
                return Delta(ERROR, error=error)
        return delta

    return decode_event


def body_decoder(decode_event: Callable[[bytes], Delta]) -> Callable[[bytes], Delta]:
    """Return the function that reads a whole answer; it raises PayloadError where there are no choices and no error."""

    def decode_body(payload: bytes) -> Delta:
        delta = decode_event(payload)
        if delta.error is None and not delta.seen:
            msg = f"neither choices nor error: {excerpt(payload, 300)}"
            raise PayloadError(msg)
        return delta

    return decode_body


def listed(value: object) -> list[Any]:
    """Return the value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def stated_error(payload: bytes) -> str | None:
    """Return the message of an object without choices that says it is an error, as older servers send it; else None."""
    value = load_object(payload)
    if value.get("object") == "error" or (isinstance(value.get("code"), int) and "message" in value):
        return error_text(value)
    return None


def write_body(fields: Mapping[str, object], params: Mapping[str, ParamValue], *, stream: bool) -> bytes:
    """Return compact JSON of the fields that are set, then of the params, which win; a param may be null."""
    body: dict[str, object] = {key: value for key, value in fields.items() if value is not None}
    body["stream"] = stream
    if stream:
        body["stream_options"] = {"include_usage": True}
    body.update(params)
    return msgspec.json.encode(body)
