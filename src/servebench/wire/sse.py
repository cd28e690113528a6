"""Know the event-stream format: bytes in, events out (WHATWG HTML, section 9.2 "Server-sent events").

Bytes, not text: a line end is CR, LF or CRLF and nothing else, so a read that stops inside a character does no harm.
Each byte is scanned when it arrives and an unfinished line grows in a buffer, so a huge event costs linear time.
"""

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One dispatched event; `name` is empty where the stream gave none, `data` holds the data lines joined by LF."""

    name: bytes
    data: bytes


class EventDecoder:
    """Turn the bytes of one stream, cut anywhere, into its events."""

    __slots__ = ("_after_cr", "_data", "_data_bytes", "_name", "_started", "_tail")

    def __init__(self) -> None:
        self._tail = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = b""
        self._after_cr = False
        self._started = False

    @property
    def pending_bytes(self) -> int:
        """Bytes kept of an event that is not finished yet."""
        return len(self._tail) + self._data_bytes

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete, in order."""
        if (
            # One whole event of the common form, on its own, with nothing of an earlier one waiting.
            data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and b"\r" not in data
            and not (self._tail or self._data or self._name)
        ):
            self._started = True
            self._after_cr = False
            return [Event(b"", data[6:-2])]
        return self._feed_lines(data)

    def flush(self) -> Event | None:
        """Return the event left without its blank line at the end of the body, None when there is none.

        The format says to discard it; whether it counts is for the caller to decide.
        """
        events: list[Event] = []
        if self._tail:
            line = bytes(self._tail)
            self._tail.clear()
            self._line(line.removeprefix(BOM) if not self._started else line, events)
        self._line(b"", events)
        return events[0] if events else None

    def _feed_lines(self, data: bytes) -> list[Event]:
        if not self._started:
            data = self._start(data)
        if not data:
            return []
        if self._after_cr:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        last = lines.pop()
        events: list[Event] = []
        if lines:
            if self._tail:
                self._tail += lines[0]
                lines[0] = bytes(self._tail)
                self._tail.clear()
            for line in lines:
                self._line(line, events)
        self._tail += last
        return events

    def _start(self, data: bytes) -> bytes:
        """Return what follows an optional byte-order mark; nothing while it is not known whether there is one."""
        head = bytes(self._tail) + data
        self._tail.clear()
        if len(head) < len(BOM) and BOM.startswith(head):
            self._tail += head
            return b""
        self._started = True
        return head.removeprefix(BOM)

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append(Event(self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
                self._data.clear()
                self._data_bytes = 0
            self._name = b""
            return
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
        elif field == b"event":
            self._name = value
        # A comment has an empty field name; id, retry and unknown fields say nothing about the answer.
