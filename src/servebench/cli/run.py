"""Know the command `run`: one headless run from workload to verdict."""

import os
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servebench.cli.base import Duration, command, option, passed_locust_flags, say
from servebench.cli.cluster import Launch, default_workers
from servebench.cli.finish import Wanted
from servebench.cli.job import Job, execute
from servebench.cli.preflight import preflight
from servebench.cli.processes import free_port
from servebench.cli.way_options import Way, way_options
from servebench.core.errors import InputError
from servebench.core.target import parse_target, shown_argument
from servebench.inquiry.secrets import read_secrets

if TYPE_CHECKING:
    from servebench.workload.model import Workload

PROGRESS = ("auto", "rich", "plain", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickForm:
    """The options that stand for a workload file; None = not given. `duration` in ns."""

    rate: float | None = None
    duration: int | None = None
    concurrency: int | None = None
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def given(self) -> list[str]:
        """Return the names of the options that were given."""
        values = {"--rate": self.rate, "--duration": self.duration}
        values |= {"--concurrency": self.concurrency, "--requests": self.requests}
        values |= {"--input-tokens": self.input_tokens, "--output-tokens": self.output_tokens}
        return [name for name, value in values.items() if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Where the workers are: `workers` local ones, or `expect` that others start and that connect at `bind`."""

    workers: int | None = None
    expect: int | None = None
    bind: str | None = None


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
@option(
    "--tokenizer",
    group="Target",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Count answers by this tokenizer.json too; default: only where the server does not count.",
)
@way_options("Target")
@option(
    "--locustfile",
    group="Target",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Each request is one task of this file's users.",
)
@option("--no-preflight", group="Target", is_flag=True, help="Do not ask the service for its models first.")
@option("--rate", group="Without a workload file", type=click.FloatRange(0, min_open=True), help="Requests per second.")
@option("--duration", group="Without a workload file", type=Duration(), help="How long, e.g. 60s.")
@option("--concurrency", group="Without a workload file", type=click.IntRange(1), help="Users who wait for answers.")
@option("--requests", group="Without a workload file", type=click.IntRange(1), help="Requests of these users in all.")
@option("--input-tokens", group="Without a workload file", type=click.IntRange(1), help="Length of each prompt.")
@option("--output-tokens", group="Without a workload file", type=click.IntRange(1), help="Limit of each answer.")
@option("--seed", group="Load", type=click.IntRange(0), help="Another seed than the workload's.")
@option("--drain", group="Load", type=Duration(), default="30s", show_default=True, help="Wait after a stop.")
@option(
    "--keep-going", group="Load", is_flag=True, help="Go on although the first 20 requests failed or came in one piece."
)
@option("--workers", group="Processes", type=click.IntRange(1), help="Local workers; default: cores - 1.")
@option("--expect-workers", group="Processes", type=click.IntRange(1), help="Start none here, wait for N others.")
@option("--bind", group="Processes", metavar="HOST[:PORT]", help="Where workers of other nodes connect.")
@option("--out", group="Results", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder.")
@option("--run-name", group="Results", help="Word in the run's id; default: the name.")
@option("--no-report", group="Results", is_flag=True, help="Do not write report.html.")
@option(
    "--collect",
    group="Results",
    default="auto",
    show_default=True,
    metavar="auto|local|shared|master|URL",
    help="Where the parts of workers on other nodes go; auto: to the master, unless they share its folder.",
)
@option("--no-compact", group="Results", is_flag=True, help="Leave the small parts of the run alone.")
@option("--json", "as_json", group="Results", is_flag=True, help="Print summary.json instead of the table.")
@option("--show-invalid", group="Results", is_flag=True, help="Print the table of an INVALID run too.")
@option("--quiet", group="Results", is_flag=True, help="Print the verdict line only.")
@option("--progress", type=click.Choice(PROGRESS), metavar="HOW", default="auto", help="auto, rich, plain or none.")
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:  # noqa: ANN401 - click hands over what is declared above
    """Send a workload's requests to a service, record them, and print the verdict.

    Results go to stdout, progress to stderr. Exit codes: 0 valid, 1 objective missed, 2 bad input, 3 INVALID,
    4 servebench failed, 130 interrupted.
    """
    url: str = options["url"]
    parse_target(url)
    quick = QuickForm(**{field.name: options[field.name] for field in fields(QuickForm)})
    way = Way(headers=options["header"], proxy=options["proxy"])
    workload = way.into(chosen_workload(options["workload"], quick, seed=options["seed"]))
    model = options["model"] or workload.target.model
    locustfile = checked_locustfile(options["locustfile"])
    if locustfile is None and not options["no_preflight"]:
        model = checked_model(url, model, way, workload)
    nodes = Nodes(workers=options["workers"], expect=options["expect_workers"], bind=options["bind"])
    launch = launch_of(workload, url, nodes, out=options["out"], model=model)
    launch = replace(
        launch,
        way=way,
        run_name=options["run_name"],
        drain_ns=options["drain"],
        tokenizer=options["tokenizer"],
        locustfile=locustfile,
        collect=collect_of(options["collect"]),
        keep_going=options["keep_going"],
        locust_flags=passed_locust_flags(ctx),
    )
    wanted = Wanted(
        quiet=options["quiet"],
        as_json=options["as_json"],
        report=not options["no_report"],
        show_invalid=options["show_invalid"],
        compact=not options["no_compact"],
    )
    progress = "none" if options["quiet"] else options["progress"]
    return execute(Job(launch=launch, workload=workload, progress=progress, wanted=wanted)).exit_code


def checked_locustfile(path: Path | None) -> Path | None:
    """Return the path as it is; raises InputError for one that Locust would take for two."""
    if path is not None and "," in str(path.absolute()):
        msg = f"--locustfile {path}: Locust takes a comma for the beginning of another file; rename it"
        raise InputError(msg)
    return path


def checked_model(url: str, model: str | None, way: Way, workload: "Workload | None") -> str | None:
    """Ask the service before any load; say what is worth knowing, return the model to ask for."""
    found = preflight(url, model=model, secrets=way.over(read_secrets(os.environ)), workload=workload)
    for note in found.notes:
        say(note)
    return found.model


def chosen_workload(path: Path | None, quick: QuickForm, *, seed: int | None) -> "Workload":
    """Return the workload of a file or of the quick form, with another seed if one is given.

    Raises InputError when it is neither or both, SpecError when the file or a value is wrong.
    """
    import msgspec

    from servebench.workload.load import load_workload
    from servebench.workload.resolve import quick_workload

    if path is not None and quick.given():
        msg = f"{', '.join(quick.given())} and a workload file exclude each other: the file says it."
        raise InputError(msg)
    if path is not None:
        workload = load_workload(path)
    elif quick.concurrency is None and quick.requests is None and (quick.rate is None or quick.duration is None):
        msg = "neither a workload file nor --rate and --duration were given.\n  try: --rate 2 --duration 30s"
        raise InputError(msg)
    else:
        workload = quick_workload(
            rate_per_s=quick.rate,
            duration_ns=quick.duration,
            concurrency=quick.concurrency,
            requests=quick.requests,
            input_tokens=quick.input_tokens,
            output_tokens=quick.output_tokens,
        )
    return workload if seed is None else msgspec.structs.replace(workload, seed=seed)


def launch_of(workload: "Workload | None", url: str, nodes: Nodes, *, out: Path, model: str | None) -> Launch:
    """Return the load generator for a workload: local workers, or a master that waits for those of other nodes."""
    from servebench.workload.codec import encode_workload

    if nodes.expect is not None and nodes.workers is not None:
        msg = "--workers (here) and --expect-workers (elsewhere) exclude each other."
        raise InputError(msg)
    local = 0 if nodes.expect is not None else nodes.workers or default_workers()
    host, port = bind_of(nodes.bind, local=local > 0)
    return Launch(
        workload_json=None if workload is None else encode_workload(workload),
        url=url,
        out=out.absolute(),
        model=model,
        command=shown_command(),
        local_workers=local,
        expect_workers=local if nodes.expect is None else nodes.expect,
        bind_host=host,
        bind_port=port,
    )


def shown_command() -> tuple[str, ...]:
    """Return this process's command line without the secrets of the address."""
    return tuple(shown_argument(argument) for argument in ("servebench", *sys.argv[1:]))


def collect_of(where: str) -> str:
    """Return where parts go. Raises InputError where it is neither a word of ours nor a URL that Arrow can write to."""
    if where in {"auto", "local", "shared", "master"}:
        return where
    if "://" not in where:
        msg = (
            f'--collect "{where}" is neither auto, local, shared, master nor a URL.\n  try: --collect s3://bucket/runs'
        )
        raise InputError(msg)
    from servebench.shards.remote import check_url

    check_url(where)
    return where


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
