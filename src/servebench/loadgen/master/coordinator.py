"""Know one run on the master: prepare the workers, arm them, keep the leases, stop, write down what became of it."""

import logging
import time
from collections.abc import Callable

import gevent
from gevent.event import Event

from servebench.core.errors import HarnessError, ServebenchError
from servebench.core.outcomes import ExitCode
from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.loadgen.channel import Channel
from servebench.loadgen.collector import calm_collector
from servebench.loadgen.master.chronicle import Chronicle
from servebench.loadgen.master.leases import LEASE_EVERY_S, send_leases
from servebench.loadgen.master.orders import Order, StopOrder
from servebench.loadgen.master.receiver import PartReceiver
from servebench.loadgen.master.roster import Roster
from servebench.loadgen.master.seq_blocks import SeqBlocks
from servebench.loadgen.membership import Membership
from servebench.loadgen.messages import (
    Alive,
    Arm,
    CancelNow,
    Close,
    Closed,
    Hello,
    Leaving,
    NeedSeqs,
    PartPiece,
    Ready,
    Status,
    Step,
    Stop,
    WorkerFault,
)
from servebench.loadgen.runclock import RunClock

log = logging.getLogger(__name__)

PREPARE_LIMIT_S = 60.0
ARM_AHEAD_NS = 300 * NS_PER_MS
STOP_AHEAD_NS = 300 * NS_PER_MS
"""Sending ends this long after the word is given, so that every worker hears of it before it has gone past."""
DRAIN_SILENT_NS = 10 * NS_PER_S
STOP_AGAIN_NS = CLOSE_AGAIN_NS = 2 * NS_PER_S
"""A word that a worker does not act on is given again: a reconnect swallows one now and then."""
OVERDUE_NS = 60 * NS_PER_S
"""A worker that is heard of and still not done so long after its drain is given up: a run ends."""
GIVEN_UP_NS = 15 * NS_PER_S
"""A run that is over waits this long for a lost worker to return with its rows: its network may be down for 10 s."""
ALONE_NS = 30 * NS_PER_S
"""A run without any worker waits this long for one: as long as workers wait for their master."""
CLOSE_LIMIT_S = 30.0


class Coordinator:
    """One run. `run` is its greenlet; handlers are called from Locust's RPC greenlet and do not block."""

    def __init__(self, order: Order, channel: Channel, chronicle: Chronicle, is_present: Callable[[str], bool]) -> None:
        self.run_id = order.prepare.run_id
        self.finished = Event()
        self.exit_code: int = ExitCode.OK
        self._order, self._chronicle, self._runbook = order, chronicle, chronicle.runbook
        self._roster = Roster(channel)
        self._is_present = is_present
        self._parts = PartReceiver(chronicle.folder, channel.send, self.fail)
        self._clock: RunClock | None = None
        self._table: Membership | None = None
        self._stop: StopOrder | None = None
        self._stop_ns: int | None = None
        self._seqs = SeqBlocks(self.run_id, order.total, self._roster, self._runbook)
        self._cancelled = False
        self._cancelled_ns: int | None = None
        self._stop_told_ns = 0
        self._offered_per_s = 0.0
        self._step = -1
        self._state = "preparing"

    @property
    def by_hand(self) -> bool:
        """Whether an operator sets the rate, not a schedule."""
        return self._order.prepare.engine == "tokens"

    @property
    def _ending(self) -> bool:
        """Whether nobody can begin any more."""
        return self._stop is not None or self._state in {"closing", "closed"}

    # Called from outside.

    def welcome(self, hello: Hello) -> None:
        """Let a worker take part, also when the run is under way; one that takes part already is left alone."""
        if hello.worker_id in self._roster.workers or self._ending:
            return
        self._roster.add(hello)
        self._roster.send(self._order.prepare, [hello.worker_id])

    def request_stop(self, cause: str, exit_code: int = ExitCode.OK, drain_ns: int | None = None) -> None:
        """End the run: nothing new is sent, what is in flight may finish. The first call counts."""
        if self._stop is None:
            self._stop = StopOrder(cause, self._order.drain_ns if drain_ns is None else drain_ns, exit_code)

    def cancel_now(self) -> None:
        """End what is in flight, after a stop; what was begun since the word was given ends with the sending."""
        if self._stop is None or self._cancelled:
            return
        self._cancelled = True
        self._cancelled_ns = self._clock.now_ns() if self._clock is not None else None
        self._stop.drain_ns = 0
        if self._stop_ns is not None:
            self._roster.send(Stop(run_id=self.run_id, stop_ns=self._stop_ns, drain_ns=0))
        self._roster.send(CancelNow(run_id=self.run_id))

    def fail(self, error: BaseException) -> None:
        """End the run because the harness or its input is at fault."""
        code = error.exit_code if isinstance(error, ServebenchError) else HarnessError.exit_code
        log.error("run %s: %s", self.run_id, error, exc_info=None if isinstance(error, ServebenchError) else error)
        self._chronicle.pipe.event("fault", str(error))
        self.request_stop(f"fault: {error}", code, 0)

    def offered(self, rate_per_s: float) -> None:
        """Note the rate that the operator asks for; a change begins a new step."""
        if self._clock is None or self._stop is not None or rate_per_s == self._offered_per_s:
            return
        self._offered_per_s, self._step = rate_per_s, self._step + 1
        now_ns = max(0, self._clock.now_ns())
        self._runbook.step(self._step, now_ns, rate_per_s)
        self._chronicle.tell("edit", f"offered rate {rate_per_s:g}/s", now_ns, data={"rate_per_s": rate_per_s})
        self._roster.send(Step(run_id=self.run_id, index=self._step, rate_per_s=rate_per_s))

    def mark(self, text: str) -> None:
        """Note a word of the operator's."""
        self._chronicle.tell("marker", text, self._clock.now_ns() if self._clock is not None else None)

    # Handlers.

    def on_ready(self, message: Ready) -> None:
        """Note that a worker has planned and loaded everything."""
        state = self._roster.heard(message.worker_id)
        if self._ending:
            self._roster.send(Close(run_id=self.run_id), [message.worker_id])
        elif message.schedule_hash != self._order.schedule_hash:
            self.fail(
                HarnessError(
                    f"worker {state.hello.worker} on {state.hello.host} planned another schedule "
                    f"({message.schedule_hash} instead of {self._order.schedule_hash}): "
                    "give all hosts the same servebench version and the same trace and prompt files"
                )
            )
            self._roster.send(Close(run_id=self.run_id), [message.worker_id])
        else:
            state.ready = message
            if self._clock is not None and self._table is not None:
                self._arm_late(message.worker_id, self._clock, self._table)

    def _arm_late(self, worker_id: str, clock: RunClock, table: Membership) -> None:
        """Let a worker begin in the midst of the run, and tell it what the others were told before."""
        self._send_arm(worker_id, clock)
        if self._step >= 0:
            self._roster.send(Step(run_id=self.run_id, index=self._step, rate_per_s=self._offered_per_s), [worker_id])
        if self._seqs.used_up:
            self._seqs.tell_used_up([worker_id])
        table.heard(worker_id, clock.now_ns())

    def on_alive(self, message: Alive) -> None:
        """Note that a worker answered its lease."""
        state = self._roster.heard(message.worker_id)
        state.changes, state.reached = message.changes, message.reached
        if self._table is None or self._clock is None:
            return
        if not message.armed and not self._ending:
            self._arm_late(message.worker_id, self._clock, self._table)  # a reconnect swallowed it
        self._table.heard(message.worker_id, self._clock.now_ns())

    def on_status(self, message: Status) -> None:
        """Take a worker's figures of the last second."""
        self._roster.heard(message.worker_id).status = message
        self._chronicle.take(message)

    def on_need(self, message: NeedSeqs) -> None:
        """Lease seqs to a worker of a run without schedule; none is ever given twice."""
        self._roster.heard(message.worker_id)
        self._seqs.lease(message.worker_id, message.blocks)

    def on_closed(self, message: Closed) -> None:
        """Note that a worker's rows are all on disk."""
        state = self._roster.heard(message.worker_id)
        state.closed, state.reached = message, message.reached
        if not self._ending:
            self._note_lost(message.worker_id, "left")

    def on_piece(self, message: PartPiece) -> None:
        """Take a piece of a worker's finished part, also after the run."""
        self._parts.take(message, self._roster.heard(message.worker_id).hello.worker)

    def on_leaving(self, message: Leaving) -> None:
        """Give a worker's share to the others while what it has in flight ends."""
        self._roster.heard(message.worker_id).leaving = True

    def on_fault(self, message: WorkerFault) -> None:
        """End the run because a worker cannot go on."""
        self._roster.heard(message.worker_id)
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
            self._chronicle.load_over()
        except Exception as error:  # noqa: BLE001 - top of a greenlet: the run ends and says why
            self.fail(error)
        try:
            self._close_workers()
            self._finish()
        except Exception as error:  # noqa: BLE001 - the same, when even that failed
            self.fail(error)
            self.exit_code = ExitCode.HARNESS
        try:
            self._chronicle.close()
        finally:
            self.finished.set()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + PREPARE_LIMIT_S
        while self._stop is None and not self._roster.all_ready():
            if time.monotonic() > deadline:
                late = ", ".join(self._roster.unready()) or "none has connected"
                msg = f"workers not ready after {PREPARE_LIMIT_S:g} s: {late}"
                raise HarnessError(msg)
            for worker_id, state in self._roster.workers.items():
                if state.ready is None and not self._is_present(worker_id):
                    self._note_lost(worker_id, "gone before the run")
            self._line()
            gevent.sleep(0.05)

    def _arm(self) -> None:
        calm_collector()
        epoch_ns = time.monotonic_ns() + ARM_AHEAD_NS
        self._clock = RunClock(epoch_ns)
        self._table = Membership.begin([worker_id for worker_id, _ in self._roster.live()], self._clock.now_ns())
        self._chronicle.armed(epoch_ns, time.time_ns() + ARM_AHEAD_NS, self._order.prepare.master_boot_id)
        for worker_id, _ in self._roster.live():
            self._send_arm(worker_id, self._clock)
        send_leases(self.run_id, self._roster, self._table, self._clock, spread=False)
        self._note_members(self._table)
        self._state = "running"
        self._chronicle.tell("marker", "armed", self._clock.now_ns(), data={"workers": len(self._roster.live())})

    def _send_arm(self, worker_id: str, clock: RunClock) -> None:
        since_ns = time.monotonic_ns() - clock.epoch_monotonic_ns
        arm = Arm(
            run_id=self.run_id,
            epoch_monotonic_ns=clock.epoch_monotonic_ns,
            epoch_unix_ns=time.time_ns() - since_ns,
        )
        self._roster.send(arm, [worker_id])

    def _steer(self) -> None:
        """Keep leases until every live worker has nothing left to do, or the run is stopped and drained."""
        clock, table = self._clock, self._table
        if clock is None or table is None:
            return
        while not self._all_done():
            due_s = time.monotonic() + LEASE_EVERY_S
            if self._stop_ns is None:
                send_leases(self.run_id, self._roster, table, clock, spread=True)
                self._update_members(table, clock)
            # No share has to pass on from those that drain, and Locust's own stop may block a worker for seconds.
            for worker_id in self._roster.silent(DRAIN_SILENT_NS):
                if self._stop_ns is not None or self._roster.workers[worker_id].leaving:
                    self._note_lost(worker_id, "no sign of life")
            if self._stop is not None:
                self._see_to_stop(self._stop, clock)
            self._seqs.remind([i for i, state in self._roster.live() if not state.done], clock.now_ns())
            self._chronicle.note_phase(clock.now_ns())
            self._chronicle.judge()
            self._line()
            gevent.sleep(max(0.0, due_s - time.monotonic()))
        if self._stop is None:
            self._chronicle.judge()  # what the workers told last

    def _all_done(self) -> bool:
        live = self._roster.live()
        if self._stop is None and (away := self._roster.may_return(GIVEN_UP_NS if live else ALONE_NS)):
            return bool(live) and all(state.done for state in (*(state for _, state in live), *away))
        if not live and self._stop is None:
            self.fail(HarnessError("every worker was lost; what they had written is kept"))
        return all(state.done for _, state in live)

    def _see_to_stop(self, stop: StopOrder, clock: RunClock) -> None:
        """Stop the workers; tell it again while some are not done, and give up those that outlast their drain by far.

        A reconnect may swallow the word, and a run must end even where a worker that is heard of cannot.
        """
        stop_ns = self._send_stop(stop, clock) if self._stop_ns is None else self._stop_ns
        now_ns = clock.now_ns()
        open_still = [worker_id for worker_id, state in self._roster.live() if not state.done]
        if now_ns - self._stop_told_ns > STOP_AGAIN_NS:
            self._stop_told_ns = now_ns
            self._roster.send(Stop(run_id=self.run_id, stop_ns=stop_ns, drain_ns=stop.drain_ns), open_still)
        begun_ns = stop_ns if self._cancelled_ns is None else self._cancelled_ns
        if now_ns > begun_ns + stop.drain_ns + OVERDUE_NS:
            for worker_id in open_still:
                self._note_lost(worker_id, f"not done {OVERDUE_NS // NS_PER_S} s after its drain")

    def _send_stop(self, stop: StopOrder, clock: RunClock) -> int:
        """Let sending end soon; return when, on the run clock."""
        stop_ns = self._stop_ns = max(0, clock.now_ns()) + STOP_AHEAD_NS
        self._state = "draining"
        self._chronicle.tell("stop", stop.cause, stop_ns)
        self._stop_told_ns = clock.now_ns()
        self._roster.send(Stop(run_id=self.run_id, stop_ns=stop_ns, drain_ns=stop.drain_ns))
        return stop_ns

    def _update_members(self, table: Membership, clock: RunClock) -> None:
        lost, joined = table.update(self._roster.reachable(), clock.now_ns())
        for worker_id in lost:
            if not self._roster.workers[worker_id].leaving:
                self._note_lost(worker_id, "no sign of life")
        for worker_id in joined:
            self._roster.workers[worker_id].lost = False
            worker = self._roster.name(worker_id)
            self._chronicle.tell("join", f"worker {worker} joined", clock.now_ns(), worker=worker, aloud=True)
        if lost or joined:
            self._note_members(table)

    def _note_lost(self, worker_id: str, why: str) -> None:
        state = self._roster.workers[worker_id]
        if state.lost:
            return
        state.lost = True
        self._chronicle.lost(worker_id)
        now_ns = self._clock.now_ns() if self._clock is not None else None
        text = f"worker {state.hello.worker} lost ({why})"
        if self._stop_ns is None:
            text += "; its share goes to the others"
        log.warning("run %s: %s", self.run_id, text)
        self._chronicle.tell("lost", text, now_ns, worker=state.hello.worker, aloud=True)

    def _note_members(self, table: Membership) -> None:
        latest = table.changes[-1]
        from_ns = max(0, latest.from_ns)
        names = [self._roster.name(worker_id) for worker_id in latest.members]
        self._runbook.members(from_ns, names)
        text = f"{len(names)} workers share the load" if len(names) != 1 else "1 worker takes the load"
        self._chronicle.tell("members", text, from_ns, data={"workers": names})

    def _close_workers(self) -> None:
        if self._stop is not None and self._stop_ns is None and self._clock is not None:
            self._send_stop(self._stop, self._clock)
        self._state = "closing"
        waiting = self._roster.live()
        # Those that are lost hear it too: one that only was slow ends now, not when it misses the leases.
        self._roster.send(Close(run_id=self.run_id), {*self._roster.reachable(), *(i for i, _ in waiting)})
        asked_ns = told_ns = time.monotonic_ns()
        # Parts may still travel to here: as long as they do, nobody is late.
        while any(state.closed is None for _, state in waiting) and (
            time.monotonic_ns() - max(asked_ns, self._parts.last_ns) < CLOSE_LIMIT_S * NS_PER_S
        ):
            gevent.sleep(0.02)
            if time.monotonic_ns() - told_ns > CLOSE_AGAIN_NS:
                told_ns = time.monotonic_ns()
                self._roster.send(Close(run_id=self.run_id), [i for i, state in waiting if state.closed is None])
        for worker_id, state in waiting:
            if state.closed is None:
                self._note_lost(worker_id, "did not report the end")

    def _finish(self) -> None:
        stop = self._stop
        self.exit_code = stop.exit_code if stop is not None else ExitCode.OK
        self._runbook.close(
            stop_ns=self._stop_ns,
            cause=stop.cause if stop is not None else "finished",
            workers=list(self._roster.workers.values()),
        )
        self._state = "closed"
        self._line(now=True)

    def _line(self, *, now: bool = False) -> None:
        t_ns = self._clock.now_ns() if self._clock is not None else 0
        self._chronicle.line(self._state, t_ns, len(self._roster.live()), now=now)
