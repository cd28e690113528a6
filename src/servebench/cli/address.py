"""Know what an address given with --url may be, and how it is shown without its secrets."""

import base64
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from servebench.core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server's address. `path` has no slash at its end; `userinfo` and `query` may hold secrets: never show them."""

    scheme: str
    host: str
    port: int
    path: str
    query: str
    userinfo: str | None

    @property
    def shown(self) -> str:
        """The address without userinfo and query."""
        return f"{self.scheme}://{self.place}{self.path}"

    @property
    def place(self) -> str:
        """Host and port, as a person writes them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def basic(self) -> str | None:
        """Value of the Authorization header that the userinfo stands for; None without one."""
        if self.userinfo is None:
            return None
        return "Basic " + base64.b64encode(unquote(self.userinfo).encode()).decode("ascii")

    def endpoint(self, path: str) -> str:
        """Return the request target of an API path such as /v1/models.

        A base that already ends in /v1, or in the path of an endpoint, is not written twice.
        """
        base = self.path
        for known in ("/chat/completions", "/completions", "/v1"):
            base = base.removesuffix(known)
        return base + path + (f"?{self.query}" if self.query else "")


def parse_address(url: str) -> Address:
    """Return the parts of an http or https address.

    Raises InputError with the form that works; the message never holds userinfo or query.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        msg = f"--url is no address: {error}\n  try: --url http://127.0.0.1:8000"
        raise InputError(msg) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(c.isspace() for c in url):
        msg = f'--url "{_harmless(url)}" is no http:// or https:// address.\n  try: --url {_guess(url)}'
        raise InputError(msg)
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port if port is not None else (443 if parts.scheme == "https" else 80),
        path=parts.path.rstrip("/"),
        query=parts.query,
        userinfo=parts.netloc.rpartition("@")[0] or None,
    )


def redact(text: str, url: str) -> str:
    """Return `text` with a given address replaced by the form that holds no secrets."""
    return text.replace(url, parse_address(url).shown)


def _harmless(url: str) -> str:
    return url.partition("?")[0].rpartition("@")[2] if "@" in url else url.partition("?")[0]


def _guess(url: str) -> str:
    rest = _harmless(url).rpartition("/")[2] if "://" not in url else _harmless(url).partition("://")[2]
    host = rest.strip("/")
    looks_right = host and all(c.isalnum() or c in ".-:" for c in host) and not host.endswith(":")
    return f"http://{host}" if looks_right else "http://127.0.0.1:8000"
