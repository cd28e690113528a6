"""Know how one HTTP/1 response is framed: status, the headers that matter, body parts, and what may follow.

Syntax is llhttp's (through httptools). A response that breaks it becomes a fault, never an exception. What RFC 9112
lets or makes a client take is taken: folded headers, bare line feeds in a head, blanks behind a chunk's size, a
Content-Length beside chunks (which win; such a connection is not used again).
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import httptools

MAX_HEAD_BYTES = 64 * 1024
MAX_FRAMING_BYTES = 256 * 1024
"""Most bytes of chunk extensions and trailers, reads without a byte of the body, that are taken for framing."""

_KEPT = frozenset(
    {
        b"content-type",
        b"content-encoding",
        b"content-length",
        b"date",
        b"location",
        b"llm_provider-retry-after",
        b"retry-after",
        b"transfer-encoding",
    }
)
_LISTS = frozenset({b"content-encoding", b"transfer-encoding"})
"""Headers of which several make one list."""


class ResponseParser:
    """Take the bytes of one response, cut anywhere; read what it is from the attributes.

    `head_done`: the head of the final response (not 1xx) is complete. `status` None before that. `complete`: the body
    ended by its own framing, so a body that only the end of the connection ends never is. `fault`: what broke the
    protocol, None while nothing did; nothing is parsed after it. `begun`: a byte came. `headers` are those that decide
    how an answer is read, with `keep_all` all of them.
    """

    __slots__ = (
        "_arriving",
        "_doubtful",
        "_framing",
        "_keep_all",
        "_parser",
        "_parts",
        "_received",
        "close_delimited",
        "complete",
        "extra",
        "fault",
        "head_done",
        "headers",
        "keep_alive",
        "length_delimited",
        "status",
    )

    def __init__(self, *, keep_all: bool = False) -> None:
        self._keep_all = keep_all
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._parts: list[bytes] = []
        self._arriving: dict[bytes, bytes] = {}
        self._received = 0
        self._doubtful = False
        self._framing = 0
        self.head_done = False
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self.close_delimited = False
        self.length_delimited = False
        self.extra = False
        self.keep_alive = False
        self.fault: str | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Return the body parts in these bytes, transfer coding removed."""
        self._parts = []
        if self.complete:
            # llhttp takes line ends between messages for nothing, wherever a read is cut; so do we.
            self.extra = self.extra or bool(data.strip(b"\r\n"))
            return self._parts
        if self.fault is not None:
            return self._parts
        if not self.head_done:
            self._received += len(data)
            room = MAX_HEAD_BYTES - self._received
            if room < 0:
                # Stop at the bound, so that it does not matter where a read is cut.
                self._parse(data[:room])
                if not self.head_done and self.fault is None:
                    self.fault = f"response head is longer than {MAX_HEAD_BYTES} bytes"
                data = data[room:]
        if data and self.fault is None:
            self._parse(data)
        if self._parts or self.complete:
            self._framing = 0
        elif self.head_done:
            self._framing += len(data)
            if self._framing > MAX_FRAMING_BYTES and self.fault is None:
                self.fault = f"more than {MAX_FRAMING_BYTES} bytes of framing without a body"
        return self._parts

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fault = "the server switched protocols"
        except httptools.HttpParserError as error:
            if self.complete:
                self.extra = True
            else:
                self.fault = str(error) if self.head_done else f"no head of HTTP/1: {error}"

    def release(self) -> None:
        """Let go of the parser, which refers back here; nothing may be fed afterwards.

        Without that every response would wait for the garbage collector, whose full pass stalls the client.
        """
        del self._parser

    def on_message_begin(self) -> None:
        """Note that bytes follow the message (called by the parser)."""
        if self.complete:
            self.extra = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head; trailers are no part of it (called by the parser)."""
        name = name.lower()
        if (name in _KEPT or self._keep_all) and not self.head_done:
            if b"\n" in value:
                value = b" ".join(value.split())
            if name in _LISTS and name in self._arriving:
                value = self._arriving[name] + b", " + value
            self._arriving[name] = value

    def on_headers_complete(self) -> None:
        """Take the head, unless it is an interim one (called by the parser)."""
        status = self._parser.get_status_code()
        if self.complete:
            return
        if 100 <= status < 200:
            self._arriving.clear()
            return
        self.status = status
        self.headers = self._arriving
        self.head_done = True
        chunked = b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
        self.length_delimited = b"content-length" in self.headers and not chunked
        self._doubtful = chunked and b"content-length" in self.headers
        self.close_delimited = not (chunked or self.length_delimited or status in {204, 304})

    def on_body(self, part: bytes) -> None:
        """Collect a part of the body (called by the parser)."""
        if not self.complete:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        """Note the end of the final message (called by the parser)."""
        if self.head_done and not self.complete:
            self.complete = True
            self.keep_alive = bool(self._parser.should_keep_alive()) and not self._doubtful

    @property
    def begun(self) -> bool:
        """Whether any byte came."""
        return self._received > 0 or self.head_done

    @property
    def http_version(self) -> str:
        """Version of the final response, such as 1.1; nothing is known before its head."""
        return str(self._parser.get_http_version())

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx; False before the head."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent on the connection."""
        return self.complete and self.keep_alive and not self.extra and self.fault is None


def asked_pause(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return Retry-After as it came; LiteLLM hands that of the server behind it on under a prefix."""
    return headers.get(b"retry-after", headers.get(b"llm_provider-retry-after"))


def retry_after_s(value: bytes | None, date: bytes | None) -> float | None:
    """Return a Retry-After in seconds: as it is, or a point in time less the response's own Date; else None.

    The server's clock is compared with itself, so that nobody else's is asked. A time that is past is 0.
    """
    if value is None or len(value) > 40:
        return None
    if re.fullmatch(rb"\s*\d{1,15}(\.\d{1,9})?\s*", value):
        return float(value)
    until, now = _moment(value), None if date is None else _moment(date)
    return None if until is None or now is None else max(0.0, until - now)


def _moment(text: bytes) -> float | None:
    """Return a date of HTTP in seconds; None for what is none."""
    try:
        return parsedate_to_datetime(text.decode("latin-1")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
