"""Know which secrets the environment holds for requests: the key, further headers, the proxy with its password."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from servebench.core.errors import InputError
from servebench.core.headers import header_fault, merged

API_KEY, HEADERS, PROXY = "SERVEBENCH_API_KEY", "SERVEBENCH_HEADERS", "SERVEBENCH_PROXY"
VARIABLES = (API_KEY, f"{API_KEY}_FILE", HEADERS, f"{HEADERS}_FILE", PROXY)
"""Names of everything that `read_secrets` looks at; those with _FILE hold a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What goes into requests and nowhere else. `headers` and `proxy` win over what the workload says."""

    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str | None = field(default=None, repr=False)


def read_secrets(environ: Mapping[str, str] = os.environ) -> Secrets:
    """Return the secrets of an environment; a variable with _FILE behind its name gives a file, and goes first.

    Raises InputError for a file that cannot be read and for what no header may hold; the message holds no value.
    """
    return Secrets(api_key=_key(environ), headers=_headers(environ), proxy=environ.get(PROXY) or None)


def header_line(line: str) -> tuple[str, str] | None:
    """Return name and value of a header as people write it, `Name: value`; None where there is no colon."""
    name, colon, value = line.partition(":")
    return (name.strip(), value.strip()) if colon else None


def _key(environ: Mapping[str, str]) -> str | None:
    key = _text(environ, API_KEY)
    if key and not (key.isascii() and key.isprintable()):
        msg = (
            "the key holds a line end or another character that no header may hold.\n  try: the key alone, on one line"
        )
        raise InputError(msg)
    return key


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate((_text(environ, HEADERS) or "").splitlines(), start=1):
        if not line.strip():
            continue
        pair = header_line(line)
        fault = "is no header: write Name: value" if pair is None else header_fault(*pair)
        if pair is None or fault is not None:
            where = f"line {number} of {HEADERS}" + (f" ({pair[0]})" if pair and header_fault(pair[0], "") else "")
            msg = f"{where} {fault}"
            raise InputError(msg)
        headers = merged(headers, dict([pair]))
    return headers


def _text(environ: Mapping[str, str], name: str) -> str | None:
    """Return a variable, or the text of the file that the variable with _FILE behind its name gives."""
    path = environ.get(f"{name}_FILE")
    if not path:
        return environ.get(name) or None
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{name}_FILE {path} cannot be read: {error}"
        raise InputError(msg) from error
