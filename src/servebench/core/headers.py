"""Know which headers a person may add to requests, which of them may be keys, and how several lists become one."""

import re
from collections.abc import Mapping

OURS = frozenset(
    [
        "host",
        "content-length",
        "content-type",
        "content-encoding",
        "transfer-encoding",
        "te",
        "trailer",
        "connection",
        "upgrade",
        "expect",
        "accept",
        "accept-encoding",
        "x-request-id",
    ]
)
"""Names in lower case of what is set by servebench: another value would change how an answer comes or is told."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_SECRET_WORDS = frozenset(
    [
        *("auth", "authorization", "authentication", "credential", "signature", "cookie"),
        *("key", "apikey", "token", "jwt", "secret", "password"),
    ]
)
_SECRET_VALUE = re.compile(r"(bearer|basic|token)\s+\S|sk-", re.IGNORECASE)


def header_fault(name: str, value: str) -> str | None:
    """Return what is wrong with a header, None where it may be sent; the value is never in the message."""
    if not _NAME.fullmatch(name):
        return "is no header name"
    if name.lower() in OURS:
        return "is set by servebench"
    if not _VALUE.fullmatch(value):
        return "the value holds a line end, a control character or one beyond Latin-1"
    return None


def may_be_secret(name: str, value: str) -> bool:
    """Return whether a header looks like a key, by a word of its name or the start of its value."""
    words = re.split(r"[-_.]", name.lower())
    return bool(_SECRET_WORDS & set(words)) or _SECRET_VALUE.match(value.strip()) is not None


def merged(*lists: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of all lists; of equal names, whatever their case, the last one stays."""
    found: dict[str, tuple[str, str]] = {}
    for headers in lists:
        for name, value in headers.items():
            found.pop(name.lower(), None)
            found[name.lower()] = (name, value)
    return dict(found.values())
