"""Know how the master writes a run down: its manifest from the first moment on, phases, steps, what was planned."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gevent.threadpool import ThreadPool

from servebench.core.errors import HarnessError
from servebench.core.units import NS_PER_S
from servebench.loadgen.master.roster import WorkerState
from servebench.shards.conversations import write_conversations
from servebench.shards.manifest import (
    MANIFEST_NAME,
    LostRange,
    Manifest,
    MembersRecord,
    PhaseRecord,
    StepRecord,
    WorkerRecord,
    encode_manifest,
    write_atomic,
)
from servebench.workload.model import Closed as ClosedLoad
from servebench.workload.phase_names import CLOSED, CLOSED_WARMUP, MANUAL
from servebench.workload.schedule import Schedule

RATE_WINDOW_NS = 10 * NS_PER_S


class Runbook:
    """The manifest of one run, kept on disk: a killed master leaves one that `merge` can finish."""

    def __init__(
        self, folder: Path, manifest: Manifest, schedule: Schedule | None, closed: ClosedLoad | None = None
    ) -> None:
        self.folder = folder
        self._manifest, self._schedule, self._closed = manifest, schedule, closed
        self._pool = ThreadPool(1)  # one thread: a manifest never overtakes an earlier one
        self._blocks: dict[str, list[tuple[int, int]]] = {}
        if schedule is not None:
            manifest.phases = planned_phases(schedule)
            manifest.planned_total = len(schedule)
            manifest.plan_notes = dict(schedule.notes)
            if schedule.think_ns is not None:
                write_conversations(folder, np.flatnonzero(schedule.turn == 0))
        elif closed is not None:
            manifest.phases = closed_phases(closed, 0, closed.duration_ns or 0)
            manifest.planned_total = closed.total
        else:
            manifest.phases = [PhaseRecord(name=MANUAL, shape=MANUAL, start_ns=0, end_ns=0, measured=True)]

    def armed(self, epoch_monotonic_ns: int, epoch_unix_ns: int) -> None:
        """Note the run's zero."""
        self._manifest.epoch_monotonic_ns = epoch_monotonic_ns
        self._manifest.epoch_unix_ns = epoch_unix_ns
        self._save()

    def members(self, from_ns: int, workers: list[str]) -> None:
        """Note who shares the schedule from an instant on."""
        first = int(np.searchsorted(self._schedule.due_ns, from_ns)) if self._schedule is not None else None
        self._manifest.members.append(MembersRecord(from_ns=from_ns, first_seq=first, workers=workers))
        self._save()

    def step(self, index: int, t_ns: int, rate_per_s: float) -> None:
        """Note that the operator changed the offered rate."""
        steps = self._manifest.phases[0].steps
        if steps:
            steps[-1].end_ns = t_ns
        steps.append(StepRecord(index=index, start_ns=t_ns, end_ns=t_ns, rate_per_s=rate_per_s))
        self._save()

    def observe(self, name: str, what: Any) -> None:  # noqa: ANN401 - whatever JSON holds
        """Note something that was seen of the run; on disk with the next note."""
        self._manifest.observed[name] = what

    def leased(self, worker_id: str, first: int, count: int) -> None:
        """Note whose a block of seqs is."""
        self._blocks.setdefault(worker_id, []).append((first, count))

    def phase_at(self, t_ns: int) -> PhaseRecord | None:
        """Return the phase that holds an instant of the run clock."""
        return next((p for p in self._manifest.phases if p.start_ns <= t_ns < p.end_ns), None)

    def progress(self, t_ns: int) -> dict[str, Any]:
        """Return the planned side of a status line."""
        phases = self._manifest.phases
        phase = self.phase_at(t_ns) or (phases[-1] if self._schedule is None else None)
        line: dict[str, Any] = {
            "phase": phase.name if phase is not None else None,
            "phase_index": phases.index(phase) if phase is not None else 0,
            "phase_count": len(phases),
        }
        if phase is not None and phase.end_ns > phase.start_ns:
            line["phase_t_s"] = (t_ns - phase.start_ns) / NS_PER_S
            line["phase_duration_s"] = (phase.end_ns - phase.start_ns) / NS_PER_S
        if self._schedule is not None:
            times = self._schedule.due_ns
            due = int(np.searchsorted(times, t_ns, side="right"))
            before = int(np.searchsorted(times, t_ns - RATE_WINDOW_NS, side="right"))
            window_s = min(RATE_WINDOW_NS, max(t_ns, 1)) / NS_PER_S
            line |= {"planned": due, "planned_total": len(times), "planned_per_s": (due - before) / window_s}
        elif self._closed is not None:
            line["planned_total"] = self._closed.total
        elif phases[0].steps:
            line["planned_per_s"] = phases[0].steps[-1].rate_per_s
        return line

    def close(self, *, stop_ns: int | None, cause: str, workers: Sequence[WorkerState]) -> None:
        """Note how the run ended and what every worker said."""
        manifest = self._manifest
        manifest.state = "closed"
        manifest.stop_ns, manifest.stop_cause = stop_ns, cause
        manifest.workers = [self._worker_record(worker) for worker in workers]
        manifest.rows = sum(w.closed.rows for w in workers if w.closed is not None)
        if self._schedule is not None:
            times = self._schedule.due_ns
            manifest.planned = len(times) if stop_ns is None else int(np.searchsorted(times, stop_ns, side="left"))
            if stop_ns is not None:
                manifest.phases = cut_phases(manifest.phases, stop_ns)
        else:
            self._close_unplanned(stop_ns, workers)
        self._save()
        self._pool.kill()

    def _close_unplanned(self, stop_ns: int | None, workers: Sequence[WorkerState]) -> None:
        """Write down a run without schedule: what was begun was planned."""
        manifest = self._manifest
        manifest.planned = sum(_begun(worker) for worker in workers)
        if self._closed is None:
            end_ns = stop_ns if stop_ns is not None else time.monotonic_ns() - manifest.epoch_monotonic_ns
            manifest.phases[0].end_ns = end_ns
            if manifest.phases[0].steps:
                manifest.phases[0].steps[-1].end_ns = end_ns
        else:
            reports = [worker.closed for worker in workers if worker.closed is not None]
            first = [r.first_measured_ns for r in reports if r.first_measured_ns is not None]
            last = [r.last_end_ns for r in reports if r.last_end_ns is not None]
            ends = [end for end in (stop_ns, self._closed.duration_ns) if end is not None]
            end_ns = min(ends) if ends else max(last, default=0)
            manifest.phases = closed_phases(self._closed, min(first, default=0), end_ns)
        for worker in workers:
            if worker.closed is None:
                manifest.lost_detail += self._leased_to(worker)

    def _leased_to(self, worker: WorkerState) -> list[LostRange]:
        """Return the seqs of a worker that died without a report: those without a row may have been begun."""
        blocks = self._blocks.get(worker.hello.worker_id, [])
        return [
            LostRange(
                first=first, last=first + count - 1, worker=worker.hello.worker, cause="unreported", certain=False
            )
            for first, count in blocks
            if count
        ]

    def _worker_record(self, worker: WorkerState) -> WorkerRecord:
        hello, ready, closed = worker.hello, worker.ready, worker.closed
        heard_ns = worker.heard_ns - self._manifest.epoch_monotonic_ns if worker.heard_ns else None
        due = (
            int(np.searchsorted(self._schedule.due_ns, heard_ns))
            if self._schedule is not None and heard_ns is not None
            else None
        )
        return WorkerRecord(
            worker=hello.worker,
            host=hello.host,
            pid=hello.pid,
            boot_id=hello.boot_id,
            state="closed" if closed is not None else "lost" if ready is not None else "unready",
            offset_ns=ready.offset_ns if ready is not None else 0,
            clock_bound_ns=ready.clock_bound_ns if ready is not None else 0,
            begun=closed.begun if closed is not None else None,
            rows=closed.rows if closed is not None else None,
            last_heard_ns=heard_ns if closed is None else None,
            due_seq=due if closed is None else None,
            reached_seq=worker.reached if self._schedule is not None and ready is not None else None,
            schedule_hash=ready.schedule_hash if ready is not None else None,
        )

    def _save(self) -> None:
        """Bring the manifest to disk; blocks the calling greenlet, and the hub only while it is encoded.

        A disk may take 100 ms for it, and hundreds of workers wait for their leases. Raises HarnessError where it is
        full.
        """
        failure = self._pool.apply(_write, (self.folder / MANIFEST_NAME, encode_manifest(self._manifest)))
        if failure is not None:
            raise failure


def _write(path: Path, data: bytes) -> HarnessError | None:
    """Run in the thread; errors are returned, since gevent prints what a pool thread raises."""
    try:
        write_atomic(path, data)
    except HarnessError as error:
        return error
    return None


def planned_phases(schedule: Schedule) -> list[PhaseRecord]:
    """Return the phases as the plan has them, with the load levels of those that have some."""
    return [
        PhaseRecord(
            name=phase.name,
            shape=phase.shape,
            start_ns=phase.start_ns,
            end_ns=phase.end_ns,
            measured=phase.measured,
            planned=phase.planned,
            steps=[
                StepRecord(index=step.index, start_ns=step.start_ns, end_ns=step.end_ns, rate_per_s=step.rate_per_s)
                for step in phase.steps
            ],
        )
        for phase in schedule.phases
    ]


def closed_phases(closed: ClosedLoad, first_measured_ns: int, end_ns: int) -> list[PhaseRecord]:
    """Return the phases of closed load: the warm-up ends with the first request after it."""
    measured = PhaseRecord(name=CLOSED, shape=CLOSED, start_ns=first_measured_ns, end_ns=end_ns, measured=True)
    if not closed.warmup_requests:
        measured.start_ns = 0
        return [measured]
    warmup = PhaseRecord(name=CLOSED_WARMUP, shape=CLOSED, start_ns=0, end_ns=first_measured_ns, measured=False)
    return [warmup, measured]


def cut_phases(phases: Sequence[PhaseRecord], stop_ns: int) -> list[PhaseRecord]:
    """Return the phases up to an early stop: those that never began are left out."""
    kept = [phase for phase in phases if phase.start_ns < stop_ns]
    for phase in kept:
        phase.end_ns = min(phase.end_ns, stop_ns)
        phase.steps = [step for step in phase.steps if step.start_ns < stop_ns]
        for step in phase.steps:
            step.end_ns = min(step.end_ns, stop_ns)
    return kept


def _begun(worker: WorkerState) -> int:
    """Return how many requests a worker began: by its final report, else by the last one it gave."""
    if worker.closed is not None:
        return worker.closed.begun
    return worker.status.totals.dispatched if worker.status is not None else 0
