"""Know how to undo a content coding piece by piece, without waiting for the end."""

import zlib
from collections.abc import Iterator

PIECE_BYTES = 1 << 20
"""Most that comes out at once, so that a small body cannot fill the memory."""

CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})


class Inflater:
    """Undo gzip or deflate; a gzip body may hold several members."""

    __slots__ = ("_coding", "_inflate")

    def __init__(self, coding: bytes) -> None:
        self._coding = coding
        self._inflate: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes decode to, in pieces. Raises zlib.error where they are not of the coding."""
        while data:
            if self._inflate is None:
                self._inflate = zlib.decompressobj(self._window_bits(data[0]))
            piece = self._inflate.decompress(data, PIECE_BYTES)
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
