"""Know the command `run`: one headless run from workload to verdict."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servebench.cli.address import parse_address, redact
from servebench.cli.base import Duration, command, option, passed_locust_flags, say
from servebench.cli.cluster import Launch, default_workers
from servebench.cli.displays import make_display
from servebench.cli.finish import Wanted, conclude
from servebench.cli.preflight import preflight
from servebench.cli.processes import free_port
from servebench.cli.status import Status
from servebench.cli.stops import Stops
from servebench.cli.watch import launch_cluster, watch
from servebench.core.errors import InputError
from servebench.core.units import NS_PER_S

if TYPE_CHECKING:
    from servebench.cli.screen import View
    from servebench.workload.model import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `run` as given; None = not given."""

    workload: Path | None
    url: str
    model: str | None
    no_preflight: bool
    rate: float | None
    duration: int | None
    input_tokens: int | None
    output_tokens: int | None
    seed: int | None
    drain: int
    workers: int | None
    expect_workers: int | None
    bind: str | None
    out: Path
    run_name: str | None
    no_report: bool
    as_json: bool
    quiet: bool
    progress: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One headless run: what is launched, the workload's text for the run folder, and how it is shown."""

    launch: Launch
    workload: "Workload"
    workload_yaml: str
    progress: str = "auto"
    wanted: Wanted = field(default_factory=Wanted)


@command(
    "run",
    "Send a workload to a service and print the verdict.",
    examples=(
        "run workloads/steps-to-saturation.yaml --url http://127.0.0.1:8000",
        "run --url http://127.0.0.1:8000 --rate 2 --duration 30s",
    ),
    locust=True,
)
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@option("--url", group="Target", required=True, envvar="SERVEBENCH_URL", help="Address of the service, http or https.")
@option("--model", group="Target", help="Model to ask for; default: the workload's, else the only one served.")
@option("--no-preflight", group="Target", is_flag=True, help="Do not ask the service for its models first.")
@option("--rate", group="Without a workload file", type=click.FloatRange(0, min_open=True), help="Requests per second.")
@option("--duration", group="Without a workload file", type=Duration(), help="How long, e.g. 60s.")
@option("--input-tokens", group="Without a workload file", type=click.IntRange(1), help="Length of each prompt.")
@option("--output-tokens", group="Without a workload file", type=click.IntRange(1), help="Limit of each answer.")
@option("--seed", group="Load", type=click.IntRange(0), help="Another seed than the workload's.")
@option("--drain", group="Load", type=Duration(), default="30s", show_default=True, help="Wait after a stop.")
@option("--workers", group="Processes", type=click.IntRange(1), help="Local workers; default: cores - 1, at least 1.")
@option("--expect-workers", group="Processes", type=click.IntRange(1), help="Start none here, wait for N others.")
@option("--bind", group="Processes", metavar="HOST[:PORT]", help="Where workers of other nodes connect.")
@option("--out", group="Results", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder.")
@option("--run-name", group="Results", help="Word in the run's id; default: the workload's name.")
@option("--no-report", group="Results", is_flag=True, help="Do not write report.html.")
@option("--json", "as_json", group="Results", is_flag=True, help="Print summary.json instead of the table.")
@option("--quiet", group="Results", is_flag=True, help="Print the verdict line only.")
@option("--progress", type=click.Choice(["auto", "rich", "plain", "none"]), default="auto", show_default=True)
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:  # noqa: ANN401 - click hands over what is declared above
    """Send a workload's requests to a service, record them, and print the verdict.

    Results go to stdout, progress to stderr. Exit codes: 0 valid, 1 objective missed, 2 bad input, 3 INVALID,
    4 servebench failed, 130 interrupted.
    """
    return execute(job_of(RunOptions(**options), passed_locust_flags(ctx)))


def job_of(options: RunOptions, locust_flags: tuple[str, ...]) -> Job:
    """Return the job that the options ask for, after the preflight.

    Raises SpecError or InputError for what could not work, before any process is started.
    """
    parse_address(options.url)
    workload, text = _workload(options)
    model = options.model or workload.target.model
    if not options.no_preflight:
        model = checked_model(options.url, model)
    return Job(
        launch=_launch(options, locust_flags, workload, model),
        workload=workload,
        workload_yaml=text,
        progress="none" if options.quiet else options.progress,
        wanted=Wanted(quiet=options.quiet, as_json=options.as_json, report=not options.no_report),
    )


def checked_model(url: str, model: str | None) -> str | None:
    """Ask the service before any load; say what is worth knowing, return the model to ask for."""
    found = preflight(url, model=model)
    for note in found.notes:
        say(note)
    return found.model


def execute(job: Job) -> int:
    """Run a job to its end; return the exit code of its verdict."""
    kept: set[str] = set()

    def keep_workload(status: Status) -> None:
        if status.folder and status.folder not in kept and Path(status.folder).is_dir():
            kept.add(status.folder)
            (Path(status.folder) / "workload.yaml").write_text(job.workload_yaml, encoding="utf-8")

    with Stops() as stops:
        cluster = launch_cluster(job.launch)
        display = make_display(job.progress, lambda: _view(job))
        try:
            drain_s = job.launch.drain_ns / NS_PER_S
            code = watch(cluster, display, stops, drain_s=drain_s, on_status=keep_workload)
        finally:
            display.close()
            cluster.close()
        return conclude(cluster, code, job.wanted)


def _view(job: Job) -> "View":
    from servebench.cli.screen import View, limits_of

    return View(
        name=job.launch.run_name or job.workload.name,
        url=parse_address(job.launch.url or "").shown,
        model=job.launch.model,
        drain_s=job.launch.drain_ns / NS_PER_S,
        limits=limits_of(job.workload.objectives),
    )


def shown_command(url: str) -> tuple[str, ...]:
    """Return this process's command line without the secrets of the address."""
    return tuple(redact(argument, url) for argument in ("servebench", *sys.argv[1:]))


def _launch(options: RunOptions, locust_flags: tuple[str, ...], workload: "Workload", model: str | None) -> Launch:
    from servebench.workload.codec import encode_workload

    remote = options.expect_workers
    if remote is not None and options.workers is not None:
        msg = "--workers (here) and --expect-workers (elsewhere) exclude each other."
        raise InputError(msg)
    local = 0 if remote is not None else options.workers or default_workers()
    host, port = bind_of(options.bind, local=local > 0)
    return Launch(
        workload_json=encode_workload(workload),
        url=options.url,
        out=options.out.absolute(),
        run_name=options.run_name,
        model=model,
        drain_ns=options.drain,
        command=shown_command(options.url),
        local_workers=local,
        expect_workers=remote if remote is not None else local,
        bind_host=host,
        bind_port=port,
        locust_flags=locust_flags,
    )


def bind_of(bind: str | None, *, local: bool) -> tuple[str, int]:
    """Return host and port for the master: what was asked for; else a free local port, or 5557 for other nodes.

    Raises InputError when the port is no number.
    """
    if bind is None:
        return ("127.0.0.1", free_port()) if local else ("0.0.0.0", 5557)  # noqa: S104 - other nodes must reach it
    host, colon, port = bind.rpartition(":")
    if not colon:
        return bind, 5557
    if not port.isdigit() or not 0 < int(port) < 65536:
        msg = f'--bind "{bind}" has no port number.\n  try: --bind 0.0.0.0:5557'
        raise InputError(msg)
    return host.strip("[]"), int(port)


def _workload(options: RunOptions) -> tuple["Workload", str]:
    """Return the workload and its YAML text."""
    import msgspec

    from servebench.workload.load import load_workload
    from servebench.workload.resolve import dump_yaml, quick_workload

    quick = {name: getattr(options, name) for name in ("rate", "duration", "input_tokens", "output_tokens")}
    given = [f"--{name.replace('_', '-')}" for name, value in quick.items() if value is not None]
    path = options.workload
    if path is not None:
        if given:
            msg = f"{', '.join(given)} and a workload file exclude each other: the file says it."
            raise InputError(msg)
        workload = load_workload(path)
        text = path.read_text(encoding="utf-8")
    else:
        if options.rate is None or options.duration is None:
            msg = "neither a workload file nor --rate and --duration were given.\n  try: --rate 2 --duration 30s"
            raise InputError(msg)
        workload = quick_workload(
            rate_per_s=options.rate,
            duration_ns=options.duration,
            input_tokens=options.input_tokens,
            output_tokens=options.output_tokens,
            model=options.model,
        )
        text = ""
    if options.seed is not None:
        workload = msgspec.structs.replace(workload, seed=options.seed)
    return workload, text or dump_yaml(workload)
