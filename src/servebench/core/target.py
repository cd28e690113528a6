"""Know what a target URL means: which host and port, which path to ask for, and what of it may be shown.

Followed: RFC 3986, RFC 6874 (zones of IPv6 addresses), RFC 7617 (Basic), IDNA as Python's codec has it.
"""

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import SplitResult, quote, unquote_to_bytes, urljoin, urlsplit

from servebench.core.errors import InputError

_DEFAULT_PORT = {"http": 80, "https": 443}
_EXAMPLE = "http://127.0.0.1:8000"
_V1 = "/v1"

WHOLE_PATH = re.compile(
    r"((?P<openai>/chat/completions|/completions|/responses|/messages|/embeddings|/models)"
    r"|/api/chat|/generate(_stream)?|/v2/models/[^/]+/(infer|generate)(_stream)?)$"
)
"""Ends of a base path that are an endpoint's own path, which people copy whole; a test holds all endpoints to it."""

_HOST = re.compile(r"[A-Za-z0-9._-]+")
_DIFFERS = frozenset("ßς\u200c\u200d")
"""Characters that IDNA 2003 drops or replaces and IDNA 2008 keeps, so that two clients reach two servers."""

_PATH_SAFE = "/%:@!$&'()*+,;=~-._"
_QUERY_SAFE = _PATH_SAFE + '?{}|\\^`"<>[]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests go.

    `host` is a name in ASCII or an IP, without brackets, with the zone of a link-local one. `base_path` is what
    precedes an endpoint's path, "" or starting with a slash, never ending in one. `query` comes without its question
    mark. `authorization` is the Basic credential of the URL's userinfo, None without one. Neither of the last two may
    be shown.
    """

    scheme: str
    host: str
    port: int
    base_path: str = ""
    query: str = field(default="", repr=False)
    authorization: str | None = field(default=None, repr=False)

    @property
    def server_name(self) -> str:
        """The host as the server knows it: a zone means something on this machine only."""
        return self.host.partition("%")[0]

    @property
    def netloc(self) -> str:
        """The Host header: host, and the port where it is not the scheme's own."""
        host, _, _ = self.authority.rpartition(":")
        return host if self.port == _DEFAULT_PORT[self.scheme] else self.authority

    @property
    def authority(self) -> str:
        """Host and port, as CONNECT names them, and messages about connections."""
        name = self.server_name
        return f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}"

    @property
    def redacted(self) -> str:
        """The address without userinfo and query, as rows and messages name it."""
        return f"{self.scheme}://{self.netloc}{self.base_path}"

    def path(self, endpoint_path: str) -> str:
        """Return the request target for a path such as `/v1/chat/completions`, query included."""
        path = self.plain_path(endpoint_path)
        return f"{path}?{self.query}" if self.query else path

    def plain_path(self, endpoint_path: str) -> str:
        """Return the path to ask at, without the query, so that it may be shown.

        What the base path already holds of it, its `/v1` or all of it, is not written twice. Where the base is the
        whole path of another endpoint, that one's place is taken: beside `/gw/chat/completions` is `/gw/models`.
        """
        base, short = self.base_path, endpoint_path.removeprefix(_V1)
        whole = WHOLE_PATH.search(base)
        if base.endswith(endpoint_path) or (whole is not None and whole[0] == short):
            return base
        stem = base if whole is None else base[: whole.start()]
        if stem.endswith(_V1):
            return stem.removesuffix(_V1) + endpoint_path
        return stem + (short if whole is not None and whole["openai"] else endpoint_path)

    def url_of(self, endpoint_path: str) -> str:
        """Return the address of a path as messages name it, without userinfo and query."""
        return f"{self.scheme}://{self.netloc}{self.plain_path(endpoint_path)}"


def parse_target(url: str, name: str = "--url") -> Target:
    """Return the target that a URL names; `name` is where the user gave it, as the message says it.

    Raises InputError with the way out; its message never holds userinfo or query.
    """
    text = url.strip()
    if not text.isprintable() or any(character.isspace() for character in text):
        _refuse(text, name, "holds a space or a control character")
    parts = _split(text, name)
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORT or not parts.netloc:
        _refuse(text, name, "is no http:// or https:// address")
    if "@" in parts.path + parts.query + parts.fragment:  # else part of a password would pass for a path and be shown
        _refuse(text, name, "has an @ behind the host; write / ? # @ of a password as %2F %3F %23 %40")
    if parts.fragment or text.endswith("#"):
        _refuse(text, name, "holds a #, and what follows it is never sent; write a # of a key as %23")
    host, port = _host_and_port(parts, text, name)
    return Target(
        scheme=scheme,
        host=host,
        port=_DEFAULT_PORT[scheme] if port is None else port,
        base_path=quote(parts.path.rstrip("/"), safe=_PATH_SAFE),
        query=quote(parts.query, safe=_QUERY_SAFE),
        authorization=_basic(parts),
    )


def parse_proxy(url: str, name: str = "--proxy") -> Target:
    """Return the proxy that a URL names: http, a host and maybe userinfo; without a port it is 80.

    Raises InputError with the way out; its message never holds userinfo.
    """
    proxy = parse_target(url, name)
    if proxy.scheme != "http" or proxy.base_path or proxy.query:
        msg = f'{name} "{proxy.redacted}" is no http:// address of host and port.{_way_out(name, proxy.authority)}'
        raise InputError(msg)
    return proxy


def shown_argument(argument: str) -> str:
    """Return an argument of a command line as files may hold it: an address in it without userinfo and query."""
    before, mark, rest = argument.partition("://")
    return before + mark + re.split(r"[?#]", rest.rpartition("@")[2])[0] if mark else argument


REDIRECTS = frozenset({301, 302, 307, 308})
"""Statuses that say where the same question is answered."""


def redirected_path(target: Target, path: str, location: str) -> str | None:
    """Return the request target that a redirect from `path` leads to; None where it leaves the target's origin.

    Going elsewhere would send the key to a server that nobody named, and measure one that the run does not name.
    """
    try:
        parts = urlsplit(urljoin(f"{target.scheme}://{target.netloc}{path}", location))
        origin = (parts.scheme, parts.hostname, parts.port or _DEFAULT_PORT.get(parts.scheme))
    except ValueError:
        return None
    if origin != (target.scheme, target.server_name.lower(), target.port) or "@" in parts.netloc:
        return None
    found = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return found if found.isascii() and found.isprintable() and " " not in found else None


def _split(text: str, name: str) -> SplitResult:
    try:
        parts = urlsplit(text)
    except ValueError:  # its message may hold the password
        _refuse(text, name, "has a host that cannot be read")
    if "\\" in parts.netloc or re.search(r"\](?!:|$)", parts.netloc):  # others read another host there than we do
        _refuse(text, name, "has a host that cannot be read")
    return parts


def _host_and_port(parts: SplitResult, text: str, name: str) -> tuple[str, int | None]:
    try:
        port = parts.port
    except ValueError:
        _refuse(text, name, "has a port that is no number from 1 to 65535")
    host = parts.hostname
    if not host or port == 0:
        _refuse(text, name, "has port 0" if host else "has no host")
    return _ascii_host(host, text, name), port


def _ascii_host(host: str, text: str, name: str) -> str:
    try:
        return str(ipaddress.ip_address(host.replace("%25", "%")))
    except ValueError:
        pass
    if _DIFFERS & set(host):
        _refuse(text, name, "has a host name that clients spell in two ways; write it as xn--…")
    try:
        ascii_host = host.encode("idna").decode("ascii")
    except UnicodeError:
        ascii_host = ""
    if not _HOST.fullmatch(ascii_host):
        _refuse(text, name, f"names no host: {host!r} is none")
    return ascii_host


def _basic(parts: SplitResult) -> str | None:
    userinfo = parts.netloc.rpartition("@")[0]
    if not userinfo:
        return None
    user, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return "Basic " + base64.b64encode(pair).decode("ascii")


def _refuse(text: str, name: str, fault: str) -> NoReturn:
    shown = _shown(text)
    msg = f'{name} "{shown}" {fault}.{_way_out(name, shown.partition("://")[2] or shown)}'
    raise InputError(msg)


def _way_out(name: str, rest: str) -> str:
    """Return the line with what would work: the host that was meant, where there seems to be one."""
    host, _, port = rest.strip("/").rpartition("/")[2].partition(":")
    meant = re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|localhost", host) and re.fullmatch(
        r"[0-9]{0,4}|[1-5][0-9]{4}", port
    )
    url = f"http://{host}:{port or 8000}" if meant else _EXAMPLE
    before = f"{name} " if name.startswith("--") else f"{name}=" if name.startswith("SERVEBENCH_") else ""
    return f"\n  try: {before}{url}"


def _shown(text: str) -> str:
    """Return the URL without anything that may be a secret: userinfo, or what may have been meant as one, and query."""
    before, found, after = text.rpartition("@")
    scheme = before.partition("://")[0]
    start = f"{scheme}://" if scheme.isalpha() and scheme != before else ""
    shown = re.split(r"[?#]", start + after if found else text)[0]
    return "".join(character if character.isprintable() else " " for character in shown)
