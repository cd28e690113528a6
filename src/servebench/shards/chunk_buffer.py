"""Know how the events of finished requests wait in memory: 15 bytes each, where servers say what servers mostly say.

Most columns of most answers need no room of their own: no event tells how many tokens it carries, and all belong to
choice 0. Those two are kept from the first event on that says otherwise; read numbers take two bytes while they fit.
"""

from array import array
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.records import Chunks

UNKNOWN = -1
"""What the tokens of an event are that does not tell."""

_FIELDS = ("ns", "delay_ns", "kind", "tokens", "read", "choice")
_MOST_SHORT = (1 << 16) - 1

Ints = npt.NDArray[np.integer]


class ChunkColumns(NamedTuple):
    """All events of a buffer, one item each; `tokens` below 0 = unknown, `delay_ns` below 0 = no kernel stamp."""

    ns: Ints
    delay_ns: Ints
    kind: Ints
    tokens: Ints
    read: Ints
    choice: Ints


class ChunkBuffer:
    """The events of one part's requests, one request behind the other."""

    __slots__ = ("_choices", "_delays", "_kinds", "_ns", "_reads", "_tokens")

    def __init__(self) -> None:
        self._ns = array("q")
        self._delays = array("i")
        self._kinds = array("b")
        self._reads = array("H")
        self._tokens = array("i")
        self._choices = array("b")

    def __len__(self) -> int:
        return len(self._ns)

    def add(self, chunks: Chunks) -> None:
        """Append the events of a request, for which `check_chunks` holds; does nothing event by event."""
        if not len(chunks):
            return
        before = len(self)
        self._ns.extend(chunks.ns)
        self._delays.extend(chunks.delay_ns)
        self._kinds.extend(chunks.kind)
        self._add_reads(chunks.read)
        if not _all_unknown(chunks.tokens):
            self._tokens.extend(array("i", [UNKNOWN]) * (before - len(self._tokens)))
            self._tokens.extend(chunks.tokens)
        if chunks.choice.tobytes().count(0) < len(chunks):
            self._choices.extend(array("b", bytes(before - len(self._choices))))
            self._choices.extend(chunks.choice)

    def columns(self) -> ChunkColumns:
        """Return every column in full; the buffer must not be filled any more."""
        count = len(self)
        tokens, choices = np.full(count, UNKNOWN, np.int32), np.zeros(count, np.int8)
        tokens[: len(self._tokens)] = self._tokens
        choices[: len(self._choices)] = self._choices
        ns, delays, kinds, reads = map(np.asarray, (self._ns, self._delays, self._kinds, self._reads))
        return ChunkColumns(ns, delays, kinds, tokens, reads.astype(np.int32), choices)

    def _add_reads(self, numbers: "array[int]") -> None:
        if self._reads.typecode == "H":
            try:
                self._reads.extend(array("H", numbers))
            except OverflowError:
                self._reads = array("i", self._reads)  # once in a part, when an answer has come in very many reads
            else:
                return
        self._reads.extend(numbers)


def _all_unknown(tokens: "array[int]") -> bool:
    """Whether no event tells its tokens. All bits of UNKNOWN are set; short arrays are no work for numpy."""
    data = tokens.tobytes()
    return data.count(0xFF) == len(data)


def check_chunks(chunks: Chunks) -> None:
    """Raise ValueError for arrays of different lengths or of other types than they should have."""
    shape = [(len(column), column.typecode) for column in (getattr(chunks, name) for name in _FIELDS)]
    if shape != [(len(chunks.ns), code) for code in "qibiib"]:
        msg = f"chunk arrays {dict(zip(_FIELDS, shape, strict=True))} are not of one length or not of their types"
        raise ValueError(msg)
