"""Know the command `ui`: Locust's web page with local workers."""

import shutil
import socket
from dataclasses import replace
from pathlib import Path

import click

from servebench.cli.base import Duration, command, option, passed_locust_flags, say
from servebench.cli.cluster import WebUi
from servebench.cli.display import PlainDisplay
from servebench.cli.displays import local_now
from servebench.cli.finish import failure, next_command
from servebench.cli.processes import free_port
from servebench.cli.run import Nodes, QuickForm, checked_model, chosen_workload, launch_of
from servebench.cli.stops import Stops
from servebench.cli.watch import Cluster, last_words, launch_cluster, watch
from servebench.cli.way_options import Way, way_options
from servebench.core.errors import InputError
from servebench.core.outcomes import ExitCode
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_S


@command(
    "ui",
    "Drive the load by hand in Locust's web page.",
    examples=("ui --url http://127.0.0.1:8000", "ui workloads/azure-conv.yaml --url http://127.0.0.1:8000 --workers 2"),
    locust=True,
)
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@option("--url", group="Target", required=True, envvar="SERVEBENCH_URL", help="Address of the service, http or https.")
@option("--model", group="Target", help="Model to ask for; default: the workload's, else the only one served.")
@way_options("Target")
@option("--no-preflight", group="Target", is_flag=True, help="Do not ask the service for its models first.")
@option("--seed", group="Load", type=click.IntRange(0), help="Another seed than the workload's.")
@option("--drain", group="Load", type=Duration(), default="30s", show_default=True, help="Wait after a stop.")
@option("--workers", group="Processes", type=click.IntRange(1), help="Local workers; default: cores - 1, at least 1.")
@option("--web-host", group="Web page", default="127.0.0.1", show_default=True, help="Who may reach it.")
@option("--web-port", group="Web page", type=click.IntRange(1, 65535), default=8089, show_default=True)
@option("--out", group="Results", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder.")
@option("--run-name", group="Results", help="Word in the ids of runs; default: the workload's name.")
@click.pass_context
def ui(
    ctx: click.Context,
    /,
    *,
    workload: Path | None,
    url: str,
    model: str | None,
    proxy: str | None,
    header: dict[str, str],
    no_preflight: bool,
    seed: int | None,
    drain: int,
    workers: int | None,
    web_host: str,
    web_port: int,
    out: Path,
    run_name: str | None,
) -> int:
    """Open Locust's web page on a service: choose a rate, press Start, change it while it runs, press Stop.

    The workload gives prompts and lengths; the rate is yours. Each Start makes a run folder with its report.
    Ctrl-C ends everything.
    """
    parse_target(url)
    way = Way(headers=header, proxy=proxy)
    loaded = None if workload is None else way.into(chosen_workload(workload, QuickForm(), seed=seed))
    wanted = model or (loaded.target.model if loaded is not None else None)
    wanted = wanted if no_preflight else checked_model(url, wanted, way, loaded)
    check_free(web_host, web_port)
    launch = launch_of(loaded, url, Nodes(workers=workers), out=out, model=wanted)
    launch = replace(
        launch,
        way=way,
        run_name=run_name,
        drain_ns=drain,
        web=WebUi(host=web_host, port=web_port),
        locust_flags=passed_locust_flags(ctx),
    )
    with Stops() as stops:
        cluster = launch_cluster(launch)
        try:
            shown = "127.0.0.1" if web_host in {"", "*", "0.0.0.0"} else web_host  # noqa: S104 - compared, not bound
            say(f"Web page: http://{shown}:{web_port}   (Ctrl-C ends it)")
            code = watch(cluster, PlainDisplay(say, local_now), stops, drain_s=drain / NS_PER_S)
        finally:
            cluster.close()
        return _end(cluster, code, asked_to_stop=stops.count > 0)


def check_free(host: str, port: int) -> None:
    """Raise InputError, naming a free port, when something listens at the web page's address already."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("" if host == "*" else host, port))
        except OSError as error:
            msg = f"cannot listen at {host}:{port}: {error.strerror}.\n  try: --web-port {free_port()}"
            raise InputError(msg) from error


def _end(cluster: Cluster, code: int, *, asked_to_stop: bool) -> int:
    folders = [folder for folder in cluster.folders if folder.is_dir()]
    if not asked_to_stop and code not in {ExitCode.OK, ExitCode.INTERRUPTED}:
        raise failure(code, last_words(cluster.master), cluster.master.log)
    for folder in folders:
        logs = folder / "log"
        logs.mkdir(exist_ok=True)
        for log in (cluster.scratch / "log").glob("*.log"):
            shutil.copy(log, logs / log.name)
        say(f"Run: {folder}   {next_command('table', folder, '--by', 'phase,step')}")
    shutil.rmtree(cluster.scratch, ignore_errors=True)
    return ExitCode.OK
