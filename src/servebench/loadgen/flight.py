"""Know the life of one request: connection, send, reads, the end, and which deadline runs when."""

import time
from collections import deque
from dataclasses import dataclass

import gevent
from gevent.hub import Waiter

from servebench.core.errors import HarnessError
from servebench.core.records import Answer, SendStamps
from servebench.core.units import NS_PER_MS
from servebench.loadgen.address import SocketAddress
from servebench.loadgen.connection import Connection, Loss, Lost
from servebench.loadgen.exchange import Exchange
from servebench.loadgen.parsing import ParseQueue
from servebench.loadgen.pool import Pool
from servebench.wire.outcome import End
from servebench.wire.timeline import Timeline
from servebench.workload.model import Timeouts

UNPARSED_BYTES = 64 * 1024
"""How much of a stream may wait for parsing."""

LINGER_NS = 200 * NS_PER_MS
"""How long an answer that is over waits for the end of its HTTP message, which frees the connection."""

NEVER = 2**63 - 1

_NOTHING = Lost(Loss.EOF)
_END_OF_LOSS = {Loss.CONNECT: End.CONNECT_ERROR, Loss.EOF: End.EOF, Loss.RESET: End.RESET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What all requests of a client share.

    Without `stream` the first token comes with the last, so its deadline is not kept.
    """

    pool: Pool
    queue: ParseQueue
    timeouts: Timeouts
    stream: bool


class Flight:
    """A request in flight.

    Its greenlet calls `start`, `wait`, `exchange` and `drop`; everything else may run in the hub and never blocks.
    """

    __slots__ = (
        "_answer",
        "_bytes_in",
        "_candidates",
        "_connect_due_ns",
        "_connect_end_ns",
        "_connect_start_ns",
        "_connection",
        "_eager",
        "_error",
        "_lane",
        "_last_read_ns",
        "_over",
        "_overdue",
        "_queued",
        "_reads",
        "_reconnects",
        "_request",
        "_reused",
        "_send_end_ns",
        "_sent_ns",
        "_timeline",
        "_unparsed",
        "_waiter",
        "due_ns",
    )

    def __init__(self, lane: Lane, request: bytes, timeline: Timeline) -> None:
        self._lane = lane
        self._request = request
        self._timeline = timeline
        self._waiter: Waiter[None] = Waiter()
        self._connection: Connection | None = None
        self._candidates: list[SocketAddress] = []
        self._reused: bool | None = None
        self._reconnects = 0
        self._connect_start_ns: int | None = None
        self._connect_end_ns: int | None = None
        self._connect_due_ns: int | None = None
        self._sent_ns: int | None = None
        self._send_end_ns: int | None = None
        self._last_read_ns: int | None = None
        self._reads: deque[tuple[bytes, int, int]] = deque()
        self._unparsed = 0
        self._bytes_in = 0
        self._eager = True
        self._queued = False
        self._overdue = False
        self._over: tuple[End, int, Lost] | None = None
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self.due_ns = NEVER

    def start(self) -> None:
        """Send on a kept connection, or begin a new one; does not block. Raises HarnessError as `Pool.connect` does."""
        connection = self._lane.pool.take(self)
        if connection is None:
            self._connect_anew()
        else:
            self._reused = True
            self._connection = connection
            self._send(connection)

    def wait(self) -> None:
        """Block the calling greenlet until the answer is there; raises HarnessError when the client itself failed."""
        if not self.ended:
            self._waiter.get()
        if self._error is not None:
            if isinstance(self._error, HarnessError):
                raise self._error
            msg = f"the transport failed on one exchange: {self._error!r}"
            raise HarnessError(msg) from self._error

    def exchange(self, dispatched_ns: int | None) -> Exchange:
        """Return the result; only after `wait`."""
        if self._answer is None:
            msg = "the answer was asked for before it was there"
            raise HarnessError(msg)
        stamps = SendStamps(
            dispatched_ns=dispatched_ns,
            connect_start_ns=self._connect_start_ns,
            connect_end_ns=self._connect_end_ns,
            sent_ns=self._sent_ns,
            send_end_ns=self._send_end_ns,
        )
        return Exchange(
            stamps=stamps,
            answer=self._answer,
            reconnects=self._reconnects,
            conn_reused=self._reused,
            request_bytes=len(self._request),
        )

    @property
    def ended(self) -> bool:
        """Whether there is an answer or a fault."""
        return self._answer is not None or self._error is not None

    def drop(self) -> None:
        """Let go of everything, when the greenlet leaves; does not block."""
        if not self.ended:
            self._error = HarnessError("the request's greenlet was killed")
        self._release()

    def cancel(self, now_ns: int) -> bool:
        """End the request as cancelled, once its reads are parsed; return False when it had ended already."""
        if self.ended or self._over is not None:
            return False
        self._close()
        self._end(End.CANCELLED, now_ns, _NOTHING)
        return True

    def check(self) -> None:
        """Parse what there is and give up if a deadline is still past (called by the client's sweep)."""
        self._overdue = True
        self._enqueue()

    def on_connected(self) -> None:
        """Send (called by the connection)."""
        connection = self._connection
        if connection is None:
            return
        self._connect_end_ns = time.monotonic_ns()
        self._connect_due_ns = None
        self._reused = False
        self._lane.pool.rotation.note(connection.address, worked=True)
        self._send(connection)

    def on_sent(self, end_ns: int) -> None:
        """Note the end of the upload, the first one's where there are two (called by the connection)."""
        if self._send_end_ns is None:
            self._send_end_ns = end_ns

    def on_read(self, data: bytes, stamp_ns: int, delay_ns: int) -> None:
        """Keep a read; parse when the answer may have ended, or too much waits (called by the connection)."""
        self._reads.append((data, stamp_ns, delay_ns))
        self._last_read_ns = stamp_ns
        self._unparsed += len(data)
        if self._queued:
            return
        # A chunked body ends in 0 CR LF CR LF; a last read without the last four of these bytes is shorter than five.
        if (
            self._eager
            or data.endswith(b"\r\n\r\n")
            or len(data) < 5
            or b"[DONE]" in data
            or self._unparsed >= UNPARSED_BYTES
        ):
            self._enqueue()

    def on_lost(self, lost: Lost) -> None:
        """Try another connection where that is right, else end (called by the connection)."""
        connection, self._connection = self._connection, None
        now = time.monotonic_ns()
        if lost.loss is Loss.CONNECT:
            if connection is not None:
                self._lane.pool.rotation.note(connection.address, worked=False)
            self._try_next(lost)
        elif self._reused and self._last_read_ns is None and not self._reconnects:
            self._reconnects = 1
            self._connect_anew()
        else:
            self._end(_END_OF_LOSS[lost.loss], now, lost)

    def on_fault(self, error: Exception) -> None:
        """End with a fault of the client's own (called by connection and reactor)."""
        if not self.ended:
            self._error = error
            self._close()
            self._wake()

    def parse(self, until_ns: int) -> bool:
        """Parse the kept reads in order (called by the queue)."""
        reads = self._reads
        feed = self._timeline.feed
        try:
            while reads:
                feed(*reads.popleft())
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

    def _connect_anew(self) -> None:
        self._candidates = self._lane.pool.rotation.round()
        self._connect_start_ns = time.monotonic_ns()
        self._connect_due_ns = self._connect_start_ns + self._lane.timeouts.connect_ns
        self._reused = None
        self._try_next(Lost(Loss.CONNECT, "the target has no address"))

    def _try_next(self, lost: Lost) -> None:
        """Begin to connect to the next address; end for the last reason when none is left."""
        pool = self._lane.pool
        while self._candidates:
            address = self._candidates.pop(0)
            try:
                self._connection = pool.connect(address, self)
            except OSError as error:
                pool.rotation.note(address, worked=False)
                lost = Lost.by_error(Loss.CONNECT, error.errno)
            else:
                self.due_ns = self._deadline()[0]
                return
        self._end(End.CONNECT_ERROR, time.monotonic_ns(), lost)

    def _send(self, connection: Connection) -> None:
        sent_ns = connection.send(self._request)
        if self._sent_ns is None:
            self._sent_ns = sent_ns
        self.due_ns = self._deadline()[0]

    def _enqueue(self) -> None:
        if not self._queued and not self.ended:
            self._queued = True
            self._lane.queue.add(self)

    def _end(self, end: End, now_ns: int, lost: Lost) -> None:
        self._over = (end, now_ns, lost)
        self._enqueue()

    def _settle(self) -> None:
        """Decide, with every read parsed, whether the exchange is over."""
        timeline = self._timeline
        if timeline.message_done:
            self._finish(End.COMPLETE, self._last_read_ns or time.monotonic_ns(), _NOTHING)
        elif self._over is not None:
            self._finish(*self._over)
        else:
            self._eager = timeline.first_token_ns is None or timeline.length_delimited
            due_ns, end = self._deadline()
            now = time.monotonic_ns()
            if self._overdue and due_ns <= now:
                self._finish(end, now, _NOTHING)
            self._overdue = False
            if not self.ended:
                self.due_ns = due_ns

    def _deadline(self) -> tuple[int, End]:
        """Return the earliest deadline that runs now, and what it means when it passes."""
        timeouts, sent = self._lane.timeouts, self._sent_ns
        running = []
        if self._connect_due_ns is not None:
            running.append((self._connect_due_ns, End.TIMEOUT_CONNECT))
        if sent is not None:
            running.append((sent + timeouts.total_ns, End.TIMEOUT_TOTAL))
            if self._timeline.first_token_ns is None and self._lane.stream:
                running.append((sent + timeouts.first_token_ns, End.TIMEOUT_FIRST_TOKEN))
            elif self._last_read_ns is not None:
                running.append((self._last_read_ns + timeouts.idle_ns, End.TIMEOUT_IDLE))
        if self._timeline.answer_done and self._last_read_ns is not None:
            running.append((self._last_read_ns + LINGER_NS, End.COMPLETE))
        return min(running, default=(NEVER, End.TIMEOUT_TOTAL))

    def _finish(self, end: End, now_ns: int, lost: Lost) -> None:
        self._answer = self._timeline.finish(end, now_ns, lost.detail, lost.error_class)
        connection = self._connection
        if connection is not None and self._timeline.keep_alive and connection.sent and end is End.COMPLETE:
            self._connection = None
            self._lane.pool.give(connection)
        self._close()
        self._wake()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _wake(self) -> None:
        """Resume the greenlet from the loop, never inside a batch of reads."""
        self.due_ns = NEVER
        gevent.get_hub().loop.run_callback(self._waiter.switch, None)

    def _release(self) -> None:
        self.due_ns = NEVER
        self._close()
        self._reads.clear()
