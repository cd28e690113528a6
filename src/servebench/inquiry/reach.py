"""Know how one blocking connection to a service comes up, and the words for each way in which it does not."""

import queue
import socket
import ssl
import threading
import time

from servebench.core.errors import InputError
from servebench.core.target import Target
from servebench.wire.approach import Approach
from servebench.wire.tunnel import Tunnel, TunnelRefusedError

CONNECT_LIMIT_S = 2.0
"""For the name, the connection, a proxy's tunnel and TLS, each."""

Place = tuple[int, int, int, str, tuple[object, ...]]


def connect(approach: Approach) -> socket.socket:
    """Return a connected socket, through the proxy's tunnel and with TLS where the way has them.

    Tries every address of the host. Raises InputError with reason and way out.
    """
    plain = _connect(approach)
    try:
        tunnel = approach.tunnel()
        if tunnel is not None:
            _dig(plain, tunnel, approach)
        return _secure(plain, approach.target) if approach.secure else plain
    except BaseException:
        plain.close()
        raise


def _connect(approach: Approach) -> socket.socket:
    entrance = approach.entrance
    deadline = time.monotonic() + CONNECT_LIMIT_S
    failure: OSError = TimeoutError()
    for family, kind, protocol, _, place in _resolve(entrance):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(max(0.05, deadline - time.monotonic()))
            plain.connect(place)
            plain.settimeout(CONNECT_LIMIT_S)
        except OSError as error:
            plain.close()
            failure = error
            continue
        return plain
    raise InputError(_connect_message(approach, failure)) from failure


def _resolve(entrance: Target) -> list[Place]:
    """Look a name up in a thread, because a resolver keeps to no time limit."""
    answers: queue.SimpleQueue[list[Place] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answers.put(list(socket.getaddrinfo(entrance.host, entrance.port, type=socket.SOCK_STREAM)))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=look_up, daemon=True, name="resolve").start()
    try:
        answer = answers.get(timeout=CONNECT_LIMIT_S)
    except queue.Empty:
        answer = TimeoutError()
    if isinstance(answer, Exception):
        msg = f'cannot resolve host "{entrance.host}".\n  try: its IP address'
        raise InputError(msg) from answer
    return answer


def _dig(plain: socket.socket, tunnel: Tunnel, approach: Approach) -> None:
    try:
        plain.sendall(tunnel.request)
        while not tunnel.feed(_received(plain)):
            pass
    except (TunnelRefusedError, OSError) as error:
        why = str(error) if isinstance(error, TunnelRefusedError) else "it does not answer CONNECT"
        msg = f"proxy {approach.entrance.authority}: {why}."
        raise InputError(msg) from error


def _received(plain: socket.socket) -> bytes:
    data = plain.recv(65_536)
    if not data:
        msg = "the proxy closed before the tunnel was there"
        raise TunnelRefusedError(msg)
    return data


def _secure(plain: socket.socket, target: Target) -> socket.socket:
    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=target.server_name)
    except ssl.SSLCertVerificationError as error:
        why = f"is not trusted: {error.verify_message}"
        msg = f"the certificate of {target.authority} {why}.\n  try: SSL_CERT_FILE=ca.pem"
        raise InputError(msg) from error
    except TimeoutError as error:
        msg = f"{target.authority} took the connection and does not go on with TLS.{_without_tls(target)}"
        raise InputError(msg) from error
    except (ssl.SSLError, OSError) as error:
        why = getattr(error, "reason", None) or type(error).__name__
        msg = f"{target.authority} does not speak TLS ({why}).{_without_tls(target)}"
        raise InputError(msg) from error


def _without_tls(target: Target) -> str:
    return f"\n  try: --url http://{target.authority}{target.base_path}"


def _connect_message(approach: Approach, failure: OSError) -> str:
    entrance = approach.entrance
    place = entrance.authority if approach.proxy is None else f"{entrance.authority}, the proxy"
    if isinstance(failure, ConnectionRefusedError):
        if approach.proxy is not None:
            return f"nothing listens at {place} (connection refused).\n  try: another --proxy or SERVEBENCH_PROXY"
        up = f"is the server up?  curl -sS {entrance.url_of('/v1/models')}"
        return f"nothing listens at {place} (connection refused).\n  try: {up}      no server at hand:  servebench demo"
    if isinstance(failure, TimeoutError):
        return f"no answer from {place} in {CONNECT_LIMIT_S:g} s (firewall or wrong address?)."
    return f"cannot connect to {place}: {failure.strerror or failure}."
