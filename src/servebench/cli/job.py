"""Know one headless run from its start to its verdict."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from servebench.cli.cluster import Launch
from servebench.cli.displays import make_display
from servebench.cli.finish import Ended, Wanted, conclude
from servebench.cli.status import Status
from servebench.cli.stops import Stops
from servebench.cli.watch import launch_cluster, watch
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from servebench.cli.screen import View
    from servebench.workload.model import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One headless run: what is launched, which workload, and how it is shown."""

    launch: Launch
    workload: "Workload"
    progress: str = "auto"
    wanted: Wanted = field(default_factory=Wanted)


def execute(job: Job) -> Ended:
    """Run a job to its end and print its results.

    Raises InputError or HarnessError when there is no result.
    """
    from servebench.workload.resolve import dump_yaml

    text = dump_yaml(job.workload)
    kept: set[str] = set()

    load_ahead = _loading_ahead()

    def on_status(status: Status) -> None:
        load_ahead(status)
        if status.folder and status.folder not in kept and Path(status.folder).is_dir():
            kept.add(status.folder)
            (Path(status.folder) / "workload.yaml").write_text(text, encoding="utf-8")

    with Stops() as stops:
        cluster = launch_cluster(job.launch)
        try:
            display = make_display(job.progress, lambda: _view(job))
            try:
                drain_s = job.launch.drain_ns / NS_PER_S
                code = watch(cluster, display, stops, drain_s=drain_s, on_status=on_status)
            finally:
                display.close()
        finally:
            cluster.close()
        return conclude(cluster, code, job.wanted, asked_to_stop=stops.count > 0)


def _loading_ahead() -> "Callable[[Status], None]":
    """Return what begins, once a run is closed, to load what merging and reporting need, in a thread.

    From then on Locust's master only waits, for 1.5 s, for its workers to go; loading takes as long.
    """

    def load() -> None:
        import servebench.analysis.digest
        import servebench.analysis.merge
        import servebench.analysis.report  # noqa: F401 - only loaded

    thread = threading.Thread(target=load, name="loading")

    def begin(status: Status) -> None:
        if status.state == "closed" and thread.ident is None:
            thread.start()

    return begin


def _view(job: Job) -> "View":
    from servebench.cli.screen import View, limits_of

    return View(
        name=job.launch.run_name or job.workload.name,
        url=parse_target(job.launch.url or "").redacted,
        model=job.launch.model,
        drain_s=job.launch.drain_ns / NS_PER_S,
        limits=limits_of(job.workload.objectives),
    )
