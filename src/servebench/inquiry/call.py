"""Know how a service is asked a question and its answer read, on one connection, each within a limit of time."""

import socket
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from servebench.core.errors import InputError
from servebench.inquiry.reach import CONNECT_LIMIT_S, connect
from servebench.wire.approach import Approach
from servebench.wire.coding import CODINGS, Inflater
from servebench.wire.http import ResponseParser
from servebench.wire.request import QUESTION_HEAD

TOTAL_LIMIT_S = 2.5
"""From the first byte of a question to the last of its answer. With the connection a mistake is told within 5 s."""
SILENT_LIMIT_S = 2.0
BODY_LIMIT = 16 << 20


class CallError(InputError):
    """A question got no answer; the message says why."""


class SilentError(CallError):
    """The service took the question and gave no answer in time."""


class StaleError(CallError):
    """A kept connection gave no byte: the server had closed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to a GET. `headers` have lower-case names; `clock_offset_s` = server's Date less ours."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    http_version: str = "HTTP/1.1"
    clock_offset_s: float | None = None

    def json(self) -> Any:  # noqa: ANN401 - whatever a server sends
        """Return the body as JSON; None when it is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


class Caller:
    """One connection to a service for as long as the service keeps it; all calls block."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self.connect_ms: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether a connection is kept."""
        return self._socket is not None

    def opened(self, approach: Approach) -> socket.socket:
        """Return the kept connection, else a new one; raises InputError where none comes up."""
        if self._socket is None:
            began_ns = time.monotonic_ns()
            self._socket = connect(approach)
            if self.connect_ms is None:
                self.connect_ms = (time.monotonic_ns() - began_ns) / 1e6
        return self._socket

    def get(self, approach: Approach, path: str, *, again: bool = True) -> Page:
        """Return the answer to a GET of a request target, query included; redirects are answers.

        A kept connection that broke without a byte is replaced once; without `again` that raises StaleError. Raises
        InputError, mostly CallError, where there is no answer.
        """
        kept = self.is_open
        connection = self.opened(approach)
        parser = ResponseParser(keep_all=True)
        try:
            body = _exchange(connection, approach.question(path, QUESTION_HEAD), parser)
        except (OSError, ValueError) as error:
            self.close()
            place = approach.target.authority
            if kept and not parser.begun and not isinstance(error, TimeoutError):
                if again:
                    return self.get(approach, path)
                msg = f"{place} closed the kept connection"
                raise StaleError(msg) from error
            raise _no_answer(error, parser, place, path.partition("?")[0]) from error
        if not parser.reusable:
            self.close()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in parser.headers.items()}
        return Page(
            status=parser.status or 0,
            headers=headers,
            body=body,
            http_version=f"HTTP/{parser.http_version}",
            clock_offset_s=_offset_s(headers.get("date"), time.time()),
        )

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _exchange(connection: socket.socket, request: bytes, parser: ResponseParser) -> bytes:
    """Return the body of the answer, at most BODY_LIMIT of it; raises ValueError for what is no HTTP."""
    deadline = time.monotonic() + TOTAL_LIMIT_S
    connection.settimeout(SILENT_LIMIT_S)
    connection.sendall(request)
    body = bytearray()
    while not parser.complete:
        connection.settimeout(min(SILENT_LIMIT_S, max(0.001, deadline - time.monotonic())))
        data = connection.recv(65_536)
        if not data:
            break
        for part in parser.feed(data):
            body += part
        if parser.fault is not None or len(body) > BODY_LIMIT:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
    connection.settimeout(CONNECT_LIMIT_S)
    if parser.status is None:
        raise ValueError(parser.fault or "no answer")
    return _decoded(bytes(body), parser.headers.get(b"content-encoding", b"").strip().lower())


def _decoded(body: bytes, coding: bytes) -> bytes:
    """Return the body without its coding, as far as it can be undone."""
    if coding not in CODINGS:
        return body
    plain = bytearray()
    try:
        for piece in Inflater(coding).feed(body):
            plain += piece
            if len(plain) > BODY_LIMIT:
                break
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return bytes(plain)


def _no_answer(error: Exception, parser: ResponseParser, place: str, asked: str) -> CallError:
    if not isinstance(error, TimeoutError):
        return CallError(f"{place} does not speak HTTP ({error or type(error).__name__}).")
    if parser.begun:
        return SilentError(f"no answer from {place} to GET {asked} in {TOTAL_LIMIT_S:g} s.")
    return SilentError(f"{place} took the connection and did not answer GET {asked}.")


def _offset_s(date: str | None, now_s: float) -> float | None:
    """Return by how much the server's clock is ahead, at best to a second."""
    if date is None:
        return None
    try:
        return parsedate_to_datetime(date).timestamp() - now_s
    except (ValueError, TypeError, OverflowError):
        return None
