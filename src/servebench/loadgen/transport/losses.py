"""Know how a connection ends, and the words for it."""

import errno
import os
import ssl
from enum import StrEnum
from typing import NamedTuple


class Loss(StrEnum):
    """How a connection came to its end, other than by our own closing."""

    CONNECT = "connect"
    EOF = "eof"
    RESET = "reset"


_ERROR_CLASS = {
    errno.ECONNREFUSED: "connection_refused",
    errno.ECONNRESET: "connection_reset",
    errno.EHOSTUNREACH: "host_unreachable",
    errno.ENETUNREACH: "network_unreachable",
    errno.ETIMEDOUT: "timeout_connect",
}


class Lost(NamedTuple):
    """The end of a connection. `detail` is what the system said, `error_class` a word for it; None = nothing."""

    loss: Loss
    detail: str | None = None
    error_class: str | None = None


def lost_by_errno(loss: Loss, number: int | None) -> Lost:
    """Return the end that an errno tells of; None tells of nothing but the end."""
    if number is None:
        return Lost(loss)
    return Lost(loss, os.strerror(number), _ERROR_CLASS.get(number))


def lost_by_tls(loss: Loss, error: ssl.SSLError) -> Lost:
    """Return the end that a TLS error tells of."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Lost(loss, f"TLS: the certificate is not trusted: {error.verify_message}", "tls_error")
    return Lost(loss, f"TLS: {error.reason or error}", "tls_error")
