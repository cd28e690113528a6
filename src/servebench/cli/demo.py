"""Know the command `demo`: the whole job on this machine, against the simulated engine."""

import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import click

from servebench.cli.base import command, option, say
from servebench.cli.finish import next_command, shown_path
from servebench.cli.job import Job, execute
from servebench.cli.preflight import preflight
from servebench.cli.processes import end
from servebench.cli.run import Nodes, QuickForm, chosen_workload, launch_of
from servebench.cli.simulate import start_sim
from servebench.cli.watch import make_scratch
from servebench.core.units import NS_PER_S
from servebench.inquiry.secrets import Secrets

WORKLOAD = Path("builtin:demo")


@command(
    "demo", "See the whole job in about a minute, on this machine.", examples=("demo", "demo --out /tmp/runs --seed 3")
)
@option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Local worker processes.")
@option("--seed", type=click.IntRange(0), help="Another seed than the workload's.")
@option("--out", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder of runs.")
@option("--progress", type=click.Choice(["auto", "rich", "plain", "none"]), default="auto", show_default=True)
def demo(*, workers: int, seed: int | None, out: Path, progress: str) -> int:
    """Load a simulated engine with a slice of a real trace, real prompts, load levels and a burst.

    Starts the engine, a Locust master and workers, merges what they recorded, prints the table and writes report.html.
    Nothing leaves this machine.
    """
    workload = chosen_workload(WORKLOAD, QuickForm(), seed=seed)
    scratch = make_scratch(out)
    try:
        engine, url = start_sim(scratch, seed=workload.seed)
        try:
            # The engine takes no key, and a real one has no business there.
            model = preflight(url, model=None, secrets=Secrets()).model
            launch = launch_of(workload, url, Nodes(workers=workers), out=out, model=model)
            seconds = workload.duration_ns / NS_PER_S
            say(f"Simulated engine at {url}. {seconds:.0f} s of load from {workers} workers.")
            ended = execute(Job(launch=replace(launch, with_key=False), workload=workload, progress=progress))
        finally:
            end([engine])
        if ended.folder is not None:
            shutil.copy(engine.log, ended.folder / "log" / engine.log.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if ended.folder is not None:
        _say_what_next(ended.folder)
    return ended.exit_code


def _say_what_next(folder: Path) -> None:
    say("Next, for example:")
    if shutil.which("servebench") is None:
        say(f"  {shlex.join(['.', str(Path(sys.executable).parent / 'activate')])}")
    say(f"  {next_command('table', shown_path(folder), '--by', 'phase,worker')}")
    say(f"  {next_command('sim', '--port', '8100')} &")
    say(f"  {next_command('ui', '--url', 'http://127.0.0.1:8100')}")
