"""Know which socket addresses a target's host has."""

import socket
from typing import NamedTuple

from servebench.core.errors import InputError
from servebench.core.target import Target


class SocketAddress(NamedTuple):
    """An address as `socket.connect` takes it; `place` is (ip, port) or (ip, port, flow, scope)."""

    family: int
    place: tuple[str, int] | tuple[str, int, int, int]


def resolve(target: Target) -> tuple[SocketAddress, ...]:
    """Return every address of a target's or proxy's host, in the resolver's order, each once.

    Blocks the calling greenlet, and the whole process where gevent has not patched `socket`. Raises InputError for a
    name that has no address.
    """
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        msg = f"{target.redacted}: cannot resolve {target.host} ({error.strerror}); check the name or give an IP"
        raise InputError(msg) from error
    addresses = [
        SocketAddress(int(family), place)  # type: ignore[arg-type] # typeshed also knows places of other families
        for family, _, _, _, place in found
        if family in {socket.AF_INET, socket.AF_INET6}
    ]
    return tuple(dict.fromkeys(addresses))
