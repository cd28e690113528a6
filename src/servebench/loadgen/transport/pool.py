"""Know which connections to a target exist and which of them are free."""

import errno
from collections.abc import Sequence

from servebench.core.errors import HarnessError
from servebench.loadgen.transport.address import SocketAddress
from servebench.loadgen.transport.connection import Connection, Receiver
from servebench.loadgen.transport.losses import Lost
from servebench.loadgen.transport.reactor import Reactor
from servebench.loadgen.transport.route import Route

_MACHINE_FAULTS = {
    errno.EMFILE: "raise the limit of open files (ulimit -n) or use more workers",
    errno.ENFILE: "raise fs.file-max",
    errno.ENOBUFS: "give the machine more memory for sockets",
    errno.ENOMEM: "give the machine more memory",
    errno.ENOSPC: "raise fs.epoll.max_user_watches",
    errno.EADDRNOTAVAIL: "widen net.ipv4.ip_local_port_range or use more workers",
}


class Rotation:
    """The target's addresses, each new connection beginning with the next; those that last failed come behind."""

    def __init__(self, addresses: Sequence[SocketAddress]) -> None:
        self._good = list(addresses)
        self._failed: list[SocketAddress] = []
        self._turn = 0

    def round(self) -> list[SocketAddress]:
        """Return every address once, in the order to try them."""
        start = self._turn % len(self._good) if self._good else 0
        self._turn += 1
        return self._good[start:] + self._good[:start] + self._failed

    def note(self, address: SocketAddress, *, worked: bool) -> None:
        """Remember how the last try of an address went."""
        to, away = (self._good, self._failed) if worked else (self._failed, self._good)
        if address in away:
            away.remove(address)
            to.append(address)


class Pool:
    """Keep-alive connections without a cap: the last one given back is taken first. Nothing here blocks."""

    def __init__(self, reactor: Reactor, route: Route) -> None:
        self.rotation = Rotation(route.addresses)
        self._reactor = reactor
        self._route = route
        self._idle: dict[Connection, None] = {}

    def take(self, receiver: Receiver) -> Connection | None:
        """Return a live idle connection for its new user, or None; any greenlet."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.alive():
                connection.receiver = receiver
                return connection
            connection.close()
        return None

    def give(self, connection: Connection) -> None:
        """Keep a connection whose answer is complete; any greenlet."""
        connection.receiver = _Idle(self, connection)
        self._idle[connection] = None

    def forget(self, connection: Connection) -> None:
        """Drop an idle connection; any greenlet."""
        self._idle.pop(connection, None)
        connection.close()

    def connect(self, address: SocketAddress, receiver: Receiver) -> Connection:
        """Begin a new connection; any greenlet.

        Raises OSError when the address refuses at once, HarnessError when this machine has no socket to give.
        """
        try:
            return self._route.open(self._reactor, address, receiver)
        except OSError as error:
            if error.errno in _MACHINE_FAULTS:
                msg = f"cannot open a connection: {error.strerror}; {_MACHINE_FAULTS[error.errno]}"
                raise HarnessError(msg) from error
            raise

    def close(self) -> None:
        """Close every idle connection; any greenlet."""
        for connection in list(self._idle):
            self.forget(connection)


class _Idle:
    """The user of a connection that nobody uses: anything that happens to it ends it."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool, connection: Connection) -> None:
        self._pool = pool
        self._connection = connection

    def on_connected(self) -> None:
        """Never happens: an idle connection is up."""

    def on_sent(self, end_ns: int) -> None:
        """Never happens: nothing is sent."""

    def on_read(self, data: bytes, stamp_ns: int, delay_ns: int) -> None:
        """Drop the connection: nobody asked for these bytes."""
        self._pool.forget(self._connection)

    def on_lost(self, lost: Lost) -> None:
        """Drop the connection: the server closed it."""
        self._pool.forget(self._connection)

    def on_fault(self, error: Exception) -> None:
        """Drop the connection."""
        self._pool.forget(self._connection)
