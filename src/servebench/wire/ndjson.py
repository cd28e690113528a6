"""Know the line format: one JSON text per line, LF or CRLF behind each, blank lines allowed (ndjson.org)."""

from servebench.wire.sse import Event


class LineDecoder:
    """Turn the bytes of one stream, cut anywhere, into its lines. An unfinished line grows in a buffer."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = bytearray()

    def feed(self, data: bytes) -> list[Event]:
        """Return the lines that these bytes complete, in order, without those that are blank."""
        lines = data.split(b"\n")
        last = lines.pop()
        if lines and self._tail:
            self._tail += lines[0]
            lines[0] = bytes(self._tail)
            self._tail = bytearray()
        self._tail += last
        return [Event(b"", line) for line in lines if line.strip()]

    @property
    def idle(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._tail

    def flush(self) -> Event | None:
        """Return the line left without its end, None when there is none."""
        line, self._tail = bytes(self._tail), bytearray()
        return Event(b"", line) if line.strip() else None
