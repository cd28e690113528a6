"""Know how a proxy is asked for a tunnel to a target, and when it is there (RFC 9110, section 9.3.6)."""

_READ_LIMIT = 64 * 1024


class TunnelRefusedError(Exception):
    """The proxy gives no tunnel; the message says what it answered."""


class Tunnel:
    """One CONNECT: send `request`, `feed` what comes back until it says that the tunnel is there. No socket, no clock.

    `authority` is host and port of the target, `authorization` the credential for the proxy, None without one.
    """

    __slots__ = ("_head", "request")

    def __init__(self, authority: str, authorization: str | None) -> None:
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        if authorization is not None:
            lines.append(f"Proxy-Authorization: {authorization}")
        self.request = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._head = bytearray()

    def feed(self, data: bytes) -> bool:
        """Return whether the tunnel is there.

        Raises TunnelRefusedError for an answer other than 2xx, one that is no HTTP, and bytes of the target before it
        was spoken to.
        """
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end:
            if len(self._head) > _READ_LIMIT:
                msg = "the proxy's answer to CONNECT has no end"
                raise TunnelRefusedError(msg)
            return False
        status = _status(bytes(head))
        if not 200 <= status < 300:
            words = {407: "; give user and password in SERVEBENCH_PROXY"}.get(status, "")
            msg = f"the proxy refuses the tunnel with status {status}{words}"
            raise TunnelRefusedError(msg)
        if rest:
            msg = "the proxy sent more than its answer to CONNECT"
            raise TunnelRefusedError(msg)
        return True


def _status(head: bytes) -> int:
    """Return the status of a response head; raises TunnelRefusedError for what is none."""
    try:
        version, status = head.split(None, 2)[:2]
        if version.startswith(b"HTTP/1.") and len(status) == 3:
            return int(status)
    except ValueError:
        pass
    msg = "the proxy answers CONNECT with something that is no HTTP"
    raise TunnelRefusedError(msg)
