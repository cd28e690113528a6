"""Know how a run tells of itself: events for its folder, lines for the command that waits, the live figures."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.loadgen.desk.live_board import LiveBoard
from servebench.loadgen.desk.prometheus_export import Meters
from servebench.loadgen.hub_ticker import HubTicker
from servebench.loadgen.master.journal import Journal
from servebench.loadgen.master.runbook import Runbook
from servebench.loadgen.master.stop_rules import StopWatch
from servebench.loadgen.messages import Status
from servebench.loadgen.progress import LiveView, ProgressPipe, hopeless, unstreamed
from servebench.loadgen.scrape.pages import PlacesToAsk
from servebench.loadgen.scrape.scraper import EngineScrape
from servebench.loadgen.sketch import Sketch
from servebench.shards.parts import PartIdentity

MASTER = "master"
"""Name in the files that the master itself writes."""


@dataclass(slots=True)
class Chronicle:
    """Everything said about one run while it goes on. Called by the coordinator and its message handlers."""

    run_id: str
    duration_ns: int | None
    runbook: Runbook
    journal: Journal
    pipe: ProgressPipe
    board: LiveBoard | None = None
    meters: Meters | None = None
    scrape: EngineScrape | None = None
    give_up: Callable[[str], None] | None = None
    """Told once why a run should end of which nothing goes well; None = it goes on all the same."""
    streams: bool = False
    """Whether answers are asked for as streams."""
    watch: StopWatch | None = None
    """The workload's rules for ending early, None without."""
    end: Callable[[str], None] | None = None
    """Told why the run should end by them."""
    epoch_monotonic_ns: int | None = None
    view: LiveView = field(default_factory=LiveView)
    ticker: HubTicker = field(default_factory=HubTicker)
    _hub_lag: Sketch = field(default_factory=Sketch)
    _phase: str | None = None
    _last_line_ns: int = 0

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.runbook.folder

    def tell(
        self,
        kind: str,
        text: str,
        t_ns: int | None,
        *,
        worker: str | None = None,
        data: dict[str, Any] | None = None,
        aloud: bool = False,
    ) -> None:
        """Write an event; `aloud` = also to whoever watches the run."""
        self.journal.add(kind, text, t_ns=t_ns, worker=worker, data=data)
        if self.board is not None:
            self.board.event(kind, text, t_ns)
        if self.meters is not None:
            self.meters.event(kind)
        if aloud:
            self.pipe.event(kind, text)

    def take(self, status: Status) -> None:
        """Add a worker's figures to the live view."""
        self.view.take(status)

    def judge(self) -> None:
        """Say so once when the run should end by what its workers have told so far.

        Sums the figures of all workers: call it some times a second, not for each of their messages.
        """
        if self.give_up is None and self.watch is None:
            return
        totals = self.view.totals()
        why = hopeless(totals)
        if why is None and self.streams:
            why = unstreamed(totals, self.view.first_tokens)
        if self.give_up is not None and why is not None:
            give_up, self.give_up = self.give_up, None
            self.pipe.event("gave_up", f"Stopping: {why}.")
            give_up(why)
        if self.watch is not None and self.end is not None:
            broken = self.watch.why(totals, time.monotonic_ns() / NS_PER_S)
            if broken is not None:
                self.watch = None
                self.pipe.event("gave_up", f"Stopping: {broken}.")
                self.end(broken)

    def lost(self, worker_id: str) -> None:
        """Stop to count as in flight what nobody waits for any more."""
        self.view.lost(worker_id)

    def note_phase(self, t_ns: int) -> None:
        """Tell when a new phase has begun."""
        phase = self.runbook.phase_at(t_ns)
        if phase is not None and phase.name != self._phase:
            self._phase = phase.name
            self.journal.add("phase", f"{phase.name} began", t_ns=phase.start_ns, phase=phase.name)
            self.pipe.event("phase", f"{phase.name} began")
            if self.board is not None:
                self.board.event("phase", f"{phase.name} began", phase.start_ns)

    def line(self, state: str, t_ns: int, workers: int, *, now: bool = False) -> None:
        """Send a status line, at most one a second unless `now`."""
        now_ns = time.monotonic_ns()
        if not now and now_ns - self._last_line_ns < NS_PER_S:
            return
        self._last_line_ns = now_ns
        self._hub_lag.add_all(np.array(self.ticker.take()))
        progress = self.runbook.progress(t_ns)
        line = {
            "kind": "status",
            "state": state,
            "run_id": self.run_id,
            "folder": str(self.folder),
            "t_s": max(0, t_ns) / NS_PER_S,
            "duration_s": self.duration_ns / NS_PER_S if self.duration_ns is not None else None,
            "workers": workers,
            **progress,
            **self.view.tick(now_ns / NS_PER_S, progress.get("phase")),
            "server": self.scrape.figures() if self.scrape is not None else None,
        }
        self.pipe.send(line)
        if self.board is not None:
            self.board.take(line, self.view.whole, self.view.phases)
        if self.meters is not None:
            self.meters.take(line)

    def ask_engines(self, places: PlacesToAsk) -> None:
        """Name the pages to keep from the moment the run is armed."""

        def tell(text: str, data: dict[str, Any]) -> None:
            t_ns = None if self.epoch_monotonic_ns is None else time.monotonic_ns() - self.epoch_monotonic_ns
            self.tell("engine", text, t_ns, data=data)

        self.scrape = EngineScrape(places, self.folder, tell)

    def armed(self, epoch_monotonic_ns: int, epoch_unix_ns: int, boot: str) -> None:
        """Note the run's zero, and begin to ask the engines and to watch this process's own hub."""
        self.epoch_monotonic_ns = epoch_monotonic_ns
        self.ticker.start()
        self.runbook.armed(epoch_monotonic_ns, epoch_unix_ns)
        if self.scrape is not None:
            self.scrape.start(
                PartIdentity(
                    run_id=self.run_id,
                    worker=MASTER,
                    epoch_monotonic_ns=epoch_monotonic_ns,
                    epoch_unix_ns=epoch_unix_ns,
                    boot_id=boot,
                )
            )

    def load_over(self) -> None:
        """Note in the manifest how late this process's hub was from the run's arming until now."""
        self.ticker.stop()
        self._hub_lag.add_all(np.array(self.ticker.take()))
        named = zip(("p50", "p99", "max"), self._hub_lag.quantiles_ns((0.5, 0.99, 1.0)), strict=True)
        lag_ms = {name: round(ns / NS_PER_MS, 3) for name, ns in named if ns is not None}
        if lag_ms:
            self.runbook.observe("master_hub_lag_ms", lag_ms)

    def close(self) -> None:
        """End the scraping and the journal; blocks until both are on disk."""
        if self.scrape is not None:
            self.scrape.stop()
            if self.scrape.failure is not None:
                self.journal.add("engine", str(self.scrape.failure), t_ns=None)
        self.journal.close()
