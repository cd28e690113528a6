"""Know what the timeline needs of an endpoint's dialect, whichever it is."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self, TypeAlias
from urllib.parse import quote

import msgspec

from servebench.core.errors import InputError
from servebench.core.headers import merged
from servebench.core.outcomes import CHUNK_KINDS, ChunkKind
from servebench.core.records import Message
from servebench.wire.plain import DecodePlain

KIND_CODE: Mapping[ChunkKind, int] = {kind: code for code, kind in enumerate(CHUNK_KINDS)}

MAX_CHOICE = 127
"""Chunk columns hold a choice in an int8; a server that names a higher one is counted under this."""

ParamValue: TypeAlias = "bool | int | float | str | Sequence[ParamValue] | Mapping[str, ParamValue] | None"


class PayloadError(ValueError):
    """A payload is not what its endpoint sends; the message says what is wrong with it."""


class Usage(NamedTuple):
    """Token counts by the server; None = it did not say."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None

    def over(self, earlier: "Usage | None") -> "Usage":
        """Return these counts, with those of an earlier event where these say nothing; counts are never added."""
        if earlier is None or None not in self:
            return self
        return Usage(*(old if new is None else new for new, old in zip(self, earlier, strict=True)))


class Called(NamedTuple):
    """A part of a tool call.

    A name begins a call, unless its `place` is known already; arguments go on with the call of that place, without one
    with the last. `place` is None in dialects that call one tool after the other.
    """

    place: int | None
    name: str | None
    arguments: str | None


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What one event, or one whole body, says.

    `kind` is an index into CHUNK_KINDS, `choice` the choice it belongs to. `text` is answer text of choice 0, `finish`
    the finish reason of choice 0, None where absent. `seen` and `ended` are bit sets of the choices named and finished.
    `done` = the event is the terminal signal. `aside` is what else was generated: reasoning, tool calls, refusals,
    other choices; `calls` are the tool calls of choice 0 in it once more, told apart. `tokens` is how many tokens the
    event carries, None where it does not say.
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
    aside: str | None = None
    tokens: int | None = None
    calls: tuple[Called, ...] = ()


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


class Ending(Enum):
    """What ends an answer, besides an event that is the terminal signal itself."""

    FINISH = "finish"
    """A finish reason of every choice."""
    SIGNAL = "signal"
    """Nothing else."""
    BODY = "body"
    """A clean end of the body after at least one event: the dialect has no signal."""


class Endpoint(NamedTuple):
    """One dialect: where requests go, how they are written and how answers are read.

    `path` and `whole_path` may hold `{model}`; the second is where requests for an answer in one piece go, None = the
    same. `decode_event` reads the data of one event, `decode_body` a whole JSON body; both raise PayloadError.
    `streams` False = there are whole results only. `lines` = events are lines of JSON, not an event stream. `headers`
    go out with every request; `key_header` is where the dialect looks for the key besides Authorization.
    `end_mark` are bytes that the terminal event holds: a read with them is worth parsing at once. `decode_plain` is a
    short cut for the events that most events are, None = there is none. `pin` gives the parameters that make an answer
    as long as its limit, None = the dialect has none. `text_input` is what the input that takes the text is mostly
    called, in dialects whose models declare inputs of their own; the param `input_name` names another.
    `counts` False = no answer says how many tokens it has.
    """

    name: str
    path: str
    body: BodyWriter
    decode_event: Callable[[bytes], Delta]
    decode_body: Callable[[bytes], Delta]
    whole_path: str | None = None
    streams: bool = True
    lines: bool = False
    ending: Ending = Ending.FINISH
    end_mark: bytes = b"[DONE]"
    headers: Mapping[str, str] = MappingProxyType({})
    key_header: str | None = None
    decode_plain: DecodePlain | None = None
    pin: Callable[[int], Mapping[str, ParamValue]] | None = None
    text_input: str | None = None
    counts: bool = True

    def headers_with(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the dialect's own headers and those given, which win; a bearer key also goes where the dialect looks.

        It stays in Authorization, because engines that imitate a dialect check the key there.
        """
        given = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
        scheme, _, key = given.partition(" ")
        own = {self.key_header: key.strip()} if self.key_header is not None and scheme.lower() == "bearer" else {}
        return merged(self.headers, own, headers)

    def at(self, model: str | None, *, stream: bool) -> Self:
        """Return the endpoint with the path that requests for this model and form of answer go to.

        Raises InputError where the path names the model and there is none.
        """
        path = self.whole_path if self.whole_path is not None and not stream else self.path
        if "{model}" not in path:
            return self._replace(path=path)
        if not model:
            msg = (
                f"{self.name} asks at {path}, and no model is named.\n  try: --model NAME, or target.model in the file"
            )
            raise InputError(msg)
        return self._replace(path=path.replace("{model}", quote(model, safe="")))
