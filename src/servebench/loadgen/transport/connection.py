"""Know one connection: how it comes up, how a request leaves it, and how reads come back with their stamps."""

import contextlib
import select
import socket
import ssl
import time
from typing import Protocol

from gevent import monkey

from servebench.loadgen.transport.address import SocketAddress
from servebench.loadgen.transport.losses import Loss, Lost, lost_by_errno, lost_by_tls
from servebench.loadgen.transport.reactor import READ_BYTES, Reactor
from servebench.loadgen.transport.stamps import SO_TIMESTAMPNS, STAMP_SPACE
from servebench.loadgen.transport.tls import TlsPipe
from servebench.wire.tunnel import Tunnel, TunnelRefusedError


class Receiver(Protocol):
    """Whoever uses a connection; called in the hub, or inside `send` by its caller. Must not block."""

    def on_connected(self) -> None:
        """Learn that the connection, TLS included, is up."""

    def on_sent(self, end_ns: int) -> None:
        """Learn when the last byte of the request was handed to the kernel."""

    def on_read(self, data: bytes, stamp_ns: int, delay_ns: int) -> None:
        """Take bytes that arrived; never empty."""

    def on_lost(self, lost: Lost) -> None:
        """Learn that the connection is closed."""

    def on_fault(self, error: Exception) -> None:
        """Learn that the client itself failed; the connection is closed."""


_CONNECTING, _TUNNEL, _HANDSHAKE, _UP, _CLOSED = range(5)
"""Phases of a connection: plain numbers, for reading a member of an enumeration shows in the cost of a read."""

_CLOSED_EARLY = {
    _TUNNEL: Lost(Loss.CONNECT, "the proxy closed before the tunnel was there", "proxy_error"),
    _HANDSHAKE: Lost(Loss.CONNECT, "the server closed during the TLS handshake", "tls_error"),
}

_PEEK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class Connection:
    """A non-blocking socket in the reactor; `receiver` is its present user."""

    __slots__ = (
        "_arrived",
        "_into",
        "_phase",
        "_reactor",
        "_receive",
        "_send_error",
        "_sock",
        "_stamp",
        "_tls",
        "_tunnel",
        "_unsent",
        "address",
        "fd",
        "receiver",
    )

    def __init__(
        self,
        reactor: Reactor,
        address: SocketAddress,
        receiver: Receiver,
        tls: TlsPipe | None = None,
        tunnel: Tunnel | None = None,
    ) -> None:
        """Begin to connect; raises OSError when that cannot even begin."""
        sock: socket.socket = monkey.get_original("socket", "socket")(address.family, socket.SOCK_STREAM)
        self.receiver = receiver
        self.address = address
        self.fd = sock.fileno()
        self._reactor = reactor
        self._sock = sock
        self._receive = sock.recvmsg_into
        self._into, self._arrived = reactor.buffers, reactor.buffers[0]
        self._stamp = reactor.clock.stamp
        self._tls = tls
        self._tunnel = tunnel
        self._unsent = memoryview(b"")
        self._send_error: int | None = None
        self._phase = _CONNECTING
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            with contextlib.suppress(BlockingIOError):
                sock.connect(address.place)
            reactor.add(self.fd, self, _OUT)
        except OSError:
            sock.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether the socket is gone."""
        return self._phase == _CLOSED

    @property
    def sent(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._unsent

    def send(self, request: bytes) -> int:
        """Send what the kernel takes now, the rest from the hub; return the time just before the first byte left.

        Called by a request's greenlet or in the hub, on a connection that is up; does not block. A failure shows as
        `on_lost`, never here, so that what the server said before it broke off is still read.
        """
        try:
            data = request if self._tls is None else self._tls.encrypt(request)
        except ssl.SSLError as error:
            now = time.monotonic_ns()
            self._lose(lost_by_tls(Loss.RESET, error))
            return now
        self._unsent = memoryview(bytes(self._unsent) + data if self._unsent else data)
        before = time.monotonic_ns()
        self._flush()
        if self._unsent:
            self._reactor.change(self.fd, _IN | _OUT)
        return before

    def alive(self) -> bool:
        """Return whether an idle connection may still be used; any greenlet, does not block."""
        if self.closed:
            return False
        try:
            self._sock.recv(1, _PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if self._tls is None:
            return False  # its end, or bytes nobody asked for
        self.on_event(_IN)  # a session ticket is no reason to drop the connection
        return not self.closed

    def close(self) -> None:
        """Close without telling the receiver; any greenlet, does not block. A second call changes nothing."""
        if self.closed:
            return
        self._phase = _CLOSED
        self._unsent = memoryview(b"")
        self._reactor.remove(self.fd)
        self._sock.close()

    def on_event(self, mask: int) -> None:
        """Handle readiness (called by the reactor)."""
        try:
            if mask == _IN and self._phase == _UP:
                self._read()
            elif self._phase == _UP:
                if mask & _OUT and self._unsent:
                    self._continue()
                if mask & ~_OUT:
                    self._read()
            elif self._phase == _CONNECTING:
                self._connected()
            else:
                self._come_up()
        except ssl.SSLError as error:
            self._lose(lost_by_tls(Loss.RESET if self._phase == _UP else Loss.CONNECT, error))

    def on_fault(self, error: Exception) -> None:
        """End this use of the connection (called by the reactor)."""
        self.close()
        self.receiver.on_fault(error)

    def _connected(self) -> None:
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._lose(lost_by_errno(Loss.CONNECT, code))
            return
        self._reactor.change(self.fd, _IN)
        if self._tunnel is None:
            self._secure()
        else:
            self._phase = _TUNNEL
            self._push(self._tunnel.request)

    def _secure(self) -> None:
        """Begin TLS where it is wanted, now that the way to the target is there."""
        if self._tls is None:
            self._up()
        else:
            self._phase = _HANDSHAKE
            self._handshake(self._tls, b"")

    def _come_up(self) -> None:
        """Go on with tunnel or handshake, whichever it is."""
        try:
            received = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            received = b""
        except OSError as error:
            self._lose(lost_by_errno(Loss.CONNECT, error.errno))
            return
        else:
            if not received:
                self._lose(_CLOSED_EARLY[self._phase])
                return
        if self._unsent:
            self._continue()
        if self._phase == _TUNNEL and self._tunnel is not None:
            self._dig(self._tunnel, received)
        elif self._tls is not None:
            self._handshake(self._tls, received)

    def _dig(self, tunnel: Tunnel, received: bytes) -> None:
        try:
            there = tunnel.feed(received)
        except TunnelRefusedError as error:
            self._lose(Lost(Loss.CONNECT, str(error), "proxy_error"))
            return
        if there:
            self._secure()

    def _handshake(self, tls: TlsPipe, received: bytes) -> None:
        try:
            done = tls.handshake(received)
        finally:
            self._push(tls.pending())  # an alert, too, tells the server why
        if done and self._phase == _HANDSHAKE:
            self._up()

    def _up(self) -> None:
        self._phase = _UP
        self.receiver.on_connected()

    def _read(self) -> None:
        try:
            size, ancillary, _, _ = self._receive(self._into, STAMP_SPACE)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(lost_by_errno(Loss.RESET, error.errno))
            return
        if not size:
            broken = self._send_error is not None
            self._lose(lost_by_errno(Loss.RESET if broken else Loss.EOF, self._send_error))
            return
        data = self._arrived[:size].tobytes()
        stamp_ns, delay_ns = self._stamp(ancillary, size)
        if self._tls is None:
            self.receiver.on_read(data, stamp_ns, delay_ns)
        else:
            self._read_records(self._tls, data, stamp_ns, delay_ns)

    def _read_records(self, tls: TlsPipe, records: bytes, stamp_ns: int, delay_ns: int) -> None:
        data = tls.decrypt(records)
        self._push(tls.pending())  # the answer to a key update
        if data:
            self.receiver.on_read(data, stamp_ns, delay_ns)
        if tls.ended and not self.closed:
            self._lose(Lost(Loss.EOF))

    def _push(self, data: bytes) -> None:
        """Send protocol bytes of TLS behind whatever waits."""
        if not data or self.closed:
            return
        waiting = bool(self._unsent)
        self._unsent = memoryview(bytes(self._unsent) + data)
        if not waiting:
            self._drain()
            if self._unsent:
                self._reactor.change(self.fd, _IN | _OUT)

    def _continue(self) -> None:
        if self._phase == _UP:
            self._flush()
        else:
            self._drain()
        if not self._unsent:
            self._reactor.change(self.fd, _IN)

    def _flush(self) -> None:
        self._drain()
        if not self._unsent and self._send_error is None:
            self.receiver.on_sent(time.monotonic_ns())

    def _drain(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._send_error = error.errno
            self._unsent = memoryview(b"")

    def _lose(self, lost: Lost) -> None:
        self.close()
        self.receiver.on_lost(lost)
