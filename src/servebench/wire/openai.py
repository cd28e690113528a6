"""Know what the two OpenAI dialects share: usage, errors, the envelope around choices, and the request body."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from servebench.wire.dialect import (
    DONE,
    ERROR,
    LAST_TOKEN_KIND,
    OTHER,
    USAGE,
    Anything,
    compact,
    convert,
    count,
    failed,
    no_answer,
    read_unusual,
)
from servebench.wire.endpoint import MAX_CHOICE, Called, Delta, ParamValue, Usage
from servebench.wire.lenient import error_text, load_object

NO_ERROR_CODES: frozenset[int | str] = frozenset({0, 200, "", "0", "200", "ok", "success"})
FAILED_REASONS = frozenset({"error", "abort"})
"""Finish reasons by which a server says that it gave the answer up."""
_ODD_REASONS = FAILED_REASONS | {"null"}


def pin(tokens: int) -> Mapping[str, ParamValue]:
    """Return the parameters that make an answer exactly so long.

    They are an extension that vLLM, SGLang and their kind know; OpenAI's own service refuses what it does not know.
    """
    return {"min_tokens": tokens, "ignore_eos": True}


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
    prompt_cache_hit_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Vendor(msgspec.Struct, gc=False):
    """What a vendor puts beside the choices, `x_groq` here; only its usage counts."""

    usage: UsageFields | None = None


class LogProbs(msgspec.Struct, gc=False):
    """Log probabilities, of which only the number matters: `content` in chat, `tokens` in completions."""

    content: list[Anything] | None = None
    tokens: list[str] | None = None


class Choice(Protocol):
    """What both dialects have in a choice."""

    index: int | None
    finish_reason: str | None
    logprobs: LogProbs | None
    usage: UsageFields | None
    error: Any


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
    x_groq: Vendor | None


Said: TypeAlias = tuple[int, str | None, str | None]
"""What one choice says: kind, answer text, and text that was generated besides. A plain tuple, for the price's sake."""


def no_calls(_choice: object) -> tuple[Called, ...]:
    """Return the tool calls of a choice that can hold none."""
    return ()


def read_envelope(
    envelope: Envelope[C], classify: Callable[[C], Said], calls_of: Callable[[C], tuple[Called, ...]] = no_calls
) -> Delta:
    """Return what an event or body says; `classify` reads one choice, `calls_of` the tools that it calls.

    An event with several choices counts under the first that carries generated text, else under the first.
    """
    choices = envelope.choices
    if envelope.x_groq is not None or (choices and _is_odd(choices)):
        _put_right(envelope)
    usage = None if envelope.usage is None else read_usage(envelope.usage)
    if envelope.error:
        return Delta(ERROR, error=error_text(envelope.error), usage=usage, model=envelope.model)
    if not choices:
        return Delta(OTHER if usage is None else USAGE, usage=usage, model=envelope.model)
    if len(choices) > 1:
        # Where several choices share an event, whose tools are called is not told apart.
        return _read_choices(choices, classify, usage, envelope.model)
    choice = choices[0]
    kind, text, aside = classify(choice)
    if kind == OTHER and usage is not None:
        kind = USAGE
    index, finish = choice.index, choice.finish_reason
    if index:
        return _read_other(clamp_choice(index), choice, (kind, text, aside), usage, envelope.model)
    tokens = None if choice.logprobs is None else _token_count(choice.logprobs)
    if aside is None and tokens is None:
        return Delta(kind, 0, text, finish or None, 1, 1 if finish else 0, usage, envelope.model)
    ended = 1 if finish else 0
    calls = () if aside is None else calls_of(choice)
    return Delta(
        kind, 0, text, finish or None, 1, ended, usage, envelope.model, aside=aside, tokens=tokens, calls=calls
    )


def _is_odd(choices: Sequence[Choice]) -> bool:
    """Return whether choices hold what belongs elsewhere; asked of every event."""
    choice = choices[0]
    return (
        choice.finish_reason in _ODD_REASONS or choice.usage is not None or choice.error is not None or len(choices) > 1
    )


def _put_right(envelope: Envelope[C]) -> None:
    """Move what some servers put into a choice or a vendor's object to where the dialect has it, in place."""
    if envelope.usage is None and envelope.x_groq is not None:
        envelope.usage = envelope.x_groq.usage
    for choice in envelope.choices or ():
        if choice.finish_reason == "null":
            choice.finish_reason = None
        if choice.error:
            envelope.error = envelope.error or choice.error
        elif choice.finish_reason in FAILED_REASONS:
            envelope.error = envelope.error or f"finish_reason {choice.finish_reason}"
        if envelope.usage is None:
            envelope.usage = choice.usage


def _read_other(index: int, choice: Choice, said: Said, usage: Usage | None, model: str | None) -> Delta:
    """Return the delta of a choice beside choice 0, whose text and finish reason are no answer's."""
    kind, text, aside = said
    bit = 1 << index
    return Delta(
        kind,
        index,
        seen=bit,
        ended=bit if choice.finish_reason else 0,
        usage=usage,
        model=model,
        aside=joined(text, aside),
        tokens=None if choice.logprobs is None else _token_count(choice.logprobs),
    )


def _read_choices(choices: Sequence[C], classify: Callable[[C], Said], usage: Usage | None, model: str | None) -> Delta:
    seen = ended = 0
    kind, at, text, finish, tokens = OTHER, 0, None, None, None
    aside: str | None = None
    for position, choice in enumerate(choices[: MAX_CHOICE + 1]):
        index = clamp_choice(choice.index or 0)
        own_kind, own_text, own_aside = classify(choice)
        seen |= 1 << index
        if choice.finish_reason:
            ended |= 1 << index
        if index == 0:
            text, finish = own_text, choice.finish_reason or None
        aside = joined(aside, None if index == 0 else own_text, own_aside)
        if choice.logprobs is not None:
            tokens = (tokens or 0) + (_token_count(choice.logprobs) or 0)
        if position == 0 or (kind > LAST_TOKEN_KIND and own_kind <= LAST_TOKEN_KIND):
            kind, at = own_kind, index
    if kind == OTHER and usage is not None:
        kind = USAGE
    return Delta(kind, at, text, finish, seen, ended, usage, model, aside=aside, tokens=tokens)


def clamp_choice(index: int) -> int:
    """Return the index as the chunk columns can hold it."""
    return min(max(index, 0), MAX_CHOICE)


def joined(*texts: str | None) -> str | None:
    """Return the texts that are there, one behind the other; None where none is."""
    return "".join(text for text in texts if text) or None


def _token_count(logprobs: LogProbs) -> int | None:
    """Return how many tokens log probabilities are given for; None where they are given for none."""
    return len(logprobs.content or logprobs.tokens or ()) or None


def read_usage(fields: UsageFields) -> Usage | None:
    """Return the counts of a usage object; None where it counts nothing, as `{}` does."""
    asked, answered = fields.prompt_tokens, fields.completion_tokens
    asked = count(fields.input_tokens if asked is None else asked)
    answered = count(fields.output_tokens if answered is None else answered)
    if asked is None and answered is None:
        return None
    prompt, completion = fields.prompt_tokens_details, fields.completion_tokens_details
    return Usage(
        asked,
        answered,
        count(fields.prompt_cache_hit_tokens if prompt is None else prompt.cached_tokens),
        None if completion is None else count(completion.reasoning_tokens),
    )


def event_decoder(
    kind: type[Any],
    repair: Callable[[dict[str, Any]], None],
    classify: Callable[[C], Said],
    calls_of: Callable[[C], tuple[Called, ...]] = no_calls,
) -> Callable[[bytes], Delta]:
    """Return the function that reads the data of one event of a dialect.

    `kind` is decoded strictly; what that refuses is decoded loosely, mended in place by `repair`, and typed again. The
    function returned raises PayloadError for what neither takes.
    """
    strict: Callable[[bytes], Envelope[C]] = msgspec.json.Decoder(kind).decode

    def decode_event(payload: bytes) -> Delta:
        try:
            envelope = strict(payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            loose = read_unusual(payload, DONE)
            if isinstance(loose, Delta):
                return loose
            repair(loose)
            return read_envelope(convert(loose, kind, payload), classify, calls_of)
        delta = read_envelope(envelope, classify, calls_of)
        if delta.kind == OTHER and not delta.seen:
            error = stated_error(payload)
            if error is not None:
                return failed(error)
        return delta

    return decode_event


def body_decoder(decode_event: Callable[[bytes], Delta]) -> Callable[[bytes], Delta]:
    """Return the function that reads a whole answer; it raises PayloadError where there are no choices and no error."""

    def decode_body(payload: bytes) -> Delta:
        delta = decode_event(payload)
        if delta.error is None and not delta.seen:
            raise no_answer(payload, "choices")
        return delta

    return decode_body


def stated_error(payload: bytes) -> str | None:
    """Return the message of an object without choices that says it is an error, as older servers send it; else None."""
    value = load_object(payload)
    code = value.get("code")
    failed_by_code = isinstance(code, int | str) and code not in NO_ERROR_CODES and "message" in value
    return error_text(value) if failed_by_code or value.get("object") == "error" else None


def write_body(fields: Mapping[str, object], params: Mapping[str, ParamValue], *, stream: bool) -> bytes:
    """Return compact JSON of the fields that are set, then of the params, which win; a param may be null."""
    options = {"stream": stream, "stream_options": {"include_usage": True} if stream else None}
    return msgspec.json.encode(compact({**fields, **options}, params))
