"""Know what a target URL means: which host and port, which path to ask for, and what of it may be shown."""

import base64
import ipaddress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote_to_bytes, urljoin, urlsplit

from servebench.core.errors import InputError

_DEFAULT_PORT = {"http": 80, "https": 443}
_WAY_OUT = "e.g. http://127.0.0.1:8000 or https://llm.example.com/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests go.

    `base_path` is what precedes an endpoint's path, "" or starting with a slash, never ending in one. `query` comes
    without its question mark. `authorization` is the Basic credential of the URL's userinfo, None without one. Neither
    of the last two may be shown.
    """

    scheme: str
    host: str
    port: int
    base_path: str = ""
    query: str = field(default="", repr=False)
    authorization: str | None = field(default=None, repr=False)

    @property
    def netloc(self) -> str:
        """The Host header: host, and the port where it is not the scheme's own."""
        host, _, _ = self.authority.rpartition(":")
        return host if self.port == _DEFAULT_PORT[self.scheme] else self.authority

    @property
    def authority(self) -> str:
        """Host and port, as CONNECT names them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def redacted(self) -> str:
        """The address without userinfo and query, as rows and messages name it."""
        return f"{self.scheme}://{self.netloc}{self.base_path}"

    def path(self, endpoint_path: str) -> str:
        """Return the request target for an endpoint such as `/v1/chat/completions`, query included.

        What the base path already holds of the endpoint's path, its `/v1` or all of it, is not written twice.
        """
        base = self.base_path
        if base.endswith(endpoint_path):
            path = base
        elif base.endswith("/v1") and endpoint_path.startswith("/v1/"):
            path = base + endpoint_path.removeprefix("/v1")
        else:
            path = base + endpoint_path
        return f"{path}?{self.query}" if self.query else path


def parse_target(url: str) -> Target:
    """Return the target that a URL names.

    Raises InputError with the way out; its message never holds userinfo or query.
    """
    text = url.strip()
    if not text.isprintable() or any(character.isspace() for character in text):
        msg = f"the target URL holds a space or a control character; {_WAY_OUT}"
        raise InputError(msg)
    parts = _split(text)
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORT or not parts.netloc:
        msg = f"target URL {_shown(text)}: needs http:// or https:// and a host; {_WAY_OUT}"
        raise InputError(msg)
    if "@" in parts.path + parts.query + parts.fragment:  # else part of a password would pass for a path and be shown
        msg = f"target URL {_shown(text)}: @ after the host; write / ? # @ of a password as %2F %3F %23 %40; {_WAY_OUT}"
        raise InputError(msg)
    host, port = _host_and_port(parts, text)
    return Target(
        scheme=scheme,
        host=host,
        port=_DEFAULT_PORT[scheme] if port is None else port,
        base_path=parts.path.rstrip("/"),
        query=parts.query,
        authorization=_basic(parts),
    )


def parse_proxy(url: str) -> Target:
    """Return the proxy that a URL names: http, a host and maybe userinfo; without a port it is 80.

    Raises InputError with the way out; its message never holds userinfo.
    """
    proxy = parse_target(url)
    if proxy.scheme != "http" or proxy.base_path or proxy.query:
        msg = f"proxy {proxy.redacted}: must be http://, a host and a port; e.g. http://127.0.0.1:3128"
        raise InputError(msg)
    return proxy


def shown_argument(argument: str) -> str:
    """Return an argument of a command line as files may hold it: an address in it without userinfo and query."""
    before, mark, rest = argument.partition("://")
    return before + mark + rest.rpartition("@")[2].partition("?")[0] if mark else argument


def redirected_path(target: Target, path: str, location: str) -> str | None:
    """Return the request target that a redirect from `path` leads to; None where it leaves the target's origin.

    Going elsewhere would send the key to a server that nobody named, and measure one that the run does not name.
    """
    try:
        parts = urlsplit(urljoin(f"{target.scheme}://{target.netloc}{path}", location))
        origin = (parts.scheme, parts.hostname, parts.port or _DEFAULT_PORT.get(parts.scheme))
    except ValueError:
        return None
    if origin != (target.scheme, target.host.lower(), target.port) or "@" in parts.netloc:
        return None
    found = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return found if found.isascii() and found.isprintable() and " " not in found else None


def _split(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:  # its message may hold the password
        msg = f"target URL {_shown(text)}: the host cannot be read; {_WAY_OUT}"
        raise InputError(msg) from None


def _host_and_port(parts: SplitResult, text: str) -> tuple[str, int | None]:
    try:
        port = parts.port
    except ValueError:
        msg = f"target URL {_shown(text)}: the port is no number from 1 to 65535; {_WAY_OUT}"
        raise InputError(msg) from None
    host = parts.hostname
    if not host or port == 0:
        msg = f"target URL {_shown(text)}: the {'port is 0' if host else 'host is missing'}; {_WAY_OUT}"
        raise InputError(msg)
    return _ascii_host(host, text), port


def _ascii_host(host: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        msg = f"target URL {_shown(text)}: {host!r} is no host name; {_WAY_OUT}"
        raise InputError(msg) from None


def _basic(parts: SplitResult) -> str | None:
    if "@" not in parts.netloc:
        return None
    userinfo = parts.netloc.rpartition("@")[0]
    user, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return "Basic " + base64.b64encode(pair).decode("ascii")


def _shown(text: str) -> str:
    """Return the URL without anything that may be a secret: userinfo, or what may have been meant as one, and query."""
    before, found, after = text.rpartition("@")
    scheme = before.partition("://")[0]
    start = f"{scheme}://" if scheme.isalpha() and scheme != before else ""
    return '"' + (start + after if found else text).partition("?")[0] + '"'
