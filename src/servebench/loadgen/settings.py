"""Know the environment variables that tell a load-generating process what to do; read once, at start.

Secrets stay here and in the transport: they are never an option, a message or a file of the run.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from servebench.core.errors import InputError
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_S
from servebench.inquiry.secrets import Secrets, read_secrets
from servebench.loadgen.scrape.pages import split_places


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the process was told. What may hold secrets is kept out of `repr`."""

    workload_path: Path | None = None
    out: Path = Path("runs")
    url: str | None = field(default=None, repr=False)
    model: str | None = None
    run_name: str | None = None
    drain_ns: int = 30 * NS_PER_S
    progress_fd: int | None = None
    tokenizer: Path | None = None
    command: str | None = None
    secrets: Secrets = field(default_factory=Secrets)
    collect: str = "auto"
    metrics_urls: tuple[str, ...] = field(default=(), repr=False)
    """Where engines and hardware show their metrics; empty = what the target's address suggests, "off" = nowhere."""

    metrics_listen: str = "127.0.0.1:9646"
    """Where the master serves its own metrics to Prometheus; "off" = nowhere."""

    locustfile: Path | None = None
    """File of the user whose tasks make the answers; None = requests go to the service itself."""

    keep_going: bool = False
    """Whether a run goes on of which every request fails."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read SERVEBENCH_* variables.

        Raises InputError for a number that is none, a key file that cannot be read, or what no header may hold.
        """
        workload = environ.get("SERVEBENCH_WORKLOAD")
        progress = environ.get("SERVEBENCH_PROGRESS_FD")
        return cls(
            workload_path=Path(workload) if workload else None,
            out=Path(environ.get("SERVEBENCH_OUT", "runs")).absolute(),
            url=environ.get("SERVEBENCH_URL") or None,
            model=environ.get("SERVEBENCH_MODEL") or None,
            run_name=environ.get("SERVEBENCH_RUN_NAME") or None,
            drain_ns=_drain_ns(environ.get("SERVEBENCH_DRAIN_S", "30")),
            progress_fd=int(progress) if progress else None,
            tokenizer=Path(environ["SERVEBENCH_TOKENIZER"]) if environ.get("SERVEBENCH_TOKENIZER") else None,
            command=environ.get("SERVEBENCH_COMMAND"),
            secrets=read_secrets(environ),
            collect=environ.get("SERVEBENCH_COLLECT") or "auto",
            locustfile=Path(environ["SERVEBENCH_LOCUSTFILE"]) if environ.get("SERVEBENCH_LOCUSTFILE") else None,
            keep_going=environ.get("SERVEBENCH_KEEP_GOING") == "1",
            metrics_urls=split_places(environ.get("SERVEBENCH_METRICS_URLS")),
            metrics_listen=environ.get("SERVEBENCH_METRICS_LISTEN") or "127.0.0.1:9646",
        )


def _drain_ns(text: str) -> int:
    try:
        return int(float(text) * NS_PER_S)
    except ValueError as error:
        msg = f'SERVEBENCH_DRAIN_S "{text}" is no number of seconds; e.g. 30'
        raise InputError(msg) from error


def full_url(shown: str | None, secret: str | None) -> str:
    """Return `secret` when `shown` is the same address without userinfo and query, else `shown`.

    Raises InputError when there is no address at all.
    """
    if secret and (not shown or parse_target(secret).redacted == parse_target(shown, "--host").redacted):
        return secret
    if not shown:
        msg = "no address to send to; e.g. --host http://127.0.0.1:8000"
        raise InputError(msg)
    return shown
