"""Know which of Locust's own flags a command hands on, so that a misspelt option is still told from one of Locust's."""

from pathlib import Path
from typing import Literal, NamedTuple


class LocustFlag(NamedTuple):
    """One flag of Locust's command line; `path` values are made absolute because Locust runs in a folder of its own."""

    names: tuple[str, ...]
    kind: Literal["flag", "value", "path"]


LOCUST_FLAGS: tuple[LocustFlag, ...] = (
    LocustFlag(("--config",), "path"),
    LocustFlag(("--web-host",), "value"),
    LocustFlag(("--web-port", "-P"), "value"),
    LocustFlag(("--web-login",), "flag"),
    LocustFlag(("--tls-cert",), "path"),
    LocustFlag(("--tls-key",), "path"),
    LocustFlag(("--web-base-path",), "value"),
    LocustFlag(("--autoquit",), "value"),
    LocustFlag(("--expect-workers-max-wait",), "value"),
    LocustFlag(("--csv",), "path"),
    LocustFlag(("--csv-full-history",), "flag"),
    LocustFlag(("--print-stats",), "flag"),
    LocustFlag(("--reset-stats",), "flag"),
    LocustFlag(("--html",), "path"),
    LocustFlag(("--json-file",), "path"),
    LocustFlag(("--loglevel", "-L"), "value"),
    LocustFlag(("--profile",), "value"),
    LocustFlag(("--otel",), "flag"),
)
"""What a run may hand on. Left out: what servebench sets itself (-f, -u, -r, --host, --headless, --stop-timeout, …)."""


def argument_of(flag: LocustFlag, value: str | bool) -> list[str]:
    """Return the arguments that give `flag` this value."""
    name = flag.names[0]
    if flag.kind == "flag":
        return [name]
    return [name, str(Path(str(value)).absolute()) if flag.kind == "path" else str(value)]
