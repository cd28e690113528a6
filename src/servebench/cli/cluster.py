"""Know the command lines and the environment of Locust's master and workers."""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from servebench.cli.processes import child_environment
from servebench.cli.way_options import Way
from servebench.core.errors import HarnessError
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_S
from servebench.inquiry.secrets import HEADERS, PROXY, VARIABLES, read_secrets

WEB_LOGIN = "SERVEBENCH_WEB_LOGIN"
# A variable left over from another run must not steer this one; a key is what the user exported for the workers.
_OWN_PREFIXES = (
    "LOCUST_",
    "SERVEBENCH_WORKLOAD",
    "SERVEBENCH_URL",
    "SERVEBENCH_OUT",
    "SERVEBENCH_RUN_NAME",
    "SERVEBENCH_MODEL",
    "SERVEBENCH_DRAIN_S",
    "SERVEBENCH_COLLECT",
    "SERVEBENCH_KEEP_GOING",
    "SERVEBENCH_LOCUSTFILE",
    "SERVEBENCH_COMMAND",
    "SERVEBENCH_PROGRESS_FD",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebUi:
    """Where Locust's web page listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One load generator to start. `url` is as the user gave it and may hold secrets; `command` holds none.

    `with_key` gives the user's key to the local workers, of which there are `local_workers`, and to a master that has
    to ask for the model; `way` is what options say about proxy and headers. `expect_workers` is how many the master
    waits for. `locustfile`: whose tasks make the answers. `web` None = headless.
    """

    workload_json: bytes | None
    url: str | None
    out: Path
    run_name: str | None = None
    model: str | None = None
    drain_ns: int = 30 * NS_PER_S
    collect: str = "auto"
    keep_going: bool = False
    tokenizer: Path | None = None
    locustfile: Path | None = None
    command: tuple[str, ...] = ()
    with_key: bool = True
    way: Way = field(default_factory=Way)
    local_workers: int = 0
    expect_workers: int = 1
    bind_host: str = "127.0.0.1"
    bind_port: int = 5557
    web: WebUi | None = None
    locust_flags: tuple[str, ...] = ()


def locustfile() -> Path:
    """Return the load generator's locustfile, found without importing Locust.

    Raises HarnessError when the installation lacks it.
    """
    spec = importlib.util.find_spec("servebench.loadgen")
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        path = Path(place).absolute() / "locustfile.py"
        if path.is_file():
            return path
    msg = f"this installation has no load generator (looked for locustfile.py in {places or 'servebench.loadgen'})"
    raise HarnessError(msg)


def master_command(launch: Launch) -> list[str]:
    """Return the command line of the master. It holds no secret: every user of the machine can read it."""
    command = [
        *_locust(),
        "--master",
        *("--master-bind-host", launch.bind_host),
        *("--master-bind-port", str(launch.bind_port)),
        "--enable-rebalancing",
        "--only-summary",
    ]
    if launch.url is not None:
        command += ["--host", parse_target(launch.url).redacted]
    if launch.web is not None:
        command += ["--web-host", launch.web.host, "--web-port", str(launch.web.port)]
    else:
        workers = str(launch.expect_workers)
        command += ["--headless", "--expect-workers", workers]
        if "--expect-workers-max-wait" not in launch.locust_flags:
            command += ["--expect-workers-max-wait", "60"]
        command += ["-u", workers, "-r", workers]
    return [*command, *launch.locust_flags]


def worker_command(
    host: str, port: int, locust_flags: tuple[str, ...] = (), locustfile: Path | None = None
) -> list[str]:
    """Return the command line of a worker of the master at `host`, which loads a user's own file beside ours."""
    return [*_locust(locustfile), "--worker", "--master-host", host, "--master-port", str(port), *locust_flags]


def worker_flags(locust_flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a run's Locust flags that its local workers want too."""
    pairs = pairwise(locust_flags)
    return tuple(part for name, value in pairs if name == "--loglevel" for part in (name, value))


def master_environment(
    base: Mapping[str, str], launch: Launch, workload_path: Path | None, progress_fd: int | None
) -> dict[str, str]:
    """Return the master's environment. Keys stay out, unless it has to ask the server which model there is."""
    optional = {
        "SERVEBENCH_WORKLOAD": str(workload_path) if workload_path else None,
        "SERVEBENCH_URL": launch.url,
        "SERVEBENCH_RUN_NAME": launch.run_name,
        "SERVEBENCH_MODEL": launch.model,
        "SERVEBENCH_LOCUSTFILE": str(launch.locustfile.absolute()) if launch.locustfile else None,
        "SERVEBENCH_KEEP_GOING": "1" if launch.keep_going else None,
        "SERVEBENCH_PROGRESS_FD": str(progress_fd) if progress_fd is not None else None,
    }
    extra = {
        "SERVEBENCH_OUT": str(launch.out.absolute()),
        "SERVEBENCH_DRAIN_S": f"{launch.drain_ns / NS_PER_S:g}",
        "SERVEBENCH_COLLECT": launch.collect,
        "SERVEBENCH_COMMAND": json.dumps(list(launch.command)),
        **{name: value for name, value in optional.items() if value is not None},
    }
    if f"{WEB_LOGIN}_FILE" in base:
        extra[f"{WEB_LOGIN}_FILE"] = str(Path(base[f"{WEB_LOGIN}_FILE"]).absolute())
    environment = child_environment(base, drop_prefixes=(*_OWN_PREFIXES, *VARIABLES), extra=extra)
    return environment if launch.model is not None else environment | _secrets(base, launch)


def worker_environment(base: Mapping[str, str], launch: Launch, workload_path: Path | None) -> dict[str, str]:
    """Return a worker's environment: the master's, with the user's key and tokenizer."""
    environment = master_environment(base, launch, workload_path, None) | _secrets(base, launch)
    for name in (WEB_LOGIN, f"{WEB_LOGIN}_FILE"):  # only the master has a page
        environment.pop(name, None)
    if launch.tokenizer is not None:
        environment["SERVEBENCH_TOKENIZER"] = str(launch.tokenizer.absolute())
    return environment


def _secrets(base: Mapping[str, str], launch: Launch) -> dict[str, str]:
    """Return the variables with the user's secrets, and with what options say, which win."""
    found = {name: base[name] for name in VARIABLES if name in base} if launch.with_key else {}
    way = launch.way
    if way.headers:
        headers = way.over(read_secrets(found)).headers
        found.pop(f"{HEADERS}_FILE", None)
        found[HEADERS] = "\n".join(f"{name}: {value}" for name, value in headers.items())
    if way.proxy is not None:
        found[PROXY] = way.proxy
    return {name: str(Path(text).absolute()) if name.endswith("_FILE") else text for name, text in found.items()}


def default_workers() -> int:
    """Return how many local workers this machine carries beside a master: its usable cores less one, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def _locust(own: Path | None = None) -> list[str]:
    files = [locustfile()] if own is None else [locustfile(), own.absolute()]
    return [sys.executable, "-m", "locust", "-f", ",".join(map(str, files))]
