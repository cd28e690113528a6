"""Know what all dialects share: the kinds of events, typed decoding with a second try, counts, and body writing."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from servebench.core.outcomes import ChunkKind
from servebench.core.records import Message
from servebench.wire.endpoint import KIND_CODE, Delta, ParamValue, PayloadError
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
LAST_TOKEN_KIND = REFUSAL

DONE = Delta(KIND_CODE[ChunkKind.DONE], done=True)
NOTHING = Delta(OTHER)

_MAX_COUNT = 2**31 - 1

T = TypeVar("T")


class Anything(msgspec.Struct, gc=False):
    """An object of which nothing is kept."""


def count(value: int | None) -> int | None:
    """Return a server's count, None where it is none: negative, or more than an int32 holds."""
    return value if value is not None and 0 <= value <= _MAX_COUNT else None


def listed(value: object) -> list[Any]:
    """Return the value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def no_repair(value: dict[str, Any]) -> None:
    """Leave a loose object as it is."""


def typed_decoder(
    kind: type[T],
    read: Callable[[T], Delta],
    *,
    mark: Delta = NOTHING,
    repair: Callable[[dict[str, Any]], None] = no_repair,
) -> Callable[[bytes], Delta]:
    """Return the function that reads the data of one event, or a whole body, of a dialect.

    `kind` is decoded strictly; what that refuses is decoded loosely, mended in place by `repair`, and typed again.
    `mark` is what `[DONE]` means. The function returned raises PayloadError for what neither takes.
    """
    strict = msgspec.json.Decoder(kind).decode

    def decode(payload: bytes) -> Delta:
        try:
            value = strict(payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            loose = read_unusual(payload, mark)
            if isinstance(loose, Delta):
                return loose
            repair(loose)
            value = convert(loose, kind, payload)
        return read(value)

    return decode


def read_unusual(payload: bytes, mark: Delta) -> dict[str, Any] | Delta:
    """Return what a payload says that the typed decoder refused: `[DONE]`, nothing at all, an error, or looser JSON.

    Raises PayloadError for a payload that is no JSON object.
    """
    stripped = payload.strip()
    if stripped.strip(b'"').upper() == b"[DONE]":
        return mark
    if not stripped or stripped.startswith(b":"):
        # A proxy that wraps comments as data sends `data: : keep-alive`; it carries nothing.
        return NOTHING
    value = load_object(payload)
    if value.get("error"):
        return Delta(ERROR, error=error_text(value["error"]))
    return value


def convert(value: object, kind: type[T], payload: bytes) -> T:
    """Return a loose value as the dialect's type; raises PayloadError, quoting the payload, where it is not."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as error:
        msg = f"{error}: {excerpt(payload, 300)}"
        raise PayloadError(msg) from None


def failed(error: object, *, model: str | None = None) -> Delta:
    """Return the delta of an error that a server states, whatever its form."""
    return Delta(ERROR, error=error_text(error), model=model)


def no_answer(payload: bytes, wanted: str) -> PayloadError:
    """Return the error of a whole body that is JSON, but not what the dialect answers with."""
    return PayloadError(f"neither {wanted} nor error: {excerpt(payload, 300)}")


def as_json(value: object) -> str:
    """Return a decoded value as JSON text; "" for None, for nothing inside, and for what is too deep to write."""
    try:
        return msgspec.json.encode(value).decode() if value else ""
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def prompt_text(messages: Sequence[Message]) -> str:
    """Return messages as one text, for services that take no conversation: an empty line between them."""
    return "\n\n".join(message.content for message in messages)


def compact(fields: Mapping[str, object], params: Mapping[str, ParamValue] | None = None) -> dict[str, object]:
    """Return the fields that are set, then the params, which win; a param may be null."""
    return {**{key: value for key, value in fields.items() if value is not None}, **(params or {})}
