"""Know the life of one request from its first byte to its answer."""

import time
from collections import deque
from dataclasses import dataclass, field

import gevent
from gevent.hub import Waiter

from servebench.core.errors import HarnessError
from servebench.core.records import Answer
from servebench.loadgen.transport.deadlines import (
    ENDLESS,
    NEVER,
    Alarm,
    Patience,
    Progress,
    deadline_words,
    next_deadline,
)
from servebench.loadgen.transport.exchange import Exchange
from servebench.loadgen.transport.link import Link
from servebench.loadgen.transport.losses import Loss, Lost
from servebench.loadgen.transport.parsing import ParseQueue
from servebench.loadgen.transport.pool import Pool
from servebench.wire.outcome import End
from servebench.wire.timeline import Timeline
from servebench.workload.model import Timeouts

UNPARSED_BYTES = 64 * 1024
"""How much memory the reads of a stream may take before they are parsed."""

READ_OVERHEAD_BYTES = 192
"""What a read takes besides its bytes: it waits as a tuple of three objects."""

_END = {Loss.CONNECT: End.CONNECT_ERROR, Loss.EOF: End.EOF, Loss.RESET: End.RESET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What all requests of a client share.

    Without `stream` the first token comes with the last, so its deadline is not kept.
    """

    pool: Pool
    queue: ParseQueue
    timeouts: Timeouts
    stream: bool
    alarm: Alarm = field(default_factory=Alarm)


class Flight:
    """A request in flight; it is the receiver of its connection.

    Its greenlet calls `start`, `wait`, `exchange` and `drop`; everything else may run in the hub and never blocks.
    `due_ns` is when `check` is wanted.
    """

    __slots__ = (
        "_answer",
        "_eager",
        "_end_mark",
        "_error",
        "_lane",
        "_last_read_ns",
        "_link",
        "_over",
        "_overdue",
        "_patience",
        "_queued",
        "_reads",
        "_request_bytes",
        "_timeline",
        "_unparsed",
        "_waiter",
        "due_ns",
    )

    def __init__(self, lane: Lane, request: bytes, timeline: Timeline, patience: Patience = ENDLESS) -> None:
        self._lane = lane
        self._patience = patience
        self._link = Link(lane.pool, request)
        self._request_bytes = len(request)
        self._timeline = timeline
        self._end_mark = timeline.end_mark
        self._waiter: Waiter[None] = Waiter()
        self._reads: deque[tuple[bytes, int, int]] = deque()
        self._last_read_ns: int | None = None
        self._unparsed = 0
        self._eager = True
        self._queued = False
        self._overdue = False
        self._over: tuple[End, int, Lost | None] | None = None
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self.due_ns = NEVER

    def start(self) -> None:
        """Send on a kept connection, or begin a new one; does not block.

        Raises HarnessError when this machine has no socket to give.
        """
        self._went_on(self._link.begin(self))

    def wait(self) -> None:
        """Block the calling greenlet until the answer is there; raises HarnessError when the client itself failed."""
        if not self.ended:
            self._waiter.get()
        if isinstance(self._error, HarnessError):
            raise self._error
        if self._error is not None:
            msg = f"the transport failed on one exchange: {self._error!r}"
            raise HarnessError(msg) from self._error

    def exchange(self, dispatched_ns: int | None, redirected_to: str | None = None) -> Exchange:
        """Return the result; raises HarnessError before `wait` has returned."""
        if self._answer is None:
            msg = "an exchange was asked for before it was over"
            raise HarnessError(msg)
        return Exchange(
            stamps=self._link.stamps(dispatched_ns),
            answer=self._answer,
            reconnects=self._link.reconnects,
            conn_reused=self._link.reused,
            request_bytes=self._request_bytes,
            redirected_to=redirected_to,
        )

    def drop(self) -> None:
        """Let go of everything, as the greenlet leaves, killed or not."""
        if not self.ended:
            self._error = HarnessError("the request's greenlet was killed")
        self.due_ns = NEVER
        self._link.release(reusable=False)
        self._reads.clear()

    @property
    def ended(self) -> bool:
        """Whether there is an answer or a fault."""
        return self._answer is not None or self._error is not None

    def cancel(self, now_ns: int) -> bool:
        """End the request as cancelled, once its reads are parsed; return False when it was over already."""
        if self.ended or self._over is not None:
            return False
        self._link.release(reusable=False)
        self._end(End.CANCELLED, now_ns, None)
        return True

    def check(self) -> None:
        """Parse what there is and give up if a deadline is still past (called by the client's sweep)."""
        self._overdue = True
        self._enqueue()

    def on_connected(self) -> None:
        """Send (called by the connection)."""
        self._link.connected()
        self._renew()

    def on_sent(self, end_ns: int) -> None:
        """Note the end of the upload (called by the connection)."""
        self._link.sent(end_ns)

    def on_read(self, data: bytes, stamp_ns: int, delay_ns: int) -> None:
        """Keep a read; parse when the answer may have ended, or too much waits (called by the connection)."""
        self._reads.append((data, stamp_ns, delay_ns))
        self._last_read_ns = stamp_ns
        self._unparsed += len(data) + READ_OVERHEAD_BYTES
        if self._queued:
            return
        # A chunked body ends in 0 CR LF CR LF; a last read without the last four of these bytes is shorter than five.
        if (
            self._eager
            or data.endswith(b"\r\n\r\n")
            or len(data) < 5
            or self._end_mark in data
            or self._unparsed >= UNPARSED_BYTES
        ):
            self._enqueue()

    def on_lost(self, lost: Lost) -> None:
        """Try another connection where that is right, else end (called by the connection)."""
        self._went_on(self._link.recover(lost, self, answered=self._last_read_ns is not None))

    def on_fault(self, error: Exception) -> None:
        """End with a fault of the client's own."""
        if not self.ended:
            self._error = error
            self._link.release(reusable=False)
            self._wake()

    def parse(self, until_ns: int) -> bool:
        """Parse the kept reads in order (called by the queue)."""
        reads = self._reads
        timeline = self._timeline
        try:
            while reads:
                if not timeline.feed_plain(reads):
                    timeline.feed(*reads.popleft())
                if reads and time.monotonic_ns() >= until_ns:
                    return False
            self._unparsed = 0
            self._queued = False
            if not self.ended:
                self._settle()
        except Exception as error:  # noqa: BLE001 - top of a hub callback: this exchange fails, the others go on
            self._queued = False
            self.on_fault(error)
        return True

    def _went_on(self, lost: Lost | None) -> None:
        if lost is None:
            self._renew()
        else:
            self._end(_END[lost.loss], time.monotonic_ns(), lost)

    def _end(self, end: End, now_ns: int, lost: Lost | None) -> None:
        """End once everything that was read is parsed."""
        self._over = (end, now_ns, lost)
        self._enqueue()

    def _enqueue(self) -> None:
        if not self._queued and not self.ended:
            self._queued = True
            self._lane.queue.add(self)

    def _settle(self) -> None:
        """Decide, with every read parsed, whether the exchange is over."""
        timeline = self._timeline
        now = time.monotonic_ns()
        if timeline.message_done or timeline.broken:
            self._finish(End.COMPLETE, now if self._last_read_ns is None else self._last_read_ns, None)
        elif self._over is not None:
            self._finish(*self._over)
        elif self._has_enough():
            self._finish(End.ABANDONED, now, None)
        else:
            counted = self._patience.token_events is not None
            self._eager = timeline.first_token_ns is None or timeline.length_delimited or counted
            end = self._renew()
            if self._overdue and self.due_ns <= now:
                self._finish(end, now, None)
            self._overdue = False

    def _has_enough(self) -> bool:
        """Whether the user leaves with what has come; not once the answer is over."""
        enough = self._patience.token_events
        return enough is not None and not self._timeline.answer_done and self._timeline.token_events >= enough

    def _renew(self) -> End:
        """Set when the next deadline passes; return what passes then."""
        timeline = self._timeline
        progress = Progress(
            connecting_ns=self._link.connecting_ns,
            sent_ns=self._link.sent_ns,
            last_read_ns=self._last_read_ns,
            token_due=self._lane.stream and timeline.first_token_ns is None,
            done_ns=timeline.answer_done_ns,
        )
        self.due_ns, end = next_deadline(progress, self._lane.timeouts, self._patience)
        self._lane.alarm.set(self.due_ns)
        return end

    def _finish(self, end: End, now_ns: int, lost: Lost | None) -> None:
        timeline = self._timeline
        words = deadline_words(end, self._lane.timeouts)
        detail, error_class = (words, None) if lost is None else (lost.detail, lost.error_class)
        self._answer = timeline.finish(end, now_ns, detail, error_class)
        self._link.release(reusable=timeline.keep_alive and not self._reads)
        self._wake()

    def _wake(self) -> None:
        """Resume the greenlet from the loop, never inside a batch of reads."""
        self.due_ns = NEVER
        gevent.get_hub().loop.run_callback(self._waiter.switch, None)
