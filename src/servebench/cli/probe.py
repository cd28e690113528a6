"""Know how a service is asked for what `check` wants to see: at most five small requests, each on a time limit.

The streamed answer goes through the same reader that the load goes through, so what is found is what a run would find.
"""

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from servebench.cli.preflight import connect, request_headers
from servebench.core.errors import InputError
from servebench.core.records import Answer, Message
from servebench.core.target import Target
from servebench.wire.endpoint import Endpoint
from servebench.wire.outcome import End
from servebench.wire.request import render_request, request_head
from servebench.wire.timeline import Timeline

MAX_REQUESTS = 5
STREAM_LIMIT_S = 60.0
"""A model that is asked for the first time may have to be loaded."""
_BODY_LIMIT = 16 << 20
PROMPT = "Count from one to twenty in words."
MAX_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to a GET. `headers` have lower-case names; `clock_offset_s` = server's Date less ours."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    clock_offset_s: float | None

    def json(self) -> Any:  # noqa: ANN401 - whatever a server sends
        """Return the body as JSON; None when it is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """The answer to one small request for a stream."""

    answer: Answer
    kept_alive: bool
    """Whether the head said so; whether it holds, the next request tells."""


@dataclass(slots=True, kw_only=True)
class Prober:
    """Asks one service, over one connection for as long as the service keeps it."""

    target: Target
    key: str | None
    requests: int = 0
    connects: int = 0
    connect_ms: float | None = None
    http_version: str | None = None
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    def first(self, path: str) -> Page:
        """Return the answer to the first GET.

        Raises InputError with reason and way out when there is none.
        """
        self.requests += 1
        try:
            return self._ask(self._opened(), self.target, path)
        except TimeoutError as error:
            msg = f"{self.target.authority} took the connection and did not answer GET {path}."
            raise InputError(msg) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            msg = f"{self.target.authority} does not speak HTTP ({type(error).__name__})."
            raise InputError(msg) from error

    def still_open(self, path: str) -> bool | None:
        """Return whether the service takes another request on the open connection; None when that cannot be asked."""
        if self._connection is None:
            return False
        if self.requests >= MAX_REQUESTS:
            return None
        self.requests += 1
        try:
            self._ask(self._connection, self.target, path)
        except (OSError, http.client.HTTPException):
            self.close()
            return False
        return True

    def get(self, path: str) -> Page | None:
        """Return the answer to a GET; None when there is none in time, or five requests are spent."""
        if self.requests >= MAX_REQUESTS - 1:  # the last one is for the stream
            return None
        self.requests += 1
        try:
            return self._ask(self._opened(), self.target, path)
        except (OSError, http.client.HTTPException, InputError):
            self.close()
            return None

    def stream(self, endpoint: Endpoint, model: str | None) -> Streamed:
        """Return the answer to one small request.

        Raises InputError when the service cannot be reached any more.
        """
        self.requests += 1
        body = endpoint.body(
            model=model, messages=(Message("user", PROMPT),), max_tokens=MAX_TOKENS, stream=True, params={}
        )
        head = request_head(request_id="servebench-check-0", api_key=self.key)
        if self.key is None and self.target.authorization is not None:
            head["Authorization"] = self.target.authorization
        connection = self._opened()
        target = self.target.path(endpoint.path)
        data = render_request("POST", target, self.target.netloc, endpoint.headers_with(head), body)
        timeline, end = Timeline(endpoint, stream=True, keep_text=True), End.COMPLETE
        try:
            connection.sock.settimeout(STREAM_LIMIT_S)
            connection.sock.sendall(data)
            end = _read(connection, timeline)
        except TimeoutError:
            end = End.TIMEOUT_TOTAL
        except OSError:
            end = End.RESET
        kept = timeline.keep_alive
        if not kept or end is not End.COMPLETE:
            self.close()
        return Streamed(answer=timeline.finish(end, time.monotonic_ns()), kept_alive=kept)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> http.client.HTTPConnection:
        if self._connection is None:
            began_ns = time.monotonic_ns()
            self._connection = self._open(self.target)
            self.connects += 1
            if self.connect_ms is None:
                self.connect_ms = (time.monotonic_ns() - began_ns) / 1e6
        return self._connection

    @staticmethod
    def _open(target: Target) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(target.host, target.port)
        try:
            connection.sock = connect(target)
        except ssl.SSLError as error:
            msg = f"{target.authority}: {error.reason or error}"
            raise InputError(msg) from error
        return connection

    def _ask(self, connection: http.client.HTTPConnection, target: Target, path: str) -> Page:
        connection.request("GET", target.path(path), headers=request_headers(target, self.key))
        response = connection.getresponse()
        body = response.read(_BODY_LIMIT)
        now_s = time.time()
        self.http_version = self.http_version or f"HTTP/1.{response.version % 10}"
        if response.will_close:
            self.close()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Page(
            status=response.status, headers=headers, body=body, clock_offset_s=_offset_s(headers.get("date"), now_s)
        )


def _read(connection: http.client.HTTPConnection, timeline: Timeline) -> End:
    deadline = time.monotonic() + STREAM_LIMIT_S
    while not (timeline.message_done or timeline.broken):
        if time.monotonic() > deadline:
            return End.TIMEOUT_TOTAL
        data = connection.sock.recv(65_536)
        if not data:
            return End.EOF
        timeline.feed(data, time.monotonic_ns(), -1)
    return End.COMPLETE


def _offset_s(date: str | None, now_s: float) -> float | None:
    """Return by how much the server's clock is ahead, at best to a second."""
    if date is None:
        return None
    try:
        return parsedate_to_datetime(date).timestamp() - now_s
    except (ValueError, TypeError, OverflowError):
        return None
