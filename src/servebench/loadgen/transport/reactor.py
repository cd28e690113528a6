"""Know which sockets of the worker are ready: one epoll of its own, watched by gevent as a single descriptor.

gevent's own socket wait costs a failed read, a watcher start and stop and two greenlet switches per chunk. Here a ready
socket costs one dictionary look-up in the hub; no greenlet runs until an answer has ended.
"""

import select
import socket
from typing import Protocol

import gevent
from gevent import monkey

from servebench.loadgen.next_due import NextDue
from servebench.loadgen.transport.stamps import SO_TIMESTAMPNS, ReadClock

MAX_BATCH = 128
"""Most sockets served before the rest of the loop has its turn."""

READ_NS = 20_000
"""What a read is taken to last: so many are served as fit before the next request is due."""

READ_BYTES = 65536
"""Most that one read takes."""

_READ = 1


class Watched(Protocol):
    """What the reactor calls, in the hub; neither method may block or switch greenlets."""

    def on_event(self, mask: int) -> None:
        """Handle readiness, an epoll mask."""

    def on_fault(self, error: Exception) -> None:
        """Take an exception that escaped from `on_event`: a fault of ours that ends this one use."""


class Reactor:
    """One epoll for any number of sockets; descriptors above 1023 are as good as others.

    `buffers` is one buffer that every read goes through. A read straight into an object of its own would allocate
    READ_BYTES and give most of it back, which leaves the heap in pieces: 20 MiB at 256 streams.
    `poll` runs in the hub whenever something is ready. Any greenlet may call the other methods; none blocks.
    """

    def __init__(self, next_due: NextDue | None = None) -> None:
        self.clock = ReadClock()
        self._room_ns = (next_due or NextDue()).room_ns
        self.buffers = [memoryview(bytearray(READ_BYTES))]
        self._watched: dict[int, Watched] = {}
        self._epoll: select.epoll = monkey.get_original("select", "epoll")()
        self._ready = self._epoll.poll
        self._anchor = _stamping_socket()
        self._watcher = gevent.get_hub().loop.io(self._epoll.fileno(), _READ)
        self._watcher.start(self.poll)

    def add(self, fd: int, watched: Watched, mask: int) -> None:
        """Watch a descriptor."""
        self._epoll.register(fd, mask)
        self._watched[fd] = watched

    def change(self, fd: int, mask: int) -> None:
        """Watch for other events."""
        self._epoll.modify(fd, mask)

    def remove(self, fd: int) -> None:
        """Forget a descriptor; call before closing it."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def poll(self) -> None:
        """Serve ready sockets once each, as many as there is room for; those that wait longest come first."""
        self._serve(min(MAX_BATCH, self._room_ns(self.clock.begin_batch()) // READ_NS))

    def catch_up(self) -> None:
        """Serve up to MAX_BATCH ready sockets, whoever is due meanwhile."""
        self.clock.begin_batch()
        self._serve(MAX_BATCH)

    def _serve(self, most: int) -> None:
        watched = self._watched.get
        for fd, mask in self._ready(0, most):
            user = watched(fd)
            if user is None:
                continue  # closed by an earlier event of this batch
            try:
                user.on_event(mask)
            except Exception as error:  # noqa: BLE001 - top of a hub callback: one exchange fails, the others go on
                user.on_fault(error)

    def close(self) -> None:
        """Stop watching; the sockets stay as they are. A second call changes nothing."""
        if self._epoll.closed:
            return
        self._watcher.stop()
        self._watcher.close()
        self._epoll.close()
        self._anchor.close()
        self._watched.clear()


def _stamping_socket() -> socket.socket:
    """Return an unused socket that keeps the kernel's stamping switched on.

    The kernel turns stamping on a moment after the first socket asks for it; packets before that have none.
    """
    anchor: socket.socket = monkey.get_original("socket", "socket")(socket.AF_INET, socket.SOCK_DGRAM)
    anchor.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return anchor
