"""Know what the timeline needs of an endpoint's dialect, whichever it is."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from servebench.core.outcomes import CHUNK_KINDS, ChunkKind
from servebench.core.records import Message

KIND_CODE: Mapping[ChunkKind, int] = {kind: code for code, kind in enumerate(CHUNK_KINDS)}

MAX_CHOICE = 127
"""Chunk columns hold a choice in an int8; a server that names a higher one is counted under this."""

ParamValue = bool | int | float | str | None


class PayloadError(ValueError):
    """A payload is not what its endpoint sends; the message says what is wrong with it."""


class Usage(NamedTuple):
    """Token counts by the server; None = it did not say."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What one event, or one whole body, says.

    `kind` is an index into CHUNK_KINDS, `choice` the choice it belongs to. `text` is answer text of choice 0, `finish`
    the finish reason of choice 0, None where absent. `seen` and `ended` are bit sets of the choices named and finished.
    `done` = the event is the terminal signal.
    """

    kind: int
    choice: int = 0
    text: str | None = None
    finish: str | None = None
    seen: int = 0
    ended: int = 0
    usage: Usage | None = None
    model: str | None = None
    error: str | None = None
    done: bool = False


class BodyWriter(Protocol):
    """Write the JSON body of a request; see `Endpoint`."""

    def __call__(
        self,
        *,
        model: str | None,
        messages: Sequence[Message],
        max_tokens: int | None,
        stream: bool,
        params: Mapping[str, ParamValue],
    ) -> bytes:
        """Return the body as JSON bytes."""
        ...


class Endpoint(NamedTuple):
    """One dialect: where requests go, how they are written and how answers are read.

    `decode_event` reads the data of one event, `decode_body` a whole JSON body; both raise PayloadError.
    """

    name: str
    path: str
    body: BodyWriter
    decode_event: Callable[[bytes], Delta]
    decode_body: Callable[[bytes], Delta]
