"""Know how one request comes by its connection: a kept one, a new one, the next address, one reconnect."""

import time

from servebench.core.records import SendStamps
from servebench.loadgen.transport.address import SocketAddress
from servebench.loadgen.transport.connection import Connection, Receiver
from servebench.loadgen.transport.losses import Loss, Lost, lost_by_errno
from servebench.loadgen.transport.pool import Pool


class Link:
    """The connection under one request. Called by the request's greenlet or in the hub; nothing here blocks.

    `connecting_ns`: when the attempt under way began, None while a connection is up. `sent_ns` and `send_end_ns` are of
    the first send, also after a reconnect. `reused` is None until a connection is up. The receiver is never kept: a
    cycle of references would leave every finished request to the garbage collector, whose full pass stalls the loop.
    """

    __slots__ = (
        "_candidates",
        "_connect_end_ns",
        "_connect_start_ns",
        "_connection",
        "_pool",
        "_request",
        "_send_end_ns",
        "connecting_ns",
        "reconnects",
        "reused",
        "sent_ns",
    )

    def __init__(self, pool: Pool, request: bytes) -> None:
        self._pool = pool
        self._request = request
        self._connection: Connection | None = None
        self._candidates: list[SocketAddress] = []
        self._connect_start_ns: int | None = None
        self._connect_end_ns: int | None = None
        self._send_end_ns: int | None = None
        self.connecting_ns: int | None = None
        self.sent_ns: int | None = None
        self.reused: bool | None = None
        self.reconnects = 0

    def begin(self, receiver: Receiver) -> Lost | None:
        """Send on a kept connection or begin a new one; return why when there is no way.

        Raises HarnessError when this machine has no socket to give.
        """
        connection = self._pool.take(receiver)
        if connection is None:
            return self._connect(receiver)
        self.reused = True
        self._connection = connection
        self._send(connection)
        return None

    def connected(self) -> None:
        """Send, now that the connection is up."""
        connection = self._connection
        if connection is None:
            return
        self._connect_end_ns = time.monotonic_ns()
        self.connecting_ns = None
        self.reused = False
        self._pool.rotation.note(connection.address, worked=True)
        self._send(connection)

    def sent(self, end_ns: int) -> None:
        """Note the end of the upload."""
        if self._send_end_ns is None:
            self._send_end_ns = end_ns

    def recover(self, lost: Lost, receiver: Receiver, *, answered: bool) -> Lost | None:
        """Try elsewhere after a loss; return why when that is over.

        A connection that did not come up is followed by the next address. A kept one that broke without a byte of an
        answer was stale: the request goes out once more, on a new one. Raises HarnessError as `begin` does.
        """
        connection, self._connection = self._connection, None
        if lost.loss is Loss.CONNECT:
            if connection is not None:
                self._pool.rotation.note(connection.address, worked=False)
            return self._try_next(lost, receiver)
        if self.reused and not answered:
            self.reconnects += 1
            return self._connect(receiver)
        return lost

    def release(self, *, reusable: bool) -> None:
        """Give the connection back to the pool if it can carry another request, else close it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if reusable and connection.sent and not connection.closed:
            self._pool.give(connection)
            return
        if self.connecting_ns is not None:
            self._pool.rotation.note(connection.address, worked=False)
        connection.close()

    def stamps(self, dispatched_ns: int | None) -> SendStamps:
        """Return when what happened."""
        return SendStamps(
            dispatched_ns=dispatched_ns,
            connect_start_ns=self._connect_start_ns,
            connect_end_ns=self._connect_end_ns,
            sent_ns=self.sent_ns,
            send_end_ns=self._send_end_ns,
        )

    def _connect(self, receiver: Receiver) -> Lost | None:
        self._candidates = self._pool.rotation.round()
        self._connect_start_ns = self.connecting_ns = time.monotonic_ns()
        self.reused = None
        return self._try_next(Lost(Loss.CONNECT, "the target has no address"), receiver)

    def _try_next(self, lost: Lost, receiver: Receiver) -> Lost | None:
        while self._candidates:
            address = self._candidates.pop(0)
            try:
                self._connection = self._pool.connect(address, receiver)
            except OSError as error:
                self._pool.rotation.note(address, worked=False)
                lost = lost_by_errno(Loss.CONNECT, error.errno)
            else:
                return None
        self.connecting_ns = None
        return lost

    def _send(self, connection: Connection) -> None:
        sent_ns = connection.send(self._request)
        if self.sent_ns is None:
            self.sent_ns = sent_ns
