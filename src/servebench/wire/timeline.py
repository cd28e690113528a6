"""Know one response as it unfolds: which read completed which event, and what the whole said in the end.

The order of work per read is: framing (http), content coding and form of the body (body), event stream (sse), dialect
(endpoint), account. Nothing here waits or looks at a clock; stamps come with the bytes.
"""

from collections import deque

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer
from servebench.wire.account import Account
from servebench.wire.body import Body
from servebench.wire.endpoint import Endpoint
from servebench.wire.http import ResponseParser, asked_pause, retry_after_s
from servebench.wire.lenient import clip, excerpt
from servebench.wire.outcome import End, Facts, Ruling, judge
from servebench.wire.plain import CHUNK_END, DecodePlain, plain_texts, same_read, take_plain

__all__ = ["End", "Timeline"]

REDIRECTS = frozenset({301, 302, 307, 308})
"""Statuses after which the same request may be sent elsewhere; 303 asks for another one."""

_INT32_MAX = 2**31 - 1
_MANY_BYTES = 4 << 20
"""Bytes after which the number of events is looked at; too many cannot be in fewer, unless a coding packs them."""

_LONGEST_PAUSE = 64
"""Most reads that go without a look for plain ones, after such looks in vain: 1, 2, 4, ..."""


class Timeline:
    """Follow one response: `feed` every read, then `finish` once.

    `stream` is whether a stream was asked for; what came is told by the answer itself, and only where it tells nothing
    is it taken for what was asked. `headers_ns` is None before the head is complete. A read that holds `end_mark` may
    end the answer.
    """

    __slots__ = (
        "_account",
        "_body",
        "_decode_plain",
        "_http",
        "_pause",
        "_plain_next",
        "_wait",
        "end_mark",
        "headers_ns",
        "response_bytes",
    )

    def __init__(self, endpoint: Endpoint, *, stream: bool = True, keep_text: bool = False) -> None:
        self._http = ResponseParser()
        self._account = Account(endpoint, keep_text=keep_text)
        self._body = Body(endpoint, self._account, stream=stream)
        self._decode_plain: DecodePlain | None = endpoint.decode_plain
        self._plain_next = False
        self._pause = self._wait = 0
        self.end_mark = endpoint.end_mark
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
    def token_events(self) -> int:
        """Events so far that carry generated text."""
        return self._account.token_events

    @property
    def answer_done(self) -> bool:
        """Whether nothing that follows can change the answer: terminal event, error event, or a fault.

        A finish reason alone does not make it done, because usage may follow.
        """
        return self._account.closed

    @property
    def answer_done_ns(self) -> int | None:
        """Stamp of the read that made it done, None before."""
        account = self._account
        if not account.closed:
            return None
        return account.terminal_ns if account.fault_ns is None else account.fault_ns

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
    def broken(self) -> bool:
        """Whether the bytes are no HTTP any more, so that reading on is pointless."""
        return self._http.fault is not None

    @property
    def location(self) -> str | None:
        """Where a redirect leads, as the server wrote it; None without one."""
        status, location = self._http.status, self._http.headers.get(b"location")
        if location is None or status not in REDIRECTS:
            return None
        return location.decode("latin-1")

    @property
    def read_count(self) -> int:
        """Reads fed so far."""
        return self._account.read + 1

    def feed(self, data: bytes, stamp_ns: int, delay_ns: int) -> None:
        """Take the bytes of one read. `delay_ns` -1 = no kernel stamp, then `stamp_ns` is the client's own clock."""
        self._account.begin_read(stamp_ns, min(delay_ns, _INT32_MAX))
        self.response_bytes += len(data)
        if self._decode_plain is None:
            self._parse(data)
        else:
            self._parse_chunks(data, self._decode_plain)
        self._bound()

    def _parse_chunks(self, data: bytes, decode: DecodePlain) -> None:
        """Parse a read of several sorts of chunks one by one, those of the common sort together."""
        begin = 0
        while begin < len(data):
            if self._plain_next:
                texts, taken = plain_texts(data[begin:], decode)
                if texts:
                    self._account.add_plain(same_read(texts, self._account.stamp_ns, self._account.delay_ns))
                begin += taken
                self._note_look(found=bool(texts), more=begin == len(data))
            end = data.find(CHUNK_END, begin) + len(CHUNK_END)
            if end < len(CHUNK_END):
                end = len(data)
            if begin < end:
                self._parse(data[begin:end])
            begin = end

    def _parse(self, data: bytes) -> None:
        """Take bytes of the read at hand, of any sort, and see whether the common sort may follow."""
        account, http = self._account, self._http
        was_complete = http.complete
        parts = http.feed(data)
        if self.headers_ns is None and http.head_done:
            self.headers_ns = account.stamp_ns
            self._body.open(http)
        for part in parts:
            if account.closed:
                break
            self._body.feed(part)
        if http.complete and not was_complete:
            self._body.end()
        if self._wait:
            self._wait -= 1
        elif self._decode_plain is not None:
            self._plain_next = self._may_be_plain(data, parts)

    def feed_plain(self, reads: deque[tuple[bytes, int, int]]) -> int:
        """Take the reads on the left that are of the common sort, as `feed` would; return how many. Some may stay.

        After a return of 0 the next read is for `feed`.
        """
        if not self._plain_next or self._decode_plain is None:
            return 0
        account, run = self._account, take_plain(reads, self._decode_plain)
        self._note_look(found=run.reads > 0, more=run.reads > 0)
        if run.reads:
            account.add_plain(run)
            self.response_bytes += run.size
            self._bound()
        return run.reads

    def _note_look(self, *, found: bool, more: bool) -> None:
        """Look less often for plain events in an answer of other ones; `more` = the next bytes may be plain again."""
        self._pause = 0 if found else min(2 * self._pause + 1, _LONGEST_PAUSE)
        self._wait = self._pause
        self._plain_next = more

    def _bound(self) -> None:
        """Close an account of more events than any answer has."""
        if self.response_bytes > _MANY_BYTES:
            self._account.bound()
            self._plain_next = self._plain_next and not self._account.closed

    def _may_be_plain(self, data: bytes, parts: list[bytes]) -> bool:
        """Whether the next read begins where a chunk and an event do, and a plain event is nothing new.

        The last bytes of the body are two LF and what follows them is no body: there a chunk has ended.
        """
        ended = data.endswith(CHUNK_END) and bool(parts) and parts[-1].endswith(b"\n\n")
        return ended and self._body.between_events and self._account.under_way

    def finish(self, end: End, now_ns: int, detail: str | None = None, error_class: str | None = None) -> Answer:
        """Return what the response said, now that reading stopped for the reason `end`; the last call on a timeline.

        `detail` is what the system said about the end. `error_class` is a finer word for a connect error, such as
        connection_refused.
        """
        account, body, http = self._account, self._body, self._http
        closed = http.close_delimited and end in {End.EOF, End.COMPLETE} and http.fault is None
        if closed or body.is_text:
            body.end()
        facts = Facts(
            status=http.status,
            received=self.response_bytes,
            http_fault=http.fault,
            refusal=None if http.is_success else self._refusal(),
            fault=account.fault,
            terminal=account.over,
            evidence=account.evidence,
            silent=body.silent,
        )
        http.release()
        return self._answer(judge(facts, end, detail), now_ns, error_class)

    def _answer(self, ruling: Ruling, now_ns: int, error_class: str | None) -> Answer:
        account, http = self._account, self._http
        streamed = self._body.streamed
        tokens, source = account.count(streamed=streamed and http.is_success)
        usage = account.usage
        connect = ruling.outcome is Outcome.CONNECT_ERROR
        return Answer(
            outcome=ruling.outcome,
            error_class=error_class if connect and error_class else ruling.error_class,
            error_message=_word(ruling.message),
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
            retry_after_s=retry_after_s(asked_pause(http.headers), http.headers.get(b"date")),
            response_bytes=self.response_bytes,
            chunks=account.chunks() if http.head_done else None,
            text=account.text() if http.head_done else None,
            asides=account.asides(),
            tools=account.tools(),
        )

    def _end_ns(self, now_ns: int) -> int:
        account = self._account
        if account.fault_ns is not None:
            return account.fault_ns
        return now_ns if account.terminal_ns is None else account.terminal_ns

    def _refusal(self) -> str | None:
        location = self._http.headers.get(b"location")
        return self._body.refusal() if location is None else f"Location: {excerpt(location, 400)}"


def _word(value: str | None) -> str | None:
    """Return a server's word as it may be written: bounded, lone surrogates replaced; None for none."""
    return clip(value) if value else None
