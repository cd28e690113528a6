"""Know what a workload file may say about how each request is made."""

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from servebench.core.headers import header_fault, may_be_secret
from servebench.workload.strict import Strict, wrong
from servebench.workload.words import Duration, Param, Share

_MAY_BE_A_KEY = "may be a key, and this file is kept with the run; give it in SERVEBENCH_API_KEY or SERVEBENCH_HEADERS"
RESERVED_PARAMS = frozenset({"model", "messages", "prompt", "stream", "stream_options", "max_tokens"})


class TimeoutsSpec(Strict):
    """Deadlines: connect from its start, first_token from sent, idle between reads, total from dispatch."""

    connect: Duration = 5_000_000_000
    first_token: Duration = 60_000_000_000
    idle: Duration = 30_000_000_000
    total: Duration = 600_000_000_000


class RetriesSpec(Strict):
    """Sending again what failed before an answer began; each attempt is a row of its own."""

    max: int = Field(default=0, ge=0, le=10, description="attempts after the first")
    statuses: tuple[Annotated[int, Field(ge=400, le=599)], ...] = Field(
        default=(), description="sent again; default: those that may pass: 408, 425, 429, 500, 502, 503, 504, 529"
    )
    pause: Duration = Field(
        default=500_000_000, description="before the first retry, without Retry-After; then doubled"
    )
    longest_pause: Duration = Field(
        default=60_000_000_000, description="a server whose Retry-After is longer is not asked again"
    )
    budget: Share | None = Field(
        default=None, description="retries over requests of a worker, e.g. 10%: an outage is not multiplied"
    )


class AbandonSpec(Strict):
    """Users who leave before the answer is over: after so long, or with so many token events."""

    after: Duration | None = Field(default=None, description="from sending")
    tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="token events of the stream"
    )
    share: Share = Field(default=1.0, description="of the requests, chosen by the seed")

    @model_validator(mode="after")
    def _after_something(self) -> Self:
        if self.after is None and self.tokens is None:
            raise wrong("after or tokens is wanted")
        if self.share == 0:
            raise wrong("must be above 0", "share")
        return self


class RequestsSpec(Strict):
    """How each request is made."""

    timeouts: TimeoutsSpec = TimeoutsSpec()
    retries: RetriesSpec = RetriesSpec()
    abandon: AbandonSpec | None = Field(default=None, description="users who leave before the answer is over")
    stream: bool = True
    params: dict[str, Param] = Field(default={}, description="go into the JSON body as they are, e.g. temperature")
    lengths: Literal["max_only", "exact"] = Field(
        default="max_only",
        description="max_only: the server may answer shorter; exact: it is asked not to (min_tokens, ignore_eos)",
    )
    max_inflight: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="requests above are shed: recorded, never sent"
    )

    headers: dict[str, str] = Field(
        default={}, description="sent with every request; secret ones belong into SERVEBENCH_HEADERS"
    )
    redirects: bool = Field(default=False, description="follow redirects that stay at the target")
    proxy: str | None = Field(default=None, description="http://HOST:PORT; with userinfo in SERVEBENCH_PROXY instead")

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            fault = header_fault(name, value) or (_MAY_BE_A_KEY if may_be_secret(name, value) else None)
            if fault is not None:
                raise wrong(fault, name)
        return headers

    @field_validator("proxy")
    @classmethod
    def _plain_proxy(cls, proxy: str | None) -> str | None:
        fault = None if proxy is None else proxy_fault(proxy)
        if fault is not None:
            raise wrong(fault)
        return proxy

    @field_validator("params")
    @classmethod
    def _not_ours(cls, params: dict[str, Any]) -> dict[str, Any]:
        for name in params:
            if name in RESERVED_PARAMS:
                raise wrong("is set by servebench from target, prompts and requests", name)
        return params


def proxy_fault(url: str) -> str | None:
    """Return what is wrong with the proxy of a file, None where it may be used."""
    way_out = "e.g. http://127.0.0.1:3128"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return f"is no address; {way_out}"
    if "@" in url:
        return "holds a user or password, and this file is kept with the run; give the address in SERVEBENCH_PROXY"
    if parts.scheme != "http" or not host or not port or parts.path.strip("/") or parts.query or parts.fragment:
        return f"must be http://, a host and a port; {way_out}"
    return None
