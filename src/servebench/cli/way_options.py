"""Know the options that say how a service is reached, and what may not stand in them: any user can read an option."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from servebench.cli.base import F, option
from servebench.core.errors import InputError
from servebench.core.headers import header_fault, may_be_secret, merged
from servebench.core.target import parse_proxy
from servebench.inquiry.secrets import HEADERS, PROXY, Secrets, header_line

if TYPE_CHECKING:
    from servebench.workload.model import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What the options said; nothing in it is secret."""

    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = None

    def over(self, secrets: Secrets) -> Secrets:
        """Return the secrets of the environment with what the options said instead."""
        return Secrets(
            api_key=secrets.api_key,
            headers=merged(secrets.headers, self.headers),
            proxy=self.proxy or secrets.proxy,
        )

    def into(self, workload: "Workload") -> "Workload":
        """Return the workload with the options in it, so that they are kept with the run."""
        import msgspec

        requests = workload.requests
        changed = msgspec.structs.replace(
            requests, headers=merged(requests.headers, self.headers), proxy=self.proxy or requests.proxy
        )
        return msgspec.structs.replace(workload, requests=changed)


def way_options(group: str) -> Callable[[F], F]:
    """Return a decorator that adds --proxy and --header, whose values arrive as `proxy` and `header`."""

    def add(function: F) -> F:
        with_header = option(
            "--header",
            group=group,
            multiple=True,
            metavar="NAME:VALUE",
            callback=_headers,
            help=f"Sent each time; secret ones by {HEADERS}.",
        )(function)
        return option(
            "--proxy",
            group=group,
            metavar="URL",
            callback=_proxy,
            help=f"http://HOST:PORT; with a password by {PROXY}.",
        )(with_header)

    return add


def _proxy(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    if parse_proxy(value).authorization is not None:
        msg = f"--proxy holds a user or password, and every user of this machine can read it.\n  try: {PROXY}=URL"
        raise InputError(msg)
    return value


def _headers(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for value in values:
        pair = header_line(value)
        if pair is None:
            msg = "--header is NAME:VALUE, and one has no colon.\n  try: --header X-Team:search"
            raise InputError(msg)
        fault = header_fault(*pair)
        if fault is None and may_be_secret(*pair):
            fault = f"may be a key, and every user of this machine can read an option.\n  try: {HEADERS}='Name: value'"
        if fault is not None:
            msg = f"--header {_shown(pair[0])} {fault}"
            raise InputError(msg)
        headers = merged(headers, dict([pair]))
    return headers


def _shown(name: str) -> str:
    """Return a header's name as a message may hold it."""
    return "".join(character if character.isprintable() else "?" for character in name[:60])
