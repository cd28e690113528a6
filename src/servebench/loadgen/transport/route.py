"""Know the way to a target: what to connect to, and what a connection passes through before it is up."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from servebench.core.target import Target
from servebench.loadgen.transport.address import SocketAddress, resolve
from servebench.loadgen.transport.connection import Connection, Receiver
from servebench.loadgen.transport.reactor import Reactor
from servebench.loadgen.transport.tls import TlsPipe, client_context
from servebench.loadgen.transport.tunnel import Tunnel


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How every connection to one target is made.

    `addresses` are the target's own, or its proxy's. `context` None = no TLS. `before_path` is written before a path
    and `headers` with each request, where a proxy reads the requests. `tunnel_authorization` is for CONNECT.
    """

    target: Target
    addresses: Sequence[SocketAddress]
    context: ssl.SSLContext | None = None
    before_path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tunnelled: bool = False
    tunnel_authorization: str | None = field(default=None, repr=False)

    def open(self, reactor: Reactor, address: SocketAddress, receiver: Receiver) -> Connection:
        """Begin a connection; raises OSError when the address refuses at once. Does not block."""
        target = self.target
        tls = None if self.context is None else TlsPipe(self.context, target.server_name)
        tunnel = Tunnel(target.authority, self.tunnel_authorization) if self.tunnelled else None
        return Connection(reactor, address, receiver, tls, tunnel)


def route_to(target: Target, proxy: Target | None = None) -> Route:
    """Return the way to a target, through a proxy where one is given; resolving a name may block.

    Requests to an https target go through a tunnel; a proxy sees http requests whole. Certificates are verified against
    the system's trust store, or that of SSL_CERT_FILE. Raises InputError for a name without address.
    """
    addresses = resolve(target if proxy is None else proxy)
    if target.scheme == "https":
        return Route(
            target=target,
            addresses=addresses,
            context=client_context(),
            tunnelled=proxy is not None,
            tunnel_authorization=None if proxy is None else proxy.authorization,
        )
    if proxy is None:
        return Route(target=target, addresses=addresses)
    known = {} if proxy.authorization is None else {"Proxy-Authorization": proxy.authorization}
    return Route(target=target, addresses=addresses, before_path=f"http://{target.netloc}", headers=known)
