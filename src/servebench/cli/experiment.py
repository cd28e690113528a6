"""Know the command `experiment`: variants of a service, measured in turns on equal load, then compared."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servebench.cli.base import command, option, say
from servebench.cli.compare import judged
from servebench.cli.finish import Wanted, new_folder, next_command, shown_path
from servebench.cli.job import Job, execute
from servebench.cli.run import Nodes, checked_model, launch_of
from servebench.cli.variants import in_place
from servebench.cli.way_options import Way
from servebench.core.outcomes import ExitCode
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_S

if TYPE_CHECKING:
    from servebench.workload.experiment import ExperimentSpec, Turn, VariantSpec
    from servebench.workload.model import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all runs of an experiment have in common."""

    spec: "ExperimentSpec"
    workload: "Workload"
    folder: Path
    workers: int | None
    progress: str

    def variant(self, name: str) -> "VariantSpec":
        """Return a variant by its name."""
        return next(variant for variant in self.spec.variants if variant.name == name)

    def side(self, name: str, cache: str) -> Path:
        """Return the folder of a variant's runs in a cache state."""
        return self.folder / (name if len(self.spec.cache) == 1 else f"{name}-{cache}")


@command(
    "experiment",
    "Measure variants of a service in turns, and compare them.",
    examples=("experiment experiments/prefix-caching.yaml", "experiment plan.yaml --dry-run"),
)
@click.argument("plan", type=click.Path(path_type=Path))
@option("--dry-run", is_flag=True, help="Say which runs would be made, in which order, and how long they take.")
@option("--workers", group="Processes", type=click.IntRange(1), help="Local workers; default: cores - 1, at least 1.")
@option("--out", group="Results", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder.")
@option(
    "--format", "form", group="Results", type=click.Choice(["text", "md", "json"]), default="text", show_default=True
)
@option("--progress", type=click.Choice(["auto", "rich", "plain", "none"]), default="none", show_default=True)
def experiment(*, plan: Path, dry_run: bool, workers: int | None, out: Path, form: str, progress: str) -> int:
    """Measure each variant as often as the file says, in turns, on the same seeded load; then compare with the first.

    A variant may start its server by a command, call programs before and after each run, or be an address. Exit codes
    are those of `compare`: 0, 1 when a boundary is broken, 2 for bad input, 3 when a run is INVALID; 130 interrupted.
    """
    from servebench.workload.experiment import load_experiment, turns
    from servebench.workload.load import load_workload

    spec = load_experiment(plan)
    place = spec.workload if spec.workload.startswith("builtin:") else str(plan.absolute().parent / spec.workload)
    workload = load_workload(place)
    asked = _asked(spec)
    order = turns([v.name for v in spec.variants], spec.repeats, spec.order, spec.cache, spec.seed)
    if dry_run:
        click.echo("\n".join(_announced(spec, workload, order)))
        return ExitCode.OK
    ground = Ground(spec=spec, workload=workload, folder=new_folder(out, spec.name), workers=workers, progress=progress)
    (ground.folder / "experiment.yaml").write_text(plan.read_text(encoding="utf-8"), encoding="utf-8")
    say(_announced(spec, workload, order)[0])
    try:
        for index, turn in enumerate(order):
            if index and spec.pause:
                time.sleep(spec.pause / NS_PER_S)
            _make(ground, turn, f"run {index + 1} of {len(order)}")
    except KeyboardInterrupt:
        say(f"Interrupted; what was made is in {shown_path(ground.folder)}.")
        return ExitCode.INTERRUPTED
    return _compared(ground, asked, form)


def _make(ground: Ground, turn: "Turn", number: str) -> None:
    """Make one run; say how it went. Raises KeyboardInterrupt when the user stopped it."""
    from servebench.analysis.digest import examine
    from servebench.analysis.text import verdict_line

    variant, side = ground.variant(turn.variant), ground.side(turn.variant, turn.cache)
    side.mkdir(exist_ok=True)
    url = variant.url or ground.spec.url or ""
    with in_place(variant, url, side):
        model = checked_model(url, variant.model or ground.workload.target.model, Way(), ground.workload)
        workload = _workload(ground, variant, turn, model)
        launch = launch_of(workload, url, Nodes(workers=ground.workers), out=side, model=model)
        launch = replace(launch, run_name=f"{variant.name}-{turn.number + 1}")
        job = Job(launch=launch, workload=workload, progress=ground.progress, wanted=Wanted(silent=True))
        ended = execute(job)
    if ended.folder is None or ended.exit_code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    say(f"{number}: {verdict_line(examine(ended.folder).digest)}")


def _workload(ground: Ground, variant: "VariantSpec", turn: "Turn", model: str | None) -> "Workload":
    """Return the workload of one run: the seed is the round's, so that runs of a round have one schedule."""
    import msgspec

    from servebench.analysis.capacity.loads import cold

    target = ground.workload.target
    declared = {**target.declared, **variant.declared}
    target = msgspec.structs.replace(target, declared=declared, model=model)
    seed = ground.spec.seed + turn.number
    workload = msgspec.structs.replace(ground.workload, target=target, seed=seed)
    return cold(workload) if turn.cache == "cold" else workload


def _compared(ground: Ground, asked: Any, form: str) -> int:  # noqa: ANN401 - a type of analysis, which loads pandas
    worst = int(ExitCode.OK)
    base, *others = (variant.name for variant in ground.spec.variants)
    told: list[str] = []
    for cache in ground.spec.cache:
        for name in others:
            sides = ground.side(base, cache), ground.side(name, cache)
            text, code = judged(str(sides[0]), str(sides[1]), asked, form=form)
            told.append(text.rstrip("\n"))
            worst = max(worst, code)
            say("Next  " + next_command("report", *(shown_path(path) for side in sides for path in _runs(side))))
    joined = "[" + ",\n".join(filter(None, told)) + "]" if form == "json" else "\n\n".join(filter(None, told))
    (ground.folder / f"comparison.{ {'text': 'txt'}.get(form, form) }").write_text(joined + "\n", encoding="utf-8")
    click.echo(joined)
    return worst


def _runs(side: Path) -> list[Path]:
    return sorted(path.parent for path in side.glob("*/run.json"))[:2]


def _announced(spec: "ExperimentSpec", workload: "Workload", order: "tuple[Turn, ...]") -> list[str]:
    seconds = len(order) * (workload.duration_ns + spec.pause) / NS_PER_S
    length = f"{seconds / 60:.1f} min of load" if workload.duration_ns else "as long as the closed load takes"
    lines = [f"{spec.name}: {len(order)} runs of {len(spec.variants)} variants, {length}, without starts and drains."]
    for index, turn in enumerate(order):
        state = "" if turn.cache == "as-declared" else f", cache {turn.cache}"
        lines.append(f"  {index + 1:>3}  {turn.variant}  (seed {spec.seed + turn.number}{state})")
    return lines


def _asked(spec: "ExperimentSpec") -> Any:  # noqa: ANN401 - a type of analysis, which loads pandas
    from servebench.analysis.compare import result

    for variant in spec.variants:
        parse_target(variant.url or spec.url or "")
    if spec.repeats < 3:
        say("Fewer than 3 repeats give no interval: the comparison will show both sides and decide nothing.")
    wanted = spec.compare
    return result.Asked(
        primary=result.parse_wanted(wanted.primary),
        margin=wanted.margin_percent / 100,
        boundaries=tuple(map(result.parse_boundary, wanted.require)),
        allowed=wanted.allow,
        change=wanted.change,
    )
