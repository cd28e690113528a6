"""Know one response as it unfolds: which read completed which event, and what the whole said in the end.

The order of work per read is: framing (http), content coding, event stream, dialect, account. Nothing here waits or
looks at a clock; stamps come with the bytes.
"""

import zlib

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer
from servebench.wire.account import Account
from servebench.wire.coding import CODINGS, Inflater
from servebench.wire.endpoint import Endpoint, PayloadError
from servebench.wire.http import ResponseParser
from servebench.wire.lenient import body_error_text, clip, excerpt
from servebench.wire.outcome import End, Facts, Ruling, judge
from servebench.wire.sse import EventDecoder

__all__ = ["End", "Timeline"]

MAX_EVENT_BYTES = 64 << 20
MAX_BODY_BYTES = 64 << 20
MAX_REFUSAL_BYTES = 64 << 10

_INT32_MAX = 2**31 - 1
_SPACE = b" \t\r\n"
_STREAM_STARTS = frozenset(b"deir:\xef")
"""First bytes of an event stream: data, event, id, retry, a comment, a byte-order mark."""


_UNKNOWN, _STREAM, _WHOLE, _TEXT = range(4)
"""What a body is taken for: not known yet, events, one JSON answer, or text that is no answer. Plain numbers, because
reading a member of an enumeration costs a tenth of what an event may cost."""


class Timeline:
    """Follow one response: `feed` every read, then `finish` once.

    A finish reason alone does not make the answer done, because usage may follow it.
    """

    __slots__ = (
        "_account",
        "_body",
        "_events",
        "_http",
        "_inflater",
        "_mode",
        "_waiting",
        "_whole",
        "headers_ns",
        "response_bytes",
    )

    def __init__(self, endpoint: Endpoint, *, stream: bool = True, keep_text: bool = False) -> None:
        self._http = ResponseParser()
        self._events = EventDecoder()
        self._account = Account(endpoint, keep_text=keep_text)
        self._whole = endpoint.decode_body
        self._inflater: Inflater | None = None
        self._mode = _UNKNOWN
        self._body = bytearray()
        self._waiting = 0
        self.headers_ns: int | None = None
        self.response_bytes = 0

    @property
    def head_done(self) -> bool:
        """Whether the final response head is complete."""
        return self._http.head_done

    @property
    def status(self) -> int | None:
        """Status of the final response, None before its head."""
        return self._http.status

    @property
    def first_token_ns(self) -> int | None:
        """Stamp of the first token event, None before it."""
        return self._account.first_token_ns

    @property
    def answer_done(self) -> bool:
        """Whether nothing that follows can change the answer."""
        return self._account.closed

    @property
    def message_done(self) -> bool:
        """Whether the HTTP message ended by its own framing."""
        return self._http.complete

    @property
    def length_delimited(self) -> bool:
        """Whether the body ends after a stated length: then its last read looks like any other."""
        return self._http.length_delimited

    @property
    def keep_alive(self) -> bool:
        """Whether another request may be sent on the connection."""
        return self._http.reusable

    @property
    def read_count(self) -> int:
        """Reads fed so far."""
        return self._account.read + 1

    def feed(self, data: bytes, stamp_ns: int, delay_ns: int) -> None:
        """Take the bytes of one read. `delay_ns` -1 = no kernel stamp, then `stamp_ns` is the client's own clock."""
        account, http = self._account, self._http
        account.stamp_ns = stamp_ns
        account.delay_ns = delay_ns if delay_ns <= _INT32_MAX else _INT32_MAX
        account.read += 1
        self.response_bytes += len(data)
        was_complete = http.complete
        parts = http.feed(data)
        if self.headers_ns is None and http.head_done:
            self._take_head(stamp_ns)
        for part in parts:
            if account.closed:
                break
            if self._inflater is None:
                self._take(part)
            else:
                self._inflate(self._inflater, part)
        if http.complete and not was_complete:
            self._end_body()

    def finish(self, end: End, now_ns: int, detail: str | None = None, error_class: str | None = None) -> Answer:
        """Return what the response said, now that reading stopped for the reason `end`.

        `detail` is what the system said about the end. `error_class` is a finer word for a connect error, such as
        connection_refused.
        """
        account, http = self._account, self._http
        closed = http.close_delimited and end in {End.EOF, End.COMPLETE} and http.fault is None
        if closed or self._mode == _TEXT:
            self._end_body()
        facts = Facts(
            status=http.status,
            received=self.response_bytes,
            http_fault=http.fault,
            refusal=None if self._is_success() else self._refusal(),
            fault=account.fault,
            terminal=account.terminal_ns is not None,
            evidence=account.evidence,
            silent=account.event_count == 0 and not self._body,
        )
        ruling = judge(facts, end, detail)
        return self._answer(ruling, now_ns, error_class)

    def _answer(self, ruling: Ruling, now_ns: int, error_class: str | None) -> Answer:
        account, http = self._account, self._http
        streamed = self._mode == _STREAM
        tokens, source = account.count(streamed=streamed)
        usage = account.usage
        connect = ruling.outcome is Outcome.CONNECT_ERROR
        return Answer(
            outcome=ruling.outcome,
            error_class=error_class if connect and error_class else ruling.error_class,
            error_message=None if ruling.message is None else clip(ruling.message),
            http_status=http.status,
            headers_ns=self.headers_ns,
            end_ns=self._end_ns(now_ns),
            finish_reason=_word(account.finish_reason),
            streamed=streamed if http.head_done else None,
            model=_word(account.model),
            input_tokens=None if usage is None else usage.input_tokens,
            output_tokens=tokens,
            cached_tokens=None if usage is None else usage.cached_tokens,
            reasoning_tokens=None if usage is None else usage.reasoning_tokens,
            token_source=source,
            retry_after_s=_seconds(http.headers.get(b"retry-after")),
            response_bytes=self.response_bytes,
            chunks=account.chunks() if http.head_done else None,
            text=account.text() if http.head_done else None,
        )

    def _end_ns(self, now_ns: int) -> int:
        account = self._account
        if account.fault_ns is not None:
            return account.fault_ns
        return now_ns if account.terminal_ns is None else account.terminal_ns

    def _take_head(self, stamp_ns: int) -> None:
        http = self._http
        self.headers_ns = stamp_ns
        kind = http.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind == b"text/event-stream":
            self._mode = _STREAM
        elif not self._is_success() or kind in {b"text/html", b"application/xhtml+xml"}:
            self._mode = _TEXT
        elif kind == b"application/json" or kind.endswith(b"+json"):
            self._mode = _WHOLE
        coding = http.headers.get(b"content-encoding", b"identity").strip().lower()
        if coding in CODINGS:
            self._inflater = Inflater(coding)
        elif coding not in {b"identity", b""}:
            self._account.fail(Ruling(Outcome.MALFORMED, "unknown_coding", f"content-encoding {excerpt(coding)}"))

    def _inflate(self, inflater: Inflater, part: bytes) -> None:
        try:
            for piece in inflater.feed(part):
                if not self._account.closed:
                    self._take(piece)
        except zlib.error as error:
            self._account.fail(Ruling(Outcome.MALFORMED, "malformed_coding", str(error)))

    def _take(self, part: bytes) -> None:
        if self._mode == _UNKNOWN:
            self._mode = _sniff(part)
        if self._mode != _STREAM:
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
        self._waiting += len(part)
        if self._waiting > MAX_EVENT_BYTES:
            account.fail(Ruling(Outcome.MALFORMED, "event_too_big", f"no event ended within {MAX_EVENT_BYTES} bytes"))

    def _keep(self, part: bytes) -> None:
        if self._mode != _WHOLE:
            self._body += part[: max(0, MAX_REFUSAL_BYTES - len(self._body))]
            return
        self._body += part
        if len(self._body) > MAX_BODY_BYTES:
            fault = Ruling(Outcome.MALFORMED, "body_too_big", f"the answer is longer than {MAX_BODY_BYTES} bytes")
            self._account.fail(fault)

    def _end_body(self) -> None:
        """Account for what waited for the clean end of the body."""
        account = self._account
        if account.closed:
            return
        if self._mode == _STREAM:
            event = self._events.flush()
            if event is not None:
                account.add_pending(event)
        elif self._mode == _WHOLE and self._body.strip():
            try:
                account.add_whole(self._whole(bytes(self._body)))
            except PayloadError as error:
                account.fail(Ruling(Outcome.MALFORMED, "malformed_body", str(error)))
        elif self._body.strip() and self._is_success():
            account.fail(Ruling(Outcome.MALFORMED, "not_a_stream", self._strange_body()))

    def _is_success(self) -> bool:
        return self._http.status is not None and 200 <= self._http.status < 300

    def _strange_body(self) -> str:
        kind = self._http.headers.get(b"content-type", b"no content type")
        return f"{excerpt(kind, 100)}: {excerpt(bytes(self._body[:400]))}"

    def _refusal(self) -> str | None:
        """Return what a non-2xx response says: where it redirects to, its error, or its first bytes."""
        location = self._http.headers.get(b"location")
        if location is not None:
            return f"Location: {excerpt(location, 400)}"
        if self._account.fault is not None:
            return self._account.fault.message
        return body_error_text(bytes(self._body)) if self._body else None


def _sniff(part: bytes) -> int:
    """Return what a body without a telling content type is, by its first byte that is no space."""
    text = part.lstrip(_SPACE)
    if not text:
        return _UNKNOWN
    if text[:1] in {b"{", b"["}:
        return _WHOLE
    return _STREAM if text[0] in _STREAM_STARTS else _TEXT


def _seconds(value: bytes | None) -> float | None:
    """Return a Retry-After in seconds; None for a date, which means nothing without a clock."""
    if value is None or not value.strip().isdigit() or len(value) > 15:
        return None
    return float(value)


def _word(value: str | None) -> str | None:
    """Return a server's word as it may be written: bounded, lone surrogates replaced; None for none."""
    return clip(value) if value else None
