"""Know what a worker and its checking process say to each other, and how messages are told apart in a stream."""

from typing import TypeVar

import msgspec

from servebench.acceptance.given import Given
from servebench.workload.checks import Check

_SIZE_BYTES = 4
M = TypeVar("M")


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """First message of the worker: the checks of the run."""

    checks: tuple[Check, ...]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to it; `fault` says why the checks cannot be applied, None = ready."""

    fault: str | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One answer to be checked; `checks` is the JSON of its prompt's own, empty without."""

    number: int
    given: Given
    checks: bytes = b""


class Finding(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What came of a question; `spent_ns` is how long the checks took, without any wait."""

    number: int
    accepted: bool | None
    reason: str | None
    spent_ns: int


class Splitter:
    """Cuts a stream of bytes into the messages that `letter` wrote."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they come and return every message that is whole by now."""
        self._bytes += data
        found, begin = [], 0
        while len(self._bytes) - begin >= _SIZE_BYTES:
            end = begin + _SIZE_BYTES + int.from_bytes(self._bytes[begin : begin + _SIZE_BYTES], "little")
            if end > len(self._bytes):
                break
            found.append(bytes(self._bytes[begin + _SIZE_BYTES : end]))
            begin = end
        del self._bytes[:begin]
        return found


def letter(message: msgspec.Struct) -> bytes:
    """Return a message as bytes that a Splitter finds the end of; lone surrogates become "?"."""
    try:
        data = _ENCODER.encode(message)
    except UnicodeEncodeError:
        data = _ENCODER.encode(_encodable(message))
    return len(data).to_bytes(_SIZE_BYTES, "little") + data


def opened(data: bytes, kind: type[M]) -> M:
    """Return the message in what a Splitter returned; raises msgspec.MsgspecError where it is of another kind."""
    return msgspec.msgpack.decode(data, type=kind)


_ENCODER = msgspec.msgpack.Encoder()


def _encodable(message: msgspec.Struct) -> object:
    """Return a question whose texts UTF-8 can hold: JSON escapes may leave lone surrogates in an answer."""
    return _clean(msgspec.to_builtins(message, builtin_types=(bytes,)))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {name: _clean(item) for name, item in value.items()}
    return value
