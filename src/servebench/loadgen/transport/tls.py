"""Know how bytes become TLS records and back, without a socket: the reactor's reads keep their kernel stamps."""

import ssl

_READ_BYTES = 65536


class TlsPipe:
    """One TLS client session between two buffers. Called in the hub or by a request's greenlet; never blocks.

    Methods raise ssl.SSLError for what the peer or the certificate does wrong.
    """

    __slots__ = ("_incoming", "_outgoing", "_session", "ended")

    def __init__(self, context: ssl.SSLContext, hostname: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)
        self.ended = False

    def handshake(self, received: bytes) -> bool:
        """Take the peer's bytes (none at first) and return whether the session is up; then send `pending()`."""
        if received:
            self._incoming.write(received)
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def pending(self) -> bytes:
        """Return the records that wait to be sent."""
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        """Return records that carry the data, after any that were waiting."""
        self._session.write(data)
        return self._outgoing.read()

    def decrypt(self, records: bytes) -> bytes:
        """Return the data in these records; may be empty. Sets `ended` when the peer closed the session."""
        incoming, session = self._incoming, self._session
        incoming.write(records)
        parts = []
        try:
            while part := session.read(_READ_BYTES):
                parts.append(part)
                if not incoming.pending and not session.pending():
                    break  # asking once more would cost as much as the record: an exception
            else:
                self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(parts)


def client_context() -> ssl.SSLContext:
    """Return a context that verifies certificate and host name against the system's trust store."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
