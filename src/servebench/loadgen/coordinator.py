"""Know one run on the master: prepare the workers, arm them, keep the leases, stop, write down what became of it."""

import logging
import time
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event

from servebench.core.errors import HarnessError, ServebenchError
from servebench.core.outcomes import ExitCode
from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.loadgen.channel import Channel
from servebench.loadgen.journal import Journal
from servebench.loadgen.membership import Membership
from servebench.loadgen.messages import (
    Alive,
    Arm,
    CancelNow,
    Close,
    Closed,
    Hello,
    Lease,
    MembersFrom,
    NeedSeqs,
    Prepare,
    Ready,
    SeqBlock,
    Status,
    Step,
    Stop,
    WorkerFault,
)
from servebench.loadgen.progress import LiveView, ProgressPipe
from servebench.loadgen.runbook import Runbook
from servebench.loadgen.runclock import RunClock

log = logging.getLogger(__name__)

BLOCK_SEQS = 64
PREPARE_LIMIT_S = 60.0
ARM_AHEAD_NS = 300 * NS_PER_MS
STOP_AHEAD_NS = 300 * NS_PER_MS
"""Sending ends this long after the word is given, so that every worker hears of it before it has gone past."""
DRAIN_SILENT_NS = 10 * NS_PER_S
LEASE_EVERY_S = 0.2
CLOSE_LIMIT_S = 30.0


@dataclass(slots=True)
class WorkerState:
    """What the master knows of one worker in this run."""

    hello: Hello
    ready: Ready | None = None
    status: Status | None = None
    closed: Closed | None = None
    lost: bool = False
    heard_ns: int = 0
    """Last message of any kind, on this process's monotonic clock."""


@dataclass(slots=True)
class StopOrder:
    """Why and when sending ends. `drain_ns` None = as long as the requests' own deadlines allow."""

    cause: str
    drain_ns: int
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the run is to do. `schedule_hash` and `duration_ns` are None for runs without schedule."""

    prepare: Prepare
    schedule_hash: str | None
    duration_ns: int | None
    drain_ns: int


class Coordinator:
    """One run. `run` is its greenlet; handlers are called from Locust's RPC greenlet and do not block."""

    def __init__(self, order: Order, channel: Channel, runbook: Runbook, journal: Journal, pipe: ProgressPipe) -> None:
        self.run_id = order.prepare.run_id
        self.finished = Event()
        self.exit_code: int = ExitCode.OK
        self._order, self._channel, self._runbook, self._journal, self._pipe = order, channel, runbook, journal, pipe
        self._workers: dict[str, WorkerState] = {}
        self._view = LiveView()
        self._clock: RunClock | None = None
        self._table: Membership | None = None
        self._stop: StopOrder | None = None
        self._stop_ns: int | None = None
        self._next_seq = 0
        self._cancelled = False
        self._offered_per_s = 0.0
        self._step = -1
        self._state = "preparing"
        self._phase: str | None = None
        self._last_line_ns = 0

    @property
    def by_hand(self) -> bool:
        """Whether an operator sets the rate, not a schedule."""
        return self._order.schedule_hash is None

    # Called from outside.

    def welcome(self, hello: Hello) -> None:
        """Let a worker take part, also when the run is under way."""
        self._workers[hello.worker_id] = WorkerState(hello)
        self._channel.send(self._order.prepare, hello.worker_id)

    def request_stop(self, cause: str, exit_code: int = ExitCode.OK, drain_ns: int | None = None) -> None:
        """End the run: nothing new is sent, what is in flight may finish. The first call counts."""
        if self._stop is None:
            self._stop = StopOrder(cause, self._order.drain_ns if drain_ns is None else drain_ns, exit_code)

    def cancel_now(self) -> None:
        """End what is in flight, after a stop."""
        if not self._cancelled:
            self._cancelled = True
            self._broadcast(CancelNow(run_id=self.run_id))

    def fail(self, error: BaseException) -> None:
        """End the run because the harness or its input is at fault."""
        code = error.exit_code if isinstance(error, ServebenchError) else HarnessError.exit_code
        log.error("run %s: %s", self.run_id, error, exc_info=None if isinstance(error, ServebenchError) else error)
        self._pipe.event("fault", str(error))
        self.request_stop(f"fault: {error}", code, 0)

    def offered(self, rate_per_s: float) -> None:
        """Note the rate that the operator asks for; a change begins a new step."""
        if self._clock is None or self._stop is not None or rate_per_s == self._offered_per_s:
            return
        self._offered_per_s, self._step = rate_per_s, self._step + 1
        now_ns = max(0, self._clock.now_ns())
        self._runbook.step(self._step, now_ns, rate_per_s)
        self._journal.add("edit", f"offered rate {rate_per_s:g}/s", t_ns=now_ns, data={"rate_per_s": rate_per_s})
        self._broadcast(Step(run_id=self.run_id, index=self._step, rate_per_s=rate_per_s))

    # Handlers.

    def on_ready(self, message: Ready) -> None:
        """Note that a worker has planned and loaded everything."""
        state = self._workers[message.worker_id]
        if message.schedule_hash != self._order.schedule_hash:
            self.fail(
                HarnessError(
                    f"worker {state.hello.worker} on {state.hello.host} planned another schedule "
                    f"({message.schedule_hash} instead of {self._order.schedule_hash}): "
                    "give all hosts the same servebench version and the same trace and prompt files"
                )
            )
            return
        state.ready = message
        if self._clock is not None and self._table is not None and self._stop is None:
            self._send_arm(message.worker_id, self._clock)
            self._table.heard(message.worker_id, self._clock.now_ns())

    def on_alive(self, message: Alive) -> None:
        """Note that a worker answered its lease."""
        self._workers[message.worker_id].heard_ns = time.monotonic_ns()
        if self._table is not None and self._clock is not None:
            self._table.heard(message.worker_id, self._clock.now_ns())

    def on_status(self, message: Status) -> None:
        """Take a worker's figures of the last second."""
        self._workers[message.worker_id].heard_ns = time.monotonic_ns()
        self._workers[message.worker_id].status = message
        self._view.take(message)

    def on_need(self, message: NeedSeqs) -> None:
        """Lease seqs to a worker of a run without schedule; none is ever given twice."""
        for _ in range(message.blocks):
            self._runbook.leased(message.worker_id, self._next_seq, BLOCK_SEQS)
            self._channel.send(SeqBlock(run_id=self.run_id, first=self._next_seq, count=BLOCK_SEQS), message.worker_id)
            self._next_seq += BLOCK_SEQS

    def on_closed(self, message: Closed) -> None:
        """Note that a worker's rows are all on disk."""
        state = self._workers[message.worker_id]
        state.closed = message
        if self._stop is None and self._state != "closing":
            self._note_lost(message.worker_id, "left")

    def on_fault(self, message: WorkerFault) -> None:
        """End the run because a worker cannot go on."""
        error = HarnessError(message.text)
        error.exit_code = message.exit_code
        self.fail(error)

    # The run's greenlet.

    def run(self) -> None:
        """Take the run from prepared workers to a closed manifest; always ends with `finished` set."""
        try:
            self._await_ready()
            if self._stop is None:
                self._arm()
            self._steer()
        except Exception as error:  # noqa: BLE001 - top of a greenlet: the run ends and says why
            self.fail(error)
        try:
            self._close_workers()
            self._finish()
        except Exception as error:  # noqa: BLE001 - the same, when even that failed
            self.fail(error)
            self.exit_code = ExitCode.HARNESS
        finally:
            self._journal.close()
            self.finished.set()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + PREPARE_LIMIT_S
        while self._stop is None and not (self._workers and all(w.ready for w in self._workers.values())):
            if time.monotonic() > deadline:
                late = [w.hello.worker for w in self._workers.values() if w.ready is None]
                msg = f"workers not ready after {PREPARE_LIMIT_S:g} s: {', '.join(late) or 'none has connected'}"
                raise HarnessError(msg)
            self._line()
            gevent.sleep(0.05)

    def _arm(self) -> None:
        epoch_ns = time.monotonic_ns() + ARM_AHEAD_NS
        self._clock = RunClock(epoch_ns)
        self._table = Membership.begin(list(self._workers), self._clock.now_ns())
        self._runbook.armed(epoch_ns, time.time_ns() + ARM_AHEAD_NS)
        for worker_id in self._workers:
            self._send_arm(worker_id, self._clock)
        self._send_leases(self._table, self._clock)
        self._note_members(self._table)
        self._state = "running"
        self._journal.add("marker", "armed", t_ns=self._clock.now_ns(), data={"workers": len(self._workers)})

    def _send_arm(self, worker_id: str, clock: RunClock) -> None:
        since_ns = time.monotonic_ns() - clock.epoch_monotonic_ns
        self._channel.send(
            Arm(
                run_id=self.run_id,
                epoch_monotonic_ns=clock.epoch_monotonic_ns,
                epoch_unix_ns=time.time_ns() - since_ns,
            ),
            worker_id,
        )

    def _steer(self) -> None:
        """Keep leases until every live worker has nothing left to do, or the run is stopped and drained."""
        clock, table = self._clock, self._table
        if clock is None or table is None:
            return
        while not self._all_done():
            if self._stop_ns is None:
                self._send_leases(table, clock)
                self._update_members(table, clock)
            else:
                self._give_up_on_the_silent()
            if self._stop is not None and self._stop_ns is None:
                self._send_stop(self._stop, clock)
            self._note_phase(clock)
            self._line()
            gevent.sleep(LEASE_EVERY_S)

    def _all_done(self) -> bool:
        live = [w for w in self._workers.values() if w.ready and not w.lost]
        if not live:
            if self._stop is None:
                self.fail(HarnessError("every worker was lost; what they had written is kept"))
            return True
        return all(w.closed is not None or (w.status is not None and w.status.done) for w in live)

    def _send_stop(self, stop: StopOrder, clock: RunClock) -> None:
        self._stop_ns = max(0, clock.now_ns()) + STOP_AHEAD_NS
        self._state = "draining"
        self._journal.add("stop", stop.cause, t_ns=self._stop_ns)
        self._broadcast(Stop(run_id=self.run_id, stop_ns=self._stop_ns, drain_ns=stop.drain_ns))

    def _send_leases(self, table: Membership, clock: RunClock) -> None:
        members = tuple(MembersFrom(from_ns=c.from_ns, worker_ids=c.members) for c in table.changes)
        now_ns = clock.now_ns()
        for worker_id, state in self._workers.items():
            if state.ready is not None and not state.lost:
                until_ns = table.lease_until(worker_id, now_ns)
                self._channel.send(Lease(run_id=self.run_id, valid_until_ns=until_ns, members=members), worker_id)

    def _update_members(self, table: Membership, clock: RunClock) -> None:
        known = [i for i, w in self._workers.items() if w.ready is not None and w.closed is None]
        lost, joined = table.update(known, clock.now_ns())
        for worker_id in lost:
            self._note_lost(worker_id, "no sign of life")
        for worker_id in joined:
            self._workers[worker_id].lost = False
            worker = self._workers[worker_id].hello.worker
            self._journal.add("join", f"worker {worker} joined", t_ns=clock.now_ns(), worker=worker)
            self._pipe.event("join", f"worker {worker} joined")
        if lost or joined:
            self._note_members(table)

    def _give_up_on_the_silent(self) -> None:
        """Wait longer while draining: no share has to pass on, and Locust's own stop may block a worker for seconds."""
        for worker_id, state in self._workers.items():
            if state.ready is not None and time.monotonic_ns() - state.heard_ns > DRAIN_SILENT_NS:
                self._note_lost(worker_id, "no sign of life")

    def _note_lost(self, worker_id: str, why: str) -> None:
        state = self._workers[worker_id]
        if state.lost:
            return
        state.lost = True
        now_ns = self._clock.now_ns() if self._clock is not None else None
        text = f"worker {state.hello.worker} lost ({why}); its share goes to the others"
        log.warning("run %s: %s", self.run_id, text)
        self._journal.add("lost", text, t_ns=now_ns, worker=state.hello.worker)
        self._pipe.event("lost", text)

    def _note_members(self, table: Membership) -> None:
        latest = table.changes[-1]
        from_ns = max(0, latest.from_ns)
        names = [self._workers[worker_id].hello.worker for worker_id in latest.members]
        self._runbook.members(from_ns, names)
        text = f"{len(names)} workers share the load"
        self._journal.add("members", text, t_ns=from_ns, data={"workers": names})

    def _note_phase(self, clock: RunClock) -> None:
        phase = self._runbook.phase_at(clock.now_ns())
        if phase is not None and phase.name != self._phase:
            self._phase = phase.name
            self._journal.add("phase", f"{phase.name} began", t_ns=phase.start_ns, phase=phase.name)
            self._pipe.event("phase", f"{phase.name} began")

    def _close_workers(self) -> None:
        self._state = "closing"
        waiting = [i for i, w in self._workers.items() if w.ready is not None and not w.lost]
        self._broadcast(Close(run_id=self.run_id))
        deadline = time.monotonic() + CLOSE_LIMIT_S
        while any(self._workers[i].closed is None for i in waiting) and time.monotonic() < deadline:
            gevent.sleep(0.02)
        for worker_id in waiting:
            if self._workers[worker_id].closed is None:
                self._note_lost(worker_id, "did not report the end")

    def _finish(self) -> None:
        stop = self._stop
        self.exit_code = stop.exit_code if stop is not None else ExitCode.OK
        self._runbook.close(
            stop_ns=self._stop_ns,
            cause=stop.cause if stop is not None else "finished",
            workers=list(self._workers.values()),
        )
        self._state = "closed"
        self._last_line_ns = 0
        self._line()

    def _broadcast(self, message: Any) -> None:  # noqa: ANN401 - any message Struct
        for worker_id, state in self._workers.items():
            if state.ready is not None and not state.lost:
                self._channel.send(message, worker_id)

    def _line(self) -> None:
        """Send a status line, once a second."""
        now_ns = time.monotonic_ns()
        if now_ns - self._last_line_ns < NS_PER_S:
            return
        self._last_line_ns = now_ns
        t_ns = self._clock.now_ns() if self._clock is not None else 0
        self._pipe.send(
            {
                "kind": "status",
                "state": self._state,
                "run_id": self.run_id,
                "folder": str(self._runbook.folder),
                "t_s": max(0, t_ns) / NS_PER_S,
                "duration_s": self._order.duration_ns / NS_PER_S if self._order.duration_ns is not None else None,
                "workers": sum(1 for w in self._workers.values() if w.ready is not None and not w.lost),
                **self._runbook.progress(t_ns),
                **self._view.tick(now_ns / NS_PER_S),
            }
        )
