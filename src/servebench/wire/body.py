"""Know what the body of a response is read as: events, one JSON answer, or text that is no answer."""

import zlib

from servebench.core.outcomes import Outcome
from servebench.wire.account import Account
from servebench.wire.coding import Inflaters, codings_of
from servebench.wire.endpoint import Endpoint, PayloadError
from servebench.wire.http import ResponseParser
from servebench.wire.lenient import body_error_text, excerpt
from servebench.wire.ndjson import LineDecoder
from servebench.wire.outcome import Ruling
from servebench.wire.sse import BOM, EventDecoder, is_event_stream

MAX_EVENT_BYTES = 4 << 20
MAX_BODY_BYTES = 8 << 20
MAX_TEXT_BYTES = 64 << 10
"""Most that is kept of an event, of a JSON answer, and of text that is only quoted from.

They bound memory and time: a hostile 4 MiB of JSON becomes 100 MiB for a moment, and holds the loop for most of a
second.
"""

_LINE_TYPES = frozenset(
    {b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/x-jsonlines"}
)

_UNKNOWN, _EVENTS, _WHOLE, _TEXT = range(4)
# Plain numbers, because reading a member of an enumeration would cost a tenth of what an event may cost.

_STREAM_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_OPENING_BYTES = 400
"""How much of a stream without an event is kept, to say what it was instead."""


class Body:
    """Read the body of one response into its account: `open` at the head, `feed` each part, `end` at a clean end."""

    __slots__ = (
        "_account",
        "_content_type",
        "_decode_event",
        "_decode_whole",
        "_events",
        "_inflater",
        "_kept",
        "_lines",
        "_mode",
        "_ok",
        "_opening",
        "_said",
        "_waiting",
    )

    def __init__(self, endpoint: Endpoint, account: Account, *, stream: bool) -> None:
        self._account = account
        self._decode_event, self._decode_whole = endpoint.decode_event, endpoint.decode_body
        self._lines = endpoint.lines and stream
        self._events: EventDecoder | LineDecoder = EventDecoder()
        self._inflater: Inflaters | None = None
        self._mode = _UNKNOWN
        self._said = _TEXT if stream else _WHOLE
        self._kept = bytearray()
        self._opening = b""
        self._waiting = 0
        self._ok = False
        self._content_type = b""

    @property
    def streamed(self) -> bool:
        """Whether the body is an event stream, or says so and has not begun."""
        return self._mode == _EVENTS or (self._mode == _UNKNOWN and self._said == _EVENTS)

    @property
    def silent(self) -> bool:
        """Whether the body held nothing: no event and no byte of another form."""
        return not self._kept and self._account.event_count == 0

    @property
    def between_events(self) -> bool:
        """Whether the next byte of an event stream without content coding begins an event."""
        return self._mode == _EVENTS and self._inflater is None and self._events.idle

    @property
    def is_text(self) -> bool:
        """Whether the body is no answer in any form."""
        return self._mode == _TEXT

    def open(self, http: ResponseParser) -> None:
        """Take the head: what the body says it is. Servers err there, so that its first bytes have the last word."""
        self._ok = http.is_success
        self._content_type = http.headers.get(b"content-type", b"")
        kind = self._content_type.partition(b";")[0].strip().lower()
        if kind == b"text/event-stream":
            self._said = _EVENTS
        elif self._lines and kind in _LINE_TYPES:
            self._read_lines()
        elif not self._ok:
            self._mode = _TEXT
        elif kind in {b"text/html", b"application/xhtml+xml"}:
            self._said = _TEXT
        elif kind == b"application/json" or kind.endswith(b"+json"):
            self._said = _WHOLE
        codings, refused = codings_of(
            http.headers.get(b"content-encoding", b""), http.headers.get(b"transfer-encoding", b"")
        )
        if refused is not None:
            self._fail("unknown_coding", f"content-encoding {excerpt(refused)}")
        elif codings:
            self._inflater = Inflaters(codings)

    def feed(self, part: bytes) -> None:
        """Take a part of the body as the framing gave it."""
        if self._inflater is None:
            self._take(part)
            return
        try:
            for piece in self._inflater.feed(part):
                if self._account.closed:
                    return
                self._take(piece)
                self._account.bound()
                if self._mode in {_TEXT, _UNKNOWN} and self._is_bomb(piece):
                    return
        except zlib.error as error:
            if not self._account.closed:
                self._fail("malformed_coding", str(error))

    def end(self) -> None:
        """Account for what waited for the clean end of the body."""
        account = self._account
        if account.closed:
            return
        if self.streamed:
            self._end_stream()
        elif not self._ok or not self._kept.strip():
            return
        elif self._mode == _WHOLE:
            try:
                account.add_whole(self._decode_whole(bytes(self._kept).removeprefix(BOM)))
            except PayloadError as error:
                self._fail("malformed_body", str(error))
        else:
            self._fail_as_no_stream(bytes(self._kept))

    def refusal(self) -> str | None:
        """Return what a refused request's body says: its error, else its first bytes; None where it says nothing."""
        if self._account.fault is not None:
            return self._account.fault.message
        return body_error_text(bytes(self._kept)) if self._kept else None

    def _take(self, part: bytes) -> None:
        if self._mode == _UNKNOWN:
            part = self._begin(part)
        if self._mode != _EVENTS:
            self._keep(part)
            return
        account = self._account
        events = self._events.feed(part)
        for event in events:
            account.add(event)
            if account.closed:
                return
        if events:
            self._waiting = 0
            return
        if len(self._opening) < _OPENING_BYTES and not account.event_count:
            self._opening += part[:_OPENING_BYTES]
        self._waiting += len(part)
        if self._waiting > MAX_EVENT_BYTES:
            self._fail("event_too_big", f"no event ended within {MAX_EVENT_BYTES} bytes")

    def _begin(self, part: bytes) -> bytes:
        """Decide what the body is, if these bytes tell; return what is to be taken as that."""
        text = bytes(self._kept) + part
        if self._said == _EVENTS:
            self._mode = _sniff_said(text)
            if self._mode == _UNKNOWN:
                self._events.feed(part)
            elif self._mode != _EVENTS:
                text = text.lstrip(b" \t\r\n")
        else:
            text = text.lstrip(b" \t\r\n")
            self._mode = _sniff(text, self._said)
            self._kept.clear()
        if self._lines and self._mode == _WHOLE and self._said != _WHOLE:
            self._read_lines()
        return text if self._mode != _UNKNOWN or self._said != _EVENTS else b""

    def _read_lines(self) -> None:
        self._mode, self._events = _EVENTS, LineDecoder()

    def _read_lines_said_to_be_whole(self) -> None:
        """Read on as lines where the first line, as a whole answer of the dialect, would not be over."""
        self._lines = False
        kept = bytes(self._kept)
        try:
            if self._decode_event(kept.partition(b"\n")[0]).done:
                return
        except PayloadError:
            return
        self._kept.clear()
        self._read_lines()
        self._take(kept)

    def _end_stream(self) -> None:
        account = self._account
        event = self._events.flush()
        if not account.event_count and event is None and not is_event_stream(self._opening):
            self._fail_as_no_stream(self._opening)
        elif event is None or account.add_pending(event):
            account.settle()

    def _is_bomb(self, piece: bytes) -> bool:
        """Return whether more came out of a coding than is looked at; of text the beginning is kept already."""
        self._waiting += len(piece)
        if self._waiting <= MAX_BODY_BYTES:
            return False
        if self._mode == _TEXT:
            self._inflater = None
        else:
            self._fail("body_too_big", f"nothing began within {MAX_BODY_BYTES} bytes")
        return True

    def _fail_as_no_stream(self, text: bytes) -> None:
        kind = excerpt(self._content_type, 100) or "no content type"
        self._fail("not_a_stream", f"{kind}: {excerpt(text, 380)}")

    def _keep(self, part: bytes) -> None:
        if self._mode != _WHOLE:
            self._kept += part[: max(0, MAX_TEXT_BYTES - len(self._kept))]
            return
        self._kept += part
        if self._lines and b"\n" in part:
            self._read_lines_said_to_be_whole()
        elif len(self._kept) > MAX_BODY_BYTES:
            self._fail("body_too_big", f"the answer is longer than {MAX_BODY_BYTES} bytes")

    def _fail(self, error_class: str, message: str) -> None:
        self._account.fail(Ruling(Outcome.MALFORMED, error_class, message))


def _sniff_said(text: bytes) -> int:
    """Return what a body that calls itself an event stream is, by its first byte that is no space."""
    first = text.lstrip(b" \t\r\n")[:1]
    if first in {b"{", b"["}:
        return _WHOLE
    return _UNKNOWN if not first else _TEXT if first == b"<" else _EVENTS


def _sniff(text: bytes, said: int) -> int:
    """Return what a body is by its first bytes, without spaces before them, else what it says it is."""
    text = text.removeprefix(BOM)
    if text[:1] in {b"{", b"["}:
        return _WHOLE
    if text.startswith(_STREAM_STARTS):
        return _EVENTS
    undecided = BOM.startswith(text) or any(start.startswith(text) for start in _STREAM_STARTS)
    return _UNKNOWN if undecided else said
