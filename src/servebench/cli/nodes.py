"""Know the commands `master` and `worker`: one node of a load generator that spreads over several."""

import os
import signal
import tempfile
from pathlib import Path
from typing import NoReturn

import click

from servebench.cli.base import Duration, command, option, passed_locust_flags
from servebench.cli.cluster import (
    Launch,
    WebUi,
    master_command,
    master_environment,
    worker_command,
    worker_environment,
)
from servebench.cli.run import bind_of, checked_locustfile, collect_of, shown_command
from servebench.core.errors import InputError


@command(
    "master",
    "Be the master of workers on other nodes.",
    examples=(
        "master workloads/bursty.yaml --url http://10.0.4.7:8000 --expect-workers 4",
        "master --url http://10.0.4.7:8000 --web-host 127.0.0.1",
    ),
    locust=True,
)
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@option("--url", group="Target", required=True, envvar="SERVEBENCH_URL", help="Address of the service, http or https.")
@option("--model", group="Target", help="Model to ask for; default: the workload's.")
@option("--expect-workers", group="Processes", type=click.IntRange(1), help="Start when N are there; no web page.")
@option("--bind", group="Processes", metavar="HOST[:PORT]", default="0.0.0.0:5557", show_default=True)
@option("--web-host", group="Processes", default="127.0.0.1", show_default=True, help="Where the web page listens.")
@option("--web-port", group="Processes", type=click.IntRange(1, 65535), default=8089, show_default=True)
@option(
    "--keep-going", group="Load", is_flag=True, help="Go on although the first 20 requests failed or came in one piece."
)
@option("--drain", group="Load", type=Duration(), default="30s", show_default=True, help="Wait after a stop.")
@option("--out", group="Results", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder.")
@option(
    "--collect",
    group="Results",
    default="auto",
    show_default=True,
    metavar="auto|local|shared|master|URL",
    help="Where the parts of workers on other nodes go; auto: to the master, unless they share its folder.",
)
@option("--run-name", group="Results", help="Word in the run's id; default: the workload's name.")
@click.pass_context
def master(
    ctx: click.Context,
    /,
    *,
    workload: Path | None,
    url: str,
    model: str | None,
    expect_workers: int | None,
    bind: str,
    web_host: str,
    web_port: int,
    keep_going: bool,
    drain: int,
    out: Path,
    collect: str,
    run_name: str | None,
) -> int:
    """Be the master of workers on other nodes: headless with --expect-workers, else with Locust's web page.

    Becomes the Locust process itself, so signals and exit code are Locust's. `servebench merge` completes its runs.
    """
    if workload is None and expect_workers is not None:
        msg = "a headless master needs a workload file.\n  try: servebench master WORKLOAD.yaml --expect-workers 4 …"
        raise InputError(msg)
    host, port = bind_of(bind, local=False)
    launch = Launch(
        workload_json=_encoded(workload),
        url=url,
        out=out.absolute(),
        run_name=run_name,
        model=model,
        drain_ns=drain,
        collect=collect_of(collect),
        keep_going=keep_going,
        command=shown_command(),
        expect_workers=expect_workers or 0,
        bind_host=host,
        bind_port=port,
        web=None if expect_workers else WebUi(host=web_host, port=web_port),
        locust_flags=passed_locust_flags(ctx),
    )
    _make_out(out)
    folder = _clean_folder()
    path = folder / "workload.json" if launch.workload_json is not None else None
    if path is not None and launch.workload_json is not None:
        path.write_bytes(launch.workload_json)
    _become(master_command(launch), master_environment(os.environ, launch, path, None), folder)


@command(
    "worker",
    "Be one worker of a master elsewhere.",
    examples=("worker --master 10.0.4.2", "worker --master 10.0.4.2:5557 --out /data/runs --loglevel DEBUG"),
    locust=True,
)
@option("--master", required=True, metavar="HOST[:PORT]", help="Where the master is.")
@option("--url", envvar="SERVEBENCH_URL", help="Address of the service; default: what the master says.")
@option("--out", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder of runs.")
@option(
    "--locustfile",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File whose tasks make the answers of `run --locustfile`.",
)
@click.pass_context
def worker(ctx: click.Context, /, *, master: str, url: str | None, out: Path, locustfile: Path | None) -> int:
    """Be one worker process of a master on another node; start one per core.

    The key comes from SERVEBENCH_API_KEY or SERVEBENCH_API_KEY_FILE. Becomes the Locust process itself.
    """
    host, port = bind_of(master, local=False)
    launch = Launch(workload_json=None, url=url, out=out.absolute(), locustfile=checked_locustfile(locustfile))
    _make_out(out)
    _become(
        worker_command(host, port, passed_locust_flags(ctx), launch.locustfile),
        worker_environment(os.environ, launch, None),
        _clean_folder(),
    )


def _encoded(workload: Path | None) -> bytes | None:
    if workload is None:
        return None
    from servebench.workload.codec import encode_workload
    from servebench.workload.load import load_workload

    return encode_workload(load_workload(workload))


def _make_out(out: Path) -> None:
    """Make the folder of runs. Raises InputError where it cannot be made or written, before anybody waits for it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        # A file, not os.access: a full disk and a file system that was mounted read-only say so here too.
        with tempfile.NamedTemporaryFile(prefix=".starting-", dir=out) as probe:
            probe.write(b"\0")
    except OSError as error:
        msg = f"cannot write into --out {out}: {error.strerror}\n  try: --out DIR with a folder that you may write to"
        raise InputError(msg) from error


def _clean_folder() -> Path:
    # Locust reads locust.conf and pyproject.toml of its working folder. Nobody is left to remove this one after exec.
    return Path(tempfile.mkdtemp(prefix="servebench-"))


def _become(command: list[str], environment: dict[str, str], folder: Path) -> NoReturn:
    os.chdir(folder)
    # A stop waits until the load generator listens: Python would answer it by a traceback, from whatever it just loads.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    os.execve(command[0], command, environment)  # noqa: S606 - no shell wanted
