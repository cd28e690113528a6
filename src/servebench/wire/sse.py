"""Know the event-stream format: bytes in, events out (WHATWG HTML, section 9.2 "Server-sent events").

Bytes, not text: a line end is CR, LF or CRLF and nothing else, so a read that stops inside a character does no harm.
Each byte is scanned when it arrives and an unfinished line grows in a buffer, so a huge event costs linear time.
"""

import msgspec

BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"


_FIELDS = frozenset({b"data", b"event", b"id", b"retry"})


def is_event_stream(text: bytes) -> bool:
    """Return whether every line of a stream's beginning is one that the format knows; the last one may be cut."""
    *lines, cut = text.removeprefix(BOM).replace(b"\r", b"\n").split(b"\n")
    return all(map(_is_known, lines)) and (_is_known(cut) or any(field.startswith(cut) for field in _FIELDS))


def _is_known(line: bytes) -> bool:
    return not line or line.partition(b":")[0] in {b"", *_FIELDS}


class Event(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event; `name` is empty where the stream gave none, `data` holds the data lines joined by LF."""

    name: bytes
    data: bytes


class EventDecoder:
    """Turn the bytes of one stream, cut anywhere, into its events.

    Kept between feeds: the line and the event that are not complete yet, whether the last byte was a CR (an LF that
    follows belongs to it), and whether the place of a byte-order mark is passed.
    """

    __slots__ = ("_after_cr", "_data", "_idle", "_name", "_started", "_tail")

    def __init__(self) -> None:
        self._tail = bytearray()
        self._data: list[bytes] = []
        self._name = b""
        self._idle = True
        self._after_cr = False
        self._started = False

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete, in order."""
        if (
            self._idle
            and data.find(b"\n") == len(data) - 2
            and data[-1] == _LF
            and data[:6] == b"data: "
            and _CR not in data
        ):
            # The common read: exactly one event of one data line, nothing incomplete before it.
            self._started, self._after_cr = True, False
            return [Event(b"", data[6:-2])]
        events: list[Event] = []
        text = self._clean(data)
        if text:
            self._lines(text, events)
        return events

    @property
    def idle(self) -> bool:
        """Whether the next byte begins an event."""
        return self._started and self._idle and not self._after_cr

    def flush(self) -> Event | None:
        """Return the event left without its blank line at the end of the body, None when there is none.

        The format says to discard it; whether it counts is for the caller to decide.
        """
        events: list[Event] = []
        self._lines(b"\n\n", events)
        return events[0] if events else None

    def _clean(self, data: bytes) -> bytes:
        """Return the bytes with LF as the only line end and without a leading byte-order mark."""
        if not self._started:
            data = self._start(data)
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if _CR in data:
            self._after_cr = data[-1] == _CR
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _start(self, data: bytes) -> bytes:
        """Return what follows an optional byte-order mark; nothing while it is not known whether there is one."""
        head = bytes(self._tail) + data
        self._tail.clear()
        if BOM.startswith(head) and head != BOM:
            self._tail += head
            self._idle = False
            return b""
        self._started = True
        return head.removeprefix(BOM)

    def _lines(self, text: bytes, events: list[Event]) -> None:
        lines = text.split(b"\n")
        last = lines.pop()
        if lines and self._tail:
            self._tail += lines[0]
            lines[0] = bytes(self._tail)
            self._tail = bytearray()
        data = self._data
        for line in lines:
            if line[:6] == b"data: ":
                data.append(line[6:])
            elif line:
                self._field(line)
            else:
                if data:
                    events.append(Event(self._name, data[0] if len(data) == 1 else b"\n".join(data)))
                    data.clear()
                self._name = b""
        self._tail += last
        self._idle = not (self._tail or data or self._name)

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        # A comment has an empty field name; id, retry and unknown fields say nothing about the answer.
