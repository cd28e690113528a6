"""Know the command `capacity`: the highest load that meets the objectives, found by runs of their own."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servebench.cli.base import Duration, command, option, say
from servebench.cli.cluster import Launch
from servebench.cli.finish import Wanted, new_folder, shown_path
from servebench.cli.job import Job, execute
from servebench.cli.run import Nodes, QuickForm, checked_model, chosen_workload, launch_of
from servebench.cli.stops import Stops
from servebench.cli.way_options import Way, way_options
from servebench.core.errors import InputError
from servebench.core.outcomes import ExitCode
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_S

if TYPE_CHECKING:
    from servebench.analysis.capacity.search import Answer, Plan, Probe
    from servebench.analysis.capacity.words import Outcome
    from servebench.workload.model import Workload

PROBES, REQUESTS = 20, 4_000
QUICK_PROBES, QUICK_REQUESTS, QUICK_SE = 12, 1_000, 0.05
IDLE_REQUESTS, FULL_USERS, FULL_REQUESTS = 60, 64, 256
_START = 0.4
"""Where the climb begins, as a share of what 64 users at once get answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is spent on the answer."""

    probes: int
    requests: int
    se: float


@dataclass(slots=True, kw_only=True)
class Bench:
    """Runs probes of one workload, each as a run in `folder`."""

    workload: "Workload"
    launch: Launch
    folder: Path
    progress: str
    users: bool
    stops: Stops
    made: int = 0

    @property
    def stopped(self) -> bool:
        """Tell whether the user asked to stop, in a run or between two."""
        return self.stops.count > 0

    def probe(self, load: float, n: int) -> "tuple[Probe, str]":
        """Offer a load to the end; return what it showed and its folder.

        A probe that the client itself spoiled is no evidence and says why. Raises KeyboardInterrupt when the user
        stopped it.
        """
        from servebench.analysis.capacity.evidence import shares_of
        from servebench.analysis.capacity.loads import at_rate, at_users
        from servebench.analysis.capacity.search import Probe

        seeded = self._next()
        workload = at_users(seeded, round(load), n) if self.users else at_rate(seeded, load, n)
        run, verdict = self._run(workload, f"{self.made:02d}-{load:.4g}")
        name = run.folder.name
        if not verdict.valid:
            return Probe(load=load, spoiled=f"at {load:.4g} the run was INVALID: {verdict.reasons[0]}"), name
        return Probe(load=load, shares=shares_of(run, self.workload.objectives, load)), name

    def throughput_per_s(self, users: int, n: int) -> tuple[float, Any]:
        """Return how many requests so many users get answered per second, and the run."""
        from servebench.analysis.capacity.loads import at_users

        run, _ = self._run(at_users(self._next(), users, n), f"{self.made:02d}-{users}-users")
        ended = run.columns.end_ns[run.columns.ok & run.measured]
        if len(ended) < 2:
            msg = "the service answered hardly any request well, so there is no capacity to search for"
            raise InputError(msg)
        return (len(ended) - 1) * NS_PER_S / float(ended.max() - ended.min()), run

    def _next(self) -> "Workload":
        from servebench.analysis.capacity.loads import seeded

        self.made += 1
        return seeded(self.workload, self.made)

    def _run(self, workload: "Workload", name: str) -> Any:  # noqa: ANN401 - analysis types load pandas' weight
        from servebench.analysis.digest import examine
        from servebench.workload.codec import encode_workload

        slug = name.replace(".", "-").replace("+", "")
        launch = replace(self.launch, workload_json=encode_workload(workload), out=self.folder, run_name=slug)
        job = Job(launch=launch, workload=workload, progress=self.progress, wanted=Wanted(silent=True))
        ended = execute(job)
        if ended.folder is None or ended.exit_code == ExitCode.INTERRUPTED:
            self.stops.count += 1
        if self.stopped or ended.folder is None:
            raise KeyboardInterrupt
        examined = examine(ended.folder)
        return examined.run, examined.digest.manifest.verdict


@command(
    "capacity",
    "Find the highest load that meets the objectives.",
    examples=(
        "capacity workloads/bursty.yaml --url http://127.0.0.1:8000 --within 20m",
        "capacity --url http://127.0.0.1:8000 --slo ttft.p95=800ms --output-tokens 128 --quick",
    ),
)
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@option("--url", group="Target", required=True, envvar="SERVEBENCH_URL", help="Address of the service, http or https.")
@option("--model", group="Target", help="Model to ask for; default: the workload's, else the only one served.")
@way_options("Target")
@option("--slo", group="Objectives", multiple=True, metavar="METRIC=LIMIT", help="In place of the file's; repeatable.")
@option(
    "--by", type=click.Choice(["rate", "users"]), default="rate", show_default=True, group="Search", help="What rises."
)
@option(
    "--start",
    group="Search",
    type=click.FloatRange(0, min_open=True),
    help="First load; default: 0.4 x what 64 users get.",
)
@option("--quick", group="Search", is_flag=True, help="12 probes of 1,000 requests, for an answer of ± 10 %.")
@option(
    "--within", group="Search", type=Duration(), help="Choose the requests of each probe so that all take this long."
)
@option("--probes", group="Search", type=click.IntRange(4), help=f"At most so many; default: {PROBES}.")
@option("--requests", group="Search", type=click.IntRange(200), help=f"Measured in each probe; default: {REQUESTS:,}.")
@option(
    "--cache",
    multiple=True,
    type=click.Choice(["as-declared", "cold"]),
    default=("as-declared",),
    group="Search",
    show_default=True,
    help="Search once for each: as the file declares it, and with prompts never seen before.",
)
@option("--input-tokens", group="Without a workload file", type=click.IntRange(1), help="Length of each prompt.")
@option("--output-tokens", group="Without a workload file", type=click.IntRange(1), help="Limit of each answer.")
@option("--workers", group="Processes", type=click.IntRange(1), help="Local workers; default: cores - 1, at least 1.")
@option("--out", group="Results", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder.")
@option("--json", "as_json", group="Results", is_flag=True, help="Print capacity.json instead of the table.")
@option("--progress", type=click.Choice(["auto", "rich", "plain", "none"]), default="none", show_default=True)
def capacity(**options: Any) -> int:  # noqa: ANN401 - click hands over what is declared above
    """Find the highest request rate, or number of users, at which the workload's objectives are met.

    Each probe is a run of its own, begun when the one before has ended, with a warm-up left out. A line is fitted to
    the shares of requests over each objective; the answer is where it meets what the objective allows, with its 95 %
    interval. Exit codes: 0 found, 1 the objectives are missed at any load, 2 bad input, 3 not resolved or spoiled by
    the client, 4 servebench failed, 130 interrupted.
    """
    base = _workload(options)
    effort = _effort(options)
    folder = new_folder(options["out"], "capacity")
    launch = launch_of(base, options["url"], Nodes(workers=options["workers"]), out=folder, model=base.target.model)
    launch = replace(launch, way=_way(options), keep_going=True)
    found = []
    with Stops() as stops:
        for state in options["cache"]:
            bench = Bench(
                workload=_in_state(base, state),
                launch=launch,
                folder=folder,
                progress=options["progress"],
                users=options["by"] == "users",
                stops=stops,
            )
            found.append(_search(bench, effort, state=state, options=options))
            _write(folder, found)
            if stops.count:
                break
    _show(found, folder, as_json=options["as_json"])
    return ExitCode.INTERRUPTED if stops.count else max(_exit_code(one.answer) for one in found)


def _search(bench: Bench, effort: Effort, *, state: str, options: dict[str, Any]) -> "Outcome":
    from servebench.analysis.capacity.evidence import budgets
    from servebench.analysis.capacity.search import Plan, answer
    from servebench.analysis.capacity.words import Outcome

    began = time.monotonic()
    allowed = budgets(bench.workload.objectives)
    plan = Plan(budgets=allowed, start=options["start"] or 1.0, probes=effort.probes, whole=bench.users)
    made: list[tuple[Probe, str]] = []
    hopeless = None
    try:
        hopeless = _idle(bench, allowed)
        if hopeless is None:
            plan, n = _planned(bench, effort, plan, options)
            _probe(bench, plan, n, made)
    except KeyboardInterrupt:
        say("Interrupted; this is what the probes made until then come to.")
    probes = tuple(probe for probe, _ in made)
    return Outcome(
        name=bench.workload.name,
        unit="users" if bench.users else "req/s",
        state=bench.workload.target.cache if state == "as-declared" else state,
        plan=plan,
        probes=probes,
        folders=tuple(name for _, name in made),
        answer=hopeless or answer(plan, probes),
        seconds=time.monotonic() - began,
    )


def _planned(bench: Bench, effort: Effort, plan: "Plan", options: dict[str, Any]) -> "tuple[Plan, int]":
    """Return where to start and how many requests a probe has, after a look at what many users at once get.

    Neither needs that look where --start is given without --within.
    """
    from servebench.analysis.capacity.loads import requests_within

    n = effort.requests
    plan = replace(plan, resolved_se=effort.se, stop_se=effort.se / 1.5)
    if options["start"] is not None and options["within"] is None:
        return plan, n
    full_per_s = bench.throughput_per_s(FULL_USERS, FULL_REQUESTS)[0]
    if options["within"] is not None:
        n = requests_within(options["within"] / NS_PER_S, effort.probes, _START * 2 * full_per_s)
    _announce(effort.probes, n, full_per_s)
    start = options["start"] or (4.0 if bench.users else _START * full_per_s)
    return replace(plan, start=start), n


def _probe(bench: Bench, plan: "Plan", n: int, made: "list[tuple[Probe, str]]") -> None:
    """Make probes until the search is over, each added to `made` as soon as it has ended."""
    from servebench.analysis.capacity.search import next_load

    while (load := next_load(plan, [probe for probe, _ in made])) is not None:
        made.append(bench.probe(load, n))
        say(_told(plan, [probe for probe, _ in made], bench))


def _idle(bench: Bench, allowed: dict[str, float]) -> "Answer | None":
    """Return the answer where one user alone already misses an objective clearly, None where the search may begin."""
    from servebench.analysis.capacity.evidence import clearly_missed, shares_of
    from servebench.analysis.capacity.search import Answer

    rate, run = bench.throughput_per_s(1, IDLE_REQUESTS)
    load = 1.0 if bench.users else rate
    for name, share in shares_of(run, bench.workload.objectives, load).items():
        if clearly_missed(share, allowed[name]):
            return Answer(status="hopeless", objective=name, load=None, lo=None, hi=load, se=None)
    return None


def _announce(probes: int, n: int, full_per_s: float) -> None:
    from servebench.analysis.capacity.loads import seconds_of

    minutes = seconds_of(probes, n, _START * 2 * full_per_s) / 60
    say(
        f"{FULL_USERS} users at once get {full_per_s:.3g} req/s. At most {probes} probes of {n:,} "
        f"requests: about {minutes:.1f} min; fewer where the answer is certain earlier."
    )


def _told(plan: "Plan", probes: "list[Probe]", bench: Bench) -> str:
    from servebench.analysis.capacity.search import answer

    unit = "users" if bench.users else "req/s"
    last = probes[-1]
    if last.spoiled:
        return f"probe {len(probes)}: {last.spoiled}"
    over = ", ".join(f"{100 * share.over / max(share.n, 1):.3g} % over {name}" for name, share in last.shares.items())
    now = answer(plan, probes)
    so_far = f"; capacity {now.lo:.3g} to {now.hi:.3g}" if now.lo is not None and now.hi is not None else ""
    return f"probe {len(probes)}: {last.load:.4g} {unit}: {over}{so_far}"


def _workload(options: dict[str, Any]) -> "Workload":
    import msgspec

    from servebench.analysis.capacity.evidence import budgets
    from servebench.analysis.capacity.loads import checked
    from servebench.workload.objectives import parse_objectives

    parse_target(options["url"])
    lengths = {"input_tokens": options["input_tokens"], "output_tokens": options["output_tokens"]}
    path: Path | None = options["workload"]
    quick = QuickForm(**lengths) if path is not None else QuickForm(rate=1.0, duration=NS_PER_S, **lengths)
    workload = chosen_workload(path, quick, seed=None)
    if options["slo"]:
        workload = msgspec.structs.replace(workload, objectives=parse_objectives(options["slo"]))
    budgets(checked(workload).objectives)
    workload = _way(options).into(workload)
    model = checked_model(options["url"], options["model"] or workload.target.model, _way(options), workload)
    return msgspec.structs.replace(workload, target=msgspec.structs.replace(workload.target, model=model))


def _way(options: dict[str, Any]) -> Way:
    return Way(headers=options["header"], proxy=options["proxy"])


def _effort(options: dict[str, Any]) -> Effort:
    quick = options["quick"]
    if options["within"] is not None and options["requests"] is not None:
        msg = "--within and --requests exclude each other: one follows from the other."
        raise InputError(msg)
    return Effort(
        probes=options["probes"] or (QUICK_PROBES if quick else PROBES),
        requests=options["requests"] or (QUICK_REQUESTS if quick else REQUESTS),
        se=QUICK_SE if quick else 0.03,
    )


def _in_state(workload: "Workload", state: str) -> "Workload":
    from servebench.analysis.capacity.loads import cold

    return cold(workload) if state == "cold" else workload


def _write(folder: Path, found: "list[Outcome]") -> None:
    from servebench.analysis.capacity.words import as_json, lines

    (folder / "capacity.json").write_text(json.dumps([as_json(one) for one in found], indent=1), encoding="utf-8")
    text = "\n\n".join("\n".join(lines(one)) for one in found)
    (folder / "capacity.txt").write_text(text + "\n", encoding="utf-8")


def _show(found: "list[Outcome]", folder: Path, *, as_json: bool) -> None:
    name = "capacity.json" if as_json else "capacity.txt"
    click.echo((folder / name).read_text(encoding="utf-8").rstrip())
    if not as_json:
        click.echo(f"\nProbes   {shown_path(folder)}, each a run of its own")


def _exit_code(answer: "Answer") -> int:
    return {"found": ExitCode.OK, "hopeless": ExitCode.MISSED}.get(answer.status, ExitCode.INVALID)
