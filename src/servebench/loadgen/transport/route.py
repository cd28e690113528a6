"""Know the way to a target: what to connect to, and what a connection passes through before it is up."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from servebench.loadgen.transport.address import SocketAddress, resolve
from servebench.loadgen.transport.connection import Connection, Receiver
from servebench.loadgen.transport.reactor import Reactor
from servebench.loadgen.transport.tls import TlsPipe, client_context
from servebench.wire.approach import Approach


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How every connection of an approach is made; `context` None = no TLS."""

    approach: Approach
    addresses: Sequence[SocketAddress]
    context: ssl.SSLContext | None = None

    def open(self, reactor: Reactor, address: SocketAddress, receiver: Receiver) -> Connection:
        """Begin a connection; raises OSError when the address refuses at once. Does not block."""
        tls = None if self.context is None else TlsPipe(self.context, self.approach.target.server_name)
        return Connection(reactor, address, receiver, tls, self.approach.tunnel())


def route_to(approach: Approach) -> Route:
    """Return the way to a target, through its proxy where there is one; resolving a name may block.

    Certificates are verified against the system's trust store, or that of SSL_CERT_FILE. Raises InputError for a name
    without address.
    """
    context = client_context() if approach.secure else None
    return Route(approach=approach, addresses=resolve(approach.entrance), context=context)
