"""Know the read that most reads are: whole HTTP chunks, each one event that says some answer text and nothing else.

Such an event needs none of the parsers: its framing is compared with what a chunk of that length must look like, and a
strict JSON type leaves no more to ask about it than its text. Everything else is left to them, to the same end.
"""

from collections import deque
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec

DecodePlain = Callable[[bytes], str]
"""Return the text of an event that says nothing but some text of choice 0; raises one of REFUSALS for any other."""

REFUSALS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)

SomeText = Annotated[str, msgspec.Meta(min_length=1)]
NothingListed = Annotated[list[Any], msgspec.Meta(max_length=0)] | None

CHUNK_END = b"\n\n\r\n"
"""End of a chunk that ends with an event: no framing holds two LF, so these cannot be part of it."""

_LF, _CR = b"\n\r"

MAX_READS, MOST_BYTES = 64, 1 << 15
"""Reads and bytes that are taken at once, about: 0.1 ms, after which the caller may look at the time."""

_LONGEST = 4096
"""Length up to which chunks are looked at; what a longer one costs is not its parsing."""


class _Frame(NamedTuple):
    """How a chunk of one length may begin, its digits in lower or upper case, and where its JSON does."""

    marks: tuple[bytes, ...]
    skip: int


class _Frames(dict[int, _Frame]):
    """Frames by length of the chunk, made when first seen; what no chunk can be, or is too long, begins in no way."""

    def __missing__(self, size: int) -> _Frame:
        if size > _LONGEST:
            return _NO_FRAME
        frame = self[size] = _frame(size)
        return frame


_NO_FRAME = _Frame((), 0)


def _frame(size: int) -> _Frame:
    for digits in range(1, 5):
        length = b"%x" % max(0, size - digits - 4)  # CR LF behind the digits and behind the data
        if len(length) == digits:
            marks = dict.fromkeys(b"%s\r\ndata: {" % case for case in (length, length.upper()))
            return _Frame(tuple(marks), digits + 8)
    return _NO_FRAME


_FRAMES = _Frames()


class Run(NamedTuple):
    """Plain events, one item each: text, stamp and delay of its read, and which of the `reads` it was, from 1.

    `size` counts the bytes of those reads.
    """

    texts: list[str]
    stamps_ns: list[int]
    delays_ns: list[int]
    places: list[int]
    reads: int
    size: int


def take_plain(reads: deque[tuple[bytes, int, int]], decode: DecodePlain) -> Run:
    """Take from the left some reads that hold plain events only, and return what they say.

    The first must begin where a chunk and an event do; then each next one does.
    """
    texts: list[str] = []
    stamps_ns: list[int] = []
    delays_ns: list[int] = []
    places: list[int] = []
    taken = size = 0
    frames = _FRAMES
    while reads and taken < MAX_READS and size < MOST_BYTES:
        data, stamp_ns, delay_ns = reads[0]
        length = len(data)
        marks, skip = frames[length]
        if not (data.startswith(marks) and data.endswith(CHUNK_END)):
            several, whole = plain_texts(data, decode)
            if whole < length:
                break
            texts += several
            stamps_ns += [stamp_ns] * len(several)
            delays_ns += [delay_ns] * len(several)
            places += [taken + 1] * len(several)
        else:
            payload = data[skip:-4]
            if _LF in payload or _CR in payload:
                break
            try:
                text = decode(payload)
            except REFUSALS:
                break
            texts.append(text)
            stamps_ns.append(stamp_ns)
            delays_ns.append(delay_ns)
            places.append(taken + 1)
        reads.popleft()
        taken += 1
        size += length
    return Run(texts, stamps_ns, delays_ns, places, taken, size)


def plain_texts(data: bytes, decode: DecodePlain) -> tuple[list[str], int]:
    """Return the texts of the plain chunks that these bytes begin with, and how many bytes those are."""
    *pieces, _ = data.split(CHUNK_END)
    texts: list[str] = []
    taken = 0
    for piece in pieces:
        length = len(piece) + len(CHUNK_END)
        marks, skip = _FRAMES[length]
        payload = piece[skip:]
        if not piece.startswith(marks) or _LF in payload or _CR in payload:
            break
        try:
            texts.append(decode(payload))
        except REFUSALS:
            break
        taken += length
    return texts, taken


def same_read(texts: list[str], stamp_ns: int, delay_ns: int) -> Run:
    """Return plain events of the read at hand, which is counted already."""
    count = len(texts)
    return Run(texts, [stamp_ns] * count, [delay_ns] * count, [0] * count, 0, 0)
