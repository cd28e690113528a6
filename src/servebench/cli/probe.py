"""Know how a service is asked for what `check` wants to see: at most five small requests, each on a time limit.

The streamed answer goes through the same reader that the load goes through, so what is found is what a run would find.
"""

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from servebench.core.errors import InputError
from servebench.core.records import Answer, Message
from servebench.core.target import REDIRECTS, Target, redirected_path
from servebench.inquiry.call import Caller, Page
from servebench.inquiry.secrets import Secrets
from servebench.inquiry.way import approach_to
from servebench.wire.approach import Approach
from servebench.wire.endpoint import Endpoint, ParamValue
from servebench.wire.outcome import End
from servebench.wire.request import request_head
from servebench.wire.timeline import Timeline

MAX_REQUESTS = 5
STREAM_LIMIT_S = 60.0
"""A model that is asked for the first time may have to be loaded."""
PROMPT = "Count from one to twenty in words."
MAX_TOKENS = 16
HEAD_BYTES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """The answer to one small request for a stream."""

    answer: Answer
    kept_alive: bool
    """Whether the head said so; whether it holds, the next request tells."""

    header_names: tuple[str, ...] = ()
    """Names of the answer's headers, in small letters."""


@dataclass(slots=True, kw_only=True)
class Prober:
    """Asks one service, over one connection for as long as the service keeps it.

    `endpoint` is whose headers the questions carry.
    """

    target: Target
    endpoint: Endpoint
    secrets: Secrets
    requests: int = 0
    http_version: str | None = None
    caller: Caller = field(default_factory=Caller, repr=False)

    def way(self, endpoint: Endpoint) -> Approach:
        """Return how requests of an endpoint reach the service."""
        return approach_to(self.target, endpoint, self.secrets, headers={}, proxy=None)

    def first(self, path: str) -> Page:
        """Return the answer to the first GET.

        Raises InputError with reason and way out when there is none.
        """
        self.requests += 1
        page = self.caller.get(self.way(self.endpoint), self.target.path(path))
        self.http_version = page.http_version
        return page

    def still_open(self, path: str) -> bool | None:
        """Return whether the service takes another request on the open connection; None when that cannot be asked."""
        if not self.caller.is_open:
            return False
        if self.requests >= MAX_REQUESTS:
            return None
        self.requests += 1
        try:
            self.caller.get(self.way(self.endpoint), self.target.path(path), again=False)
        except InputError:
            return False
        return True

    def get(self, path: str) -> Page | None:
        """Return the answer to a GET, after at most one redirect; None: no answer, or the requests are spent."""
        asked = self.target.path(path)
        page = self._page(asked)
        location = None if page is None or page.status not in REDIRECTS else page.headers.get("location")
        onward = None if location is None else redirected_path(self.target, asked, location)
        return page if onward is None else self._page(onward)

    def _page(self, path: str) -> Page | None:
        if self.requests >= MAX_REQUESTS - 1:  # the last one is for the stream
            return None
        self.requests += 1
        try:
            return self.caller.get(self.way(self.endpoint), path)
        except InputError:
            return None

    def stream(self, endpoint: Endpoint, model: str | None, params: Mapping[str, ParamValue]) -> Streamed:
        """Return the answer to one small request, with `params` as a workload's `requests.params`.

        Raises InputError when the service cannot be reached any more.
        """
        self.requests += 1
        body = endpoint.body(
            model=model, messages=(Message("user", PROMPT),), max_tokens=MAX_TOKENS, stream=True, params=params
        )
        way = self.way(endpoint)
        data = way.opening(self.target.path(endpoint.path), request_head()).request("servebench-check-0", body)
        connection = self.caller.opened(way)
        timeline, end, begun = Timeline(endpoint, stream=True, keep_text=True), End.COMPLETE, bytearray()
        try:
            connection.settimeout(STREAM_LIMIT_S)
            connection.sendall(data)
            end = _read(connection, timeline, begun)
        except TimeoutError:
            end = End.TIMEOUT_TOTAL
        except OSError:
            end = End.RESET
        kept = timeline.keep_alive
        if not kept or end is not End.COMPLETE:
            self.caller.close()
        answer = timeline.finish(end, time.monotonic_ns())
        return Streamed(answer=answer, kept_alive=kept, header_names=_names(bytes(begun)))


def _names(begun: bytes) -> tuple[str, ...]:
    """Return the names of the headers that an answer begins with."""
    lines = begun.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return tuple(line.partition(b":")[0].decode("latin-1").strip().lower() for line in lines)


def _read(connection: socket.socket, timeline: Timeline, begun: bytearray) -> End:
    """Read the answer to its end; `begun` gets its first HEAD_BYTES, as they came."""
    deadline = time.monotonic() + STREAM_LIMIT_S
    while not (timeline.message_done or timeline.broken):
        if time.monotonic() > deadline:
            return End.TIMEOUT_TOTAL
        data = connection.recv(65_536)
        if not data:
            return End.EOF
        begun += data[: HEAD_BYTES - len(begun)]
        timeline.feed(data, time.monotonic_ns(), -1)
    return End.COMPLETE
