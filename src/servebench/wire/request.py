"""Know how a request is written down in HTTP/1.1."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
QUESTION_HEAD: Mapping[str, str] = MappingProxyType(
    {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "servebench"}
)
"""Headers of a question that is no load, such as GET /v1/models."""

_TARGET = re.compile(r"(?:http://[\x21-\x2e\x30-\x7e]+)?/[\x21-\x7e]*")


def request_head(*, stream: bool = True) -> dict[str, str]:
    """Return the headers that every request to an endpoint carries, besides Host, X-Request-Id and Content-Length.

    Compression is refused: it would hide from the reader when an event was sent.
    """
    return {
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json" if stream else "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "servebench",
    }


class Opening(NamedTuple):
    """The head of all requests to one path, up to what differs between them."""

    data: bytes

    def request(self, request_id: str, body: bytes) -> bytes:
        """Return a request as it goes over the connection; `request_id` is visible ASCII."""
        return b"%sX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s" % (
            self.data,
            request_id.encode("ascii"),
            len(body),
            body,
        )


def render_opening(method: str, path: str, host: str, headers: Mapping[str, str]) -> Opening:
    """Return the request line and these headers behind Host.

    `path` is the request target in origin form, or in absolute form for a proxy, query included. Raises ValueError for
    a method, target, host, or header that cannot be written without changing the meaning of the head (line ends above
    all); the message holds no value, because a value may be a key.
    """
    if not _TOKEN.fullmatch(method):
        msg = f"{method!r} is no HTTP method"
        raise ValueError(msg)
    if not _TARGET.fullmatch(path):
        msg = "a request target starts with / and holds visible ASCII only; percent-encode the rest"
        raise ValueError(msg)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {_checked('Host', host)}"]
    lines += [f"{name}: {_checked(name, value)}" for name, value in headers.items()]
    return Opening("".join(f"{line}\r\n" for line in lines).encode("latin-1"))


def render_question(path: str, host: str, headers: Mapping[str, str]) -> bytes:
    """Return a GET request as it goes over the connection; raises ValueError as `render_opening` does."""
    return render_opening("GET", path, host, headers).data + b"\r\n"


def _checked(name: str, value: str) -> str:
    if not _TOKEN.fullmatch(name):
        msg = f"{name!r} is no header name"
        raise ValueError(msg)
    if any(character < " " and character != "\t" for character in value) or "\x7f" in value:
        msg = f"the value of header {name} holds a control character"
        raise ValueError(msg)
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        msg = f"the value of header {name} holds a character beyond Latin-1"
        raise ValueError(msg) from None
    return value
