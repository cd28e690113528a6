"""Know where a server's metric pages are and how one is fetched, in bounded time and size."""

import http.client
import ssl
from collections.abc import Sequence
from typing import NamedTuple

import gevent

from servebench.core.errors import InputError
from servebench.core.target import REDIRECTS, Target, parse_target, redirected_path

PATH = "/metrics"
LIMIT_S = 2.0
LIMIT_BYTES = 16 << 20
MOST_REDIRECTS = 3
"""A page may have moved on the same server: LiteLLM's is at /metrics/."""
OWN_PORTS = {"triton-generate": (8002,), "kserve-v2": (8002, 8082)}
"""Where Triton, and for the second MLServer, show their metrics unless told otherwise."""
OFF = "off"


class PageError(Exception):
    """The page could not be had; the text says why."""


class PlacesToAsk(NamedTuple):
    """Addresses of pages. `given` = the user named them, so that their absence is worth a word."""

    targets: tuple[Target, ...]
    given: bool


def places_to_ask(words: Sequence[str], target: Target, endpoint: str) -> PlacesToAsk:
    """Return where to ask: the addresses given, none for the word "off", else what the target's own address suggests.

    Raises InputError for an address that is none.
    """
    if [word.lower() for word in words] == [OFF]:
        return PlacesToAsk((), given=True)
    if words:
        return PlacesToAsk(tuple(_page(parse_target(word, "SERVEBENCH_METRICS_URLS")) for word in words), given=True)
    ports = (target.port, *OWN_PORTS.get(endpoint, ()))
    base = target.base_path.removesuffix("/v1")
    return PlacesToAsk(
        tuple(
            Target(
                scheme=target.scheme,
                host=target.host,
                port=port,
                base_path=base + PATH,
                authorization=target.authorization,
            )
            for port in ports
        ),
        given=False,
    )


def split_places(text: str | None) -> tuple[str, ...]:
    """Return the addresses of a list that is written with commas or spaces."""
    return tuple((text or "").replace(",", " ").split())


def fetch(target: Target) -> str:
    """Return the text of a page. Blocks its greenlet for LIMIT_S at most.

    Raises PageError when there is none.
    """
    try:
        with gevent.Timeout(LIMIT_S):
            status, body = _page_of(target)
    except gevent.Timeout as error:
        msg = f"no answer in {LIMIT_S:g} s"
        raise PageError(msg) from error
    except (OSError, http.client.HTTPException) as error:
        raise PageError(str(error) or type(error).__name__) from error
    if status != http.client.OK:
        msg = f"it answers {status}"
        raise PageError(msg)
    if len(body) > LIMIT_BYTES:
        msg = f"it holds more than {LIMIT_BYTES >> 20} MiB"
        raise PageError(msg)
    return body.decode("utf-8", "replace")


def _page(target: Target) -> Target:
    """Return the address of the page: a bare host and port stands for its /metrics."""
    if target.base_path:
        return target
    if target.query:
        msg = f"{target.redacted}: an address of metrics with a query needs its path too, such as /metrics?x=1"
        raise InputError(msg)
    return Target(
        scheme=target.scheme,
        host=target.host,
        port=target.port,
        base_path=PATH,
        authorization=target.authorization,
    )


def _page_of(target: Target) -> tuple[int, bytes]:
    """Return status and body of a page, after redirects that stay at the same origin."""
    path = target.base_path + (f"?{target.query}" if target.query else "")
    for _ in range(MOST_REDIRECTS + 1):
        status, body, location = _get(target, path)
        onward = redirected_path(target, path, location) if status in REDIRECTS and location is not None else None
        if onward is None:
            return status, body
        path = onward
    msg = f"it redirects more than {MOST_REDIRECTS} times"
    raise PageError(msg)


def _get(target: Target, path: str) -> tuple[int, bytes, str | None]:
    """Return status, body and Location of one answer."""
    if target.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            target.host, target.port, timeout=LIMIT_S, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=LIMIT_S)
    headers = {"Accept": "text/plain", "Accept-Encoding": "identity"}
    if target.authorization is not None:
        headers["Authorization"] = target.authorization
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(LIMIT_BYTES + 1), response.getheader("Location")
    finally:
        connection.close()
