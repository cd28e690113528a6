"""Know how to undo content codings piece by piece, without waiting for the end."""

import zlib
from collections.abc import Iterator, Sequence

PIECE_BYTES = 1 << 20
"""Most that comes out at once, so that a small body cannot fill the memory."""

MAX_CODINGS = 2
"""Each may blow a byte up to a thousand."""

CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})

_NOT_UNDONE = frozenset({b"br", b"zstd", b"compress", b"x-compress", b"dcb", b"dcz", b"exi", b"pack200-gzip"})


def codings_of(*headers: bytes) -> tuple[tuple[bytes, ...], bytes | None]:
    """Return the codings to undo, in the order in which they were applied, and one that cannot be undone (or None).

    `headers` are values of Content-Encoding and Transfer-Encoding, in that order. Words that are no coding, such as
    `none`, are left aside as browsers do: the body itself shows what it is.
    """
    words = [word.strip().lower() for value in headers for word in value.split(b",")]
    refused = next((word for word in words if word in _NOT_UNDONE), None)
    found = tuple(word for word in words if word in CODINGS)
    return found[:MAX_CODINGS], refused if len(found) <= MAX_CODINGS else b", ".join(found)


class Inflater:
    """Undo gzip or deflate; a gzip body may hold several members."""

    __slots__ = ("_coding", "_inflate")

    def __init__(self, coding: bytes) -> None:
        self._coding = coding
        self._inflate: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes decode to, in pieces. Raises zlib.error where they are not of the coding.

        What stands before the fault is yielded first, so that it does not matter where a read is cut.
        """
        while data:
            if self._inflate is None:
                self._inflate = zlib.decompressobj(self._window_bits(data[0]))
            before = self._inflate.copy()
            try:
                piece = self._inflate.decompress(data, PIECE_BYTES)
            except zlib.error:
                yield from _up_to_fault(before, data)
                raise
            if piece:
                yield piece
            if self._inflate.eof:
                data = self._inflate.unused_data
                self._inflate = None
            else:
                data = self._inflate.unconsumed_tail

    def _window_bits(self, first: int) -> int:
        if self._coding != b"deflate":
            return 16 + zlib.MAX_WBITS
        # Servers send `deflate` with the zlib wrapping of RFC 1950, as RFC 9110 says, or without it.
        return zlib.MAX_WBITS if first & 0x0F == 8 else -zlib.MAX_WBITS


class Inflaters:
    """Undo several codings, the last one applied first; each is an Inflater."""

    __slots__ = ("_layers",)

    def __init__(self, codings: Sequence[bytes]) -> None:
        self._layers = [Inflater(coding) for coding in reversed(codings)]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes decode to; raises zlib.error as Inflater does."""
        return self._through(data, 0)

    def _through(self, data: bytes, layer: int) -> Iterator[bytes]:
        if layer == len(self._layers):
            yield data
            return
        for piece in self._layers[layer].feed(data):
            yield from self._through(piece, layer + 1)


def _up_to_fault(inflate: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    """Yield what the bytes before the first faulty one decode to; one by one, for a failed call gives nothing."""
    try:
        for at in range(len(data)):
            piece = inflate.decompress(data[at : at + 1])
            if piece:
                yield piece
    except zlib.error:
        return
