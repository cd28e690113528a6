"""Know what the events of one answer add up to: chunk columns, counts, text, and whether the answer is over."""

from array import array

from servebench.core.outcomes import ChunkKind, Outcome, TokenSource
from servebench.core.records import Chunks, ToolCall
from servebench.wire.endpoint import KIND_CODE, Called, Delta, Ending, Endpoint, PayloadError, Usage
from servebench.wire.lenient import body_error_text, sound
from servebench.wire.outcome import Ruling
from servebench.wire.plain import Run
from servebench.wire.sse import Event

_LAST_TOKEN_CODE = KIND_CODE[ChunkKind.REFUSAL]
_OTHER = KIND_CODE[ChunkKind.OTHER]
_ERROR = KIND_CODE[ChunkKind.ERROR]

MAX_TEXT = 16 << 20
"""Most characters of generated text that are kept, about; of an answer with more none is."""

MAX_EVENTS = 1 << 20
"""Most events of one answer, about; each keeps 15 bytes, 22 where it tells tokens and choice."""

_MOST_SHORT = (1 << 16) - 1
"""Highest number of a read that two bytes hold."""


class Account:
    """Add up events; `stamp_ns`, `delay_ns` and `read`, from 0, are those of the read being parsed.

    `closed`: nothing that follows can change the answer. `fault`: what was wrong inside the answer, `fault_ns` its
    stamp.
    """

    __slots__ = (
        "_asides",
        "_call_of",
        "_calls",
        "_choices",
        "_decode",
        "_delays",
        "_done_ns",
        "_ended",
        "_ending",
        "_finish_ns",
        "_first_token_event",
        "_keep_text",
        "_kinds",
        "_ns",
        "_reads",
        "_room",
        "_seen",
        "_settled",
        "_text",
        "_tokens",
        "_usage_event",
        "_whole_evidence",
        "closed",
        "delay_ns",
        "fault",
        "fault_ns",
        "finish_reason",
        "first_token_ns",
        "model",
        "read",
        "stamp_ns",
        "usage",
    )

    def __init__(self, endpoint: Endpoint, *, keep_text: bool) -> None:
        self._decode = endpoint.decode_event
        self._ending = endpoint.ending
        self._keep_text = keep_text
        self._room = MAX_TEXT
        self._text: list[str] = []
        self._asides: dict[tuple[int, int], list[str]] = {}
        self._calls: list[tuple[str, list[str]]] = []
        self._call_of: dict[int, int] = {}
        self._ns = array("q")
        self._delays = array("i")
        self._kinds = array("b")
        self._reads = array("H")
        self._choices = array("b")
        self._tokens = array("i")
        self._first_token_event = -1
        self._usage_event = -1
        self._seen = 0
        self._ended = 0
        self._done_ns: int | None = None
        self._finish_ns: int | None = None
        self._whole_evidence = False
        self._settled = False
        self.stamp_ns = 0
        self.delay_ns = -1
        self.read = -1
        self.first_token_ns: int | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.closed = False
        self.fault: Ruling | None = None
        self.fault_ns: int | None = None

    @property
    def terminal_ns(self) -> int | None:
        """Stamp of the terminal signal: the dialect's own, else the finish reason of the last choice; None without.

        Text that follows a finish reason moves that to its own read: the answer was not over before.
        """
        if self._done_ns is not None:
            return self._done_ns
        if self._finish_ns is None or self._ending is not Ending.FINISH or self._ended != self._seen:
            return None
        last = self._last_token_event()
        return self._finish_ns if last < 0 else max(self._finish_ns, self._ns[last])

    @property
    def over(self) -> bool:
        """Whether the answer ended as its dialect says it does."""
        return self._settled or self.terminal_ns is not None

    @property
    def evidence(self) -> bool:
        """Whether there is any sign of an answer: generated text, a finish reason, a settled end."""
        return self._ended != 0 or self._whole_evidence or self._settled or self.first_token_ns is not None

    @property
    def token_events(self) -> int:
        """Events so far that carry generated text."""
        return sum(self._kinds.count(code) for code in range(_LAST_TOKEN_CODE + 1))

    @property
    def event_count(self) -> int:
        """Events accounted for so far."""
        return len(self._ns)

    def begin_read(self, stamp_ns: int, delay_ns: int) -> None:
        """Take the stamp and the delay of the next read, before its events."""
        self.stamp_ns = stamp_ns
        self.delay_ns = delay_ns
        self._count_reads(1)

    def add(self, event: Event) -> None:
        """Account for one complete event."""
        try:
            delta = self._decode(event.data)
        except PayloadError as error:
            # Where the event is named error, that says more and replaces this.
            delta = Delta(_OTHER)
            self.fail(Ruling(Outcome.MALFORMED, "malformed_event", str(error)))
        if event.name:
            delta = _named(event, delta)
        kind = delta.kind
        self._ns.append(self.stamp_ns)
        self._delays.append(self.delay_ns)
        self._kinds.append(kind)
        self._reads.append(self.read)
        self._seen |= delta.seen
        if kind > _LAST_TOKEN_CODE:
            self._take_sign(delta)
        elif self.first_token_ns is None:
            self.first_token_ns = self.stamp_ns
            self._first_token_event = len(self._ns) - 1
        if self._keep_text and self._room > 0:
            text = delta.text
            if text:
                self._text.append(text)
                self._room -= len(text)
            if delta.aside:
                self._keep_aside(delta, delta.aside)
        if delta.usage is not None or delta.ended or delta.choice or delta.tokens is not None:
            self._take_rest(delta)
        if self.model is None:
            self.model = delta.model or None

    @property
    def under_way(self) -> bool:
        """Whether an event with text of choice 0, and nothing else, would change nothing but columns and text."""
        return self.first_token_ns is not None and self.model is not None and not self.closed

    def add_plain(self, run: Run) -> None:
        """Account for the plain events of the next reads, once `under_way`."""
        count = len(run.texts)
        self._ns.extend(run.stamps_ns)
        self._delays.extend(run.delays_ns)
        self._kinds.extend(bytes(count))  # content has code 0
        first = self.read
        self._count_reads(run.reads)
        self._reads.extend([first + place for place in run.places])
        self._seen |= 1
        if self._keep_text and self._room > 0:
            text = "".join(run.texts)
            self._text.append(text)
            self._room -= len(text)

    def add_pending(self, event: Event) -> bool:
        """Account for an event left without its blank line at a clean end; return whether its JSON is whole.

        If it is not, the event does not count.
        """
        try:
            self._decode(event.data)
        except PayloadError:
            return False
        self.add(event)
        return True

    def add_whole(self, delta: Delta) -> None:
        """Account for an answer that came as one body: no event, hence no chunk and no token time."""
        self.usage, self.model, self.finish_reason = delta.usage, delta.model, delta.finish
        if delta.error is not None:
            self.fail(Ruling(Outcome.STREAM_ERROR, "in_band_error", delta.error))
            return
        self._seen, self._ended = delta.seen, delta.ended
        self._whole_evidence = delta.kind <= _LAST_TOKEN_CODE
        self._done_ns = self.stamp_ns
        if delta.kind == _OTHER:
            # Vectors and numbers are no empty text.
            self._keep_text = False
        if delta.text:
            self._text.append(delta.text)
        if delta.aside:
            self._keep_aside(delta, delta.aside)

    def settle(self) -> None:
        """Take a clean end of the body; where the dialect has no other signal, it ends an answer that has begun."""
        self._settled = self._ending is Ending.BODY and self.event_count > 0 and not self.closed

    def fail(self, fault: Ruling) -> None:
        """Close the account: from here on nothing counts."""
        self.fault, self.fault_ns, self.closed = fault, self.stamp_ns, True

    def bound(self) -> None:
        """Close an account of more events than any answer has."""
        if self.event_count > MAX_EVENTS and not self.closed:
            self.fail(Ruling(Outcome.MALFORMED, "too_many_events", f"the answer has more than {MAX_EVENTS} events"))

    def chunks(self) -> Chunks:
        """Return the columns; tokens per event where an event told them, or running totals around it did."""
        missing = len(self._ns) - len(self._choices)
        return Chunks(
            ns=self._ns,
            delay_ns=self._delays,
            kind=self._kinds,
            tokens=self._tokens + array("i", [-1]) * (len(self._ns) - len(self._tokens)),
            read=array("i", self._reads),
            choice=self._choices + array("b", bytes(missing)),
        )

    def text(self) -> str | None:
        """Return the answer text of choice 0, None where it was not kept, or not all of it, or none can be."""
        return sound("".join(self._text)) if self._keep_text and self._room > 0 else None

    def asides(self) -> tuple[str, ...]:
        """Return what else was generated, joined per choice and kind; () where `text` is None."""
        if not self._keep_text or self._room <= 0:
            return ()
        return tuple(sound("".join(texts)) for texts in self._asides.values())

    def tools(self) -> tuple[ToolCall, ...]:
        """Return the tools that choice 0 calls, in order; () where `text` is None."""
        if not self._keep_text or self._room <= 0:
            return ()
        return tuple(ToolCall(sound(name), sound("".join(arguments))) for name, arguments in self._calls)

    def count(self, *, streamed: bool) -> tuple[int | None, TokenSource | None]:
        """Return answer tokens and their source: the last usage, else the number of token events of a stream.

        A usage counts only if no token event follows it: else it was of the start, or a running total that ended early.
        """
        counted = None if self.usage is None else self.usage.output_tokens
        if counted is not None and self._usage_event >= self._last_token_event():
            return counted, TokenSource.USAGE
        return (self.token_events, TokenSource.EVENTS) if streamed else (None, None)

    def _count_reads(self, more: int) -> None:
        """Count reads, and make room for their numbers where two bytes do not hold them."""
        self.read += more
        if self.read > _MOST_SHORT and self._reads.typecode == "H":
            self._reads = array("i", self._reads)

    def _last_token_event(self) -> int:
        """Return which event was the last with text; -1 where there was none, as in an answer in one piece."""
        kinds = self._kinds
        return next((at for at in range(len(kinds) - 1, -1, -1) if kinds[at] <= _LAST_TOKEN_CODE), -1)

    def _take_sign(self, delta: Delta) -> None:
        """Take an event that carries no text: only the terminal signal and an error close the account."""
        if delta.done:
            self._done_ns, self.closed = self.stamp_ns, True
        elif delta.error is not None:
            self.fail(Ruling(Outcome.STREAM_ERROR, "in_band_error", delta.error))

    def _take_rest(self, delta: Delta) -> None:
        """Take what most events do not have. The choice column is filled with 0 up to the event."""
        if delta.choice:
            self._choices.extend(bytes(len(self._ns) - 1 - len(self._choices)))
            self._choices.append(delta.choice)
        tokens = delta.tokens
        usage = delta.usage
        if usage is not None:
            if usage.output_tokens == 0 and self.first_token_ns is not None:
                # A server that does not count sends 0 with the text, or after a count of its own.
                usage = usage._replace(output_tokens=None)
            if tokens is None and delta.kind <= _LAST_TOKEN_CODE:
                tokens = self._since_last_usage(usage)
            self.usage = usage.over(self.usage)
            if usage.output_tokens is not None:
                self._usage_event = len(self._ns) - 1
        if tokens is not None:
            self._tokens.extend(array("i", [-1]) * (len(self._ns) - 1 - len(self._tokens)))
            self._tokens.append(tokens)
        if delta.done:
            # A last token may be the terminal signal too.
            self._done_ns, self.closed = self.stamp_ns, True
        if delta.ended:
            self._ended |= delta.ended
            self._finish_ns = self.stamp_ns
            self.finish_reason = delta.finish or self.finish_reason

    def _since_last_usage(self, usage: Usage) -> int | None:
        """Return the tokens of the event at hand by running totals; None unless the event before it had one too.

        Servers that send totals with every event send them per choice, so with several choices nothing follows.
        """
        if usage.output_tokens is None or self._seen != 1:
            return None
        if self.usage is not None and self._usage_event == len(self._ns) - 2 and self.usage.output_tokens is not None:
            tokens = usage.output_tokens - self.usage.output_tokens
        elif self._first_token_event == len(self._ns) - 1:
            tokens = usage.output_tokens
        else:
            return None
        return tokens if tokens >= 0 else None

    def _keep_call(self, part: Called) -> None:
        at = len(self._calls) - 1 if part.place is None else self._call_of.get(part.place)
        if part.name and (part.place is None or at is None):
            self._calls.append((part.name, []))
            at = len(self._calls) - 1
            if part.place is not None:
                self._call_of[part.place] = at
        if part.arguments and at is not None and at >= 0:
            self._calls[at][1].append(part.arguments)

    def _keep_aside(self, delta: Delta, aside: str) -> None:
        self._asides.setdefault((delta.choice, delta.kind), []).append(aside)
        self._room -= len(aside)
        for part in delta.calls:
            self._keep_call(part)


def _named(event: Event, delta: Delta) -> Delta:
    """Return the delta of an event with a name; only the name `error` decides anything."""
    if event.name != b"error" or delta.error is not None:
        return delta
    return Delta(_ERROR, error=body_error_text(event.data))
