"""Know one run on one worker, from the order to prepare it to the report that everything is on disk."""

import logging
import time

import gevent
from gevent.event import Event
from gevent.greenlet import Greenlet

from servebench.core.errors import HarnessError, ServebenchError
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_S
from servebench.loadgen.membership import Change
from servebench.loadgen.messages import (
    Arm,
    Closed,
    Lease,
    Leaving,
    NeedSeqs,
    PartAck,
    Prepare,
    Status,
    Step,
    Stop,
    WorkerFault,
)
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.span_recorder import SpanRecorder
from servebench.loadgen.worker.accepting import AnswerChecker
from servebench.loadgen.worker.clock_sync import ClockLog
from servebench.loadgen.worker.collect import PartSender, make_delivery, sees_masters_folder
from servebench.loadgen.worker.dispatch import PlanDispatcher
from servebench.loadgen.worker.drain import CANCEL_LIMIT_S, wait_for_all
from servebench.loadgen.worker.engines import Engine, EngineParts, make_engine, mean_gaps_ns
from servebench.loadgen.worker.health import HealthGauges, HealthMonitor, told_health
from servebench.loadgen.worker.live import LiveCounters
from servebench.loadgen.worker.performers import make_performer
from servebench.loadgen.worker.permit import Permit, SeqPool
from servebench.loadgen.worker.pipeline import Pipeline
from servebench.loadgen.worker.recorder import Recorder
from servebench.loadgen.worker.requester import Requester, RequestParts
from servebench.loadgen.worker.setup import WorkerSetup, run_tag
from servebench.loadgen.worker.token_dispatch import TokenDispatcher
from servebench.shards.folder import join_run_folder
from servebench.shards.parts import PartIdentity
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.codec import decode_workload
from servebench.workload.model import Workload
from servebench.workload.prompts import load_prompts
from servebench.workload.schedule import Schedule, plan

log = logging.getLogger(__name__)

MASTER_SILENT_NS = 30 * NS_PER_S
"""Without a lease for this long the master is taken for dead, and this worker's part of the run ends.

Nothing is sent without a lease anyway, and finished rows are on disk after 5 s: this only decides how long a network
may be down for the worker to take part again.
"""


WRITE_LIMIT_S = 5.0
"""A process that is told to go waits this long after its drain for its parts to be on disk."""


class WorkerSession:
    """One run on this worker. Message handlers call its methods; its own greenlet does what takes time."""

    def __init__(self, order: Prepare, setup: WorkerSetup) -> None:
        self.run_id = order.run_id
        self._order, self._setup = order, setup
        self._permit = Permit()
        self._seqs = SeqPool(self._permit, self._ask_for_blocks)
        self._workload: Workload = decode_workload(order.workload.encode())
        self._live = LiveCounters(self._workload.objectives)
        self._prompts = load_prompts(self._workload, order.run_id)
        self._schedule: Schedule | None = plan(self._workload, self._prompts) if order.engine == "plan" else None
        dialect = ENDPOINTS[self._workload.target.endpoint]
        self._endpoint = dialect.at(order.model, stream=self._workload.requests.stream and dialect.streams)
        setup.counter.prepare(needed=not dialect.counts or order.locustfile is not None)
        self._target = parse_target(setup.url)
        self._next_due = NextDue()
        self._client = make_performer(order, setup, self._workload, self._endpoint, self._next_due)
        self.checker = AnswerChecker(self._workload.accept, of_prompts=self._prompts.has_checks)
        self._close_asked, self.closed = Event(), Event()
        self._stop: Stop | None = None
        self._lease_ns = time.monotonic_ns()
        self._clock: RunClock | None = None
        self._recorder: Recorder | None = None
        self._health: HealthMonitor | None = None
        self._clock_log: ClockLog | None = None
        self._spans: SpanRecorder | None = None
        self._sender: PartSender | None = None
        self._requester: Requester | None = None
        self._engine: Engine | None = None
        self._done = False
        self._failed = False
        self._report_sent: Closed | None = None

    @property
    def schedule_hash(self) -> str | None:
        """Hash of the schedule this worker planned; None for tokens."""
        return self._schedule.schedule_hash if self._schedule is not None else None

    @property
    def reached(self) -> int:
        """First seq of the plan that this worker has not dealt with; 0 before the run and without plan."""
        return self._engine.reached if isinstance(self._engine, PlanDispatcher) else 0

    @property
    def armed(self) -> bool:
        """Whether the run's zero has come here, or can do nothing any more."""
        return self._clock is not None or self.closed.is_set()

    # Message handlers: none blocks.

    def arm(self, message: Arm) -> None:
        """Take the run's zero and begin; what cannot begin is over, and the master is told both."""
        if self._clock is not None or self._close_asked.is_set():
            return
        try:
            with self._setup.ticker.paused():
                self._begin(message)
        except Exception as error:  # noqa: BLE001 - the master would wait for a worker that never says a word
            self.fail(error)
            if self._recorder is not None:
                self._recorder.close()
            self._report_end(0)

    def _begin(self, message: Arm) -> None:
        setup = self._setup
        clock = RunClock(message.epoch_monotonic_ns - setup.offset_ns)
        shared = sees_masters_folder(setup.out / self.run_id)
        folder = join_run_folder(setup.out, self.run_id)
        identity = PartIdentity(
            run_id=self.run_id,
            worker=setup.worker,
            epoch_monotonic_ns=clock.epoch_monotonic_ns,
            epoch_unix_ns=message.epoch_unix_ns,
            boot_id=setup.boot_id,
        )
        self._clock = clock
        recorder = self._recorder = Recorder(folder.requests, identity)
        health = HealthMonitor(folder.health, identity, self._gauges, setup.ticker)
        requester = self._make_requester(clock, recorder)
        engine = make_engine(
            EngineParts(
                workload=self._workload,
                schedule=self._schedule,
                prompts=self._prompts,
                worker_id=setup.worker_id,
                incarnation=int(setup.worker.rsplit("-", 1)[-1], 16),
                clock=clock,
                permit=self._permit,
                seqs=self._seqs,
                requester=requester,
                rate_per_s=setup.token_rate_per_s,
                next_due=self._next_due,
                on_failure=self.fail,
            )
        )
        if isinstance(self._client, Pipeline):
            self._spans = self._client.record_into(folder.spans, identity)
        delivery = make_delivery(self._order, setup.worker_id, setup.send, shared=shared)
        # Nothing below fails: from here on greenlets live that the end of the session waits for.
        if setup.sync is not None:
            self._clock_log = ClockLog(folder.clock, identity, message.epoch_monotonic_ns, setup.sync)
        if delivery is not None:
            self._sender = PartSender([recorder, health, self._clock_log, self._spans], delivery)
        self._health, self._requester, self._engine = health, requester, engine
        health.start()
        gevent.spawn(self._run, requester, engine, recorder, health)
        gevent.spawn(self._report)

    def _make_requester(self, clock: RunClock, recorder: Recorder) -> Requester:
        parts = RequestParts(
            endpoint=self._endpoint,
            model=self._order.model,
            requests=self._workload.requests,
            prompts=self._prompts,
            tag=run_tag(self.run_id),
            seed=self._workload.seed,
            target=self._target.redacted,
            mean_gap_ns=mean_gaps_ns(self._schedule),
        )
        return Requester(
            parts=parts,
            clock=clock,
            permit=self._permit,
            client=self._client,
            recorder=recorder,
            live=self._live,
            counter=self._setup.counter,
            checker=self.checker,
            tell_locust=self._setup.tell_locust,
            on_failure=self.fail,
        )

    def lease(self, message: Lease) -> int:
        """Take the table and the lease; return how many entries the table has here."""
        self._lease_ns = time.monotonic_ns()
        if message.members is not None:
            self._permit.changes = tuple(Change(change.from_ns, change.worker_ids) for change in message.members)
        self._permit.valid_until_ns = max(self._permit.valid_until_ns, message.valid_until_ns)
        self._permit.signal()
        return len(self._permit.changes)

    def stop(self, message: Stop) -> None:
        """Send nothing intended from `stop_ns` on; of several stops the one whose drain ends first holds."""
        if self._stop is None or message.stop_ns + message.drain_ns < self._stop.stop_ns + self._stop.drain_ns:
            self._stop = message
        self._permit.stop_at(message.stop_ns)
        if self._engine is not None:
            self._engine.wake()

    def on_ack(self, message: PartAck) -> None:
        """Hear how far the master is with a part."""
        if self._sender is not None:
            self._sender.on_ack(message)

    def cancel_now(self) -> None:
        """End what is in flight."""
        if self._requester is not None:
            self._requester.cancel_all()

    def close(self) -> None:
        """Flush and report, once nothing is left to do; a session that was never armed has nothing to flush.

        Asked again afterwards it reports again: a reconnect may have swallowed the report.
        """
        self._close_asked.set()
        if self._report_sent is not None:
            self._setup.send(self._report_sent)
        if self._engine is None and not self.closed.is_set():
            self._report_end(0)

    def add_block(self, first: int, count: int) -> None:
        """Take leased seqs."""
        self._seqs.add(first, count)

    def step(self, message: Step) -> None:
        """Mark later requests with a new step."""
        if isinstance(self._engine, TokenDispatcher):
            self._engine.step = message.index

    def rate_changed(self) -> None:
        """Follow the tokens' new rate now."""
        if isinstance(self._engine, TokenDispatcher):
            self._engine.wake()

    def leave(self, drain_ns: int) -> None:
        """End this worker's part of the run and wait until it is on disk; called when the process is told to go."""
        if self._clock is None:
            self.close()
            return
        self._setup.send(Leaving(run_id=self.run_id, worker_id=self._setup.worker_id))
        self.stop(Stop(run_id=self.run_id, stop_ns=self._clock.now_ns(), drain_ns=drain_ns))
        self.close()
        self.closed.wait(drain_ns / NS_PER_S + WRITE_LIMIT_S)
        while self._sender is not None and self._sender.finishing:
            self.closed.wait(0.2)  # what is on its way arrives, or the sender gives up

    def fail(self, error: BaseException) -> None:
        """Tell the master, once, that this worker cannot go on."""
        if self._failed:
            return
        self._failed = True
        log.error("run %s failed on this worker", self.run_id, exc_info=error)
        code = error.exit_code if isinstance(error, ServebenchError) else HarnessError.exit_code
        self._setup.send(
            WorkerFault(
                run_id=self.run_id, worker_id=self._setup.worker_id, text=str(error) or repr(error), exit_code=code
            )
        )

    # The session's own greenlets.

    def _run(
        self,
        requester: Requester,
        engine: Engine,
        recorder: Recorder,
        health: HealthMonitor,
    ) -> None:
        try:
            wait_for_all(Greenlet.spawn(engine.run), requester, self._is_drained)
            self._done = True
            self._send_status()
            self._close_asked.wait()
            requester.wait_idle(CANCEL_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - top of a greenlet: the master is told
            self.fail(error)
        try:
            self.checker.close()
            requester.wait_idle(CANCEL_LIMIT_S)  # what still waited for its check becomes a row without one
            self._put_away(recorder, health)
        except Exception as error:  # noqa: BLE001 - the same: what was recorded is closed whatever happened before
            self.fail(error)
        finally:
            self._report_end(sum(part.rows for part in recorder.parts))

    def _put_away(self, recorder: Recorder, health: HealthMonitor) -> None:
        """Bring everything to disk; raises the first failure."""
        health.stop()
        recorder.close()
        failure = recorder.failure or health.failure
        for part in (self._clock_log, self._spans):
            if part is not None:
                part.close()
                failure = failure or part.failure
        if failure is not None:
            raise failure

    def _report_end(self, rows: int) -> None:
        """Close the transport and tell the master; the session is over, also when the master cannot be told."""
        try:
            self._client.close()
            self.checker.close()
            if self._sender is not None:
                self._sender.finish()
                if self._sender.failure is not None:
                    self.fail(self._sender.failure)
            self._report_sent = self._closing_report(rows)
            self._setup.send(self._report_sent)
        finally:
            self.closed.set()

    def _closing_report(self, rows: int) -> Closed:
        live, clock = self._live, self._clock
        last_ns = live.last_end_monotonic_ns
        return Closed(
            run_id=self.run_id,
            worker_id=self._setup.worker_id,
            begun=live.dispatched,
            rows=rows,
            reached=self.reached,
            first_measured_ns=live.first_measured_ns,
            last_end_ns=last_ns - clock.epoch_monotonic_ns if last_ns is not None and clock is not None else None,
        )

    def _is_drained(self) -> bool:
        """Whether what is in flight has had the time that a stop allows it."""
        stop, clock = self._stop, self._clock
        return stop is not None and clock is not None and clock.now_ns() >= stop.stop_ns + stop.drain_ns

    def _report(self) -> None:
        while not self.closed.wait(1.0):
            try:
                self._watch()
                self._send_status()
            except Exception as error:  # noqa: BLE001 - top of a greenlet: the master is told
                self.fail(error)
                return

    def _watch(self) -> None:
        if self._recorder is not None:
            self._recorder.tick(time.monotonic_ns())
        if self._spans is not None:
            self._spans.tick(time.monotonic_ns())
        for part in (self._recorder, self._health, self._clock_log, self._spans):
            if part is not None and part.failure is not None:
                raise part.failure
        if time.monotonic_ns() - self._lease_ns > MASTER_SILENT_NS and self._clock is not None and self._stop is None:
            log.error("no word from the master for %d s: run %s ends here", MASTER_SILENT_NS // NS_PER_S, self.run_id)
            self.stop(Stop(run_id=self.run_id, stop_ns=self._clock.now_ns(), drain_ns=10 * NS_PER_S))
            self.close()

    def _send_status(self) -> None:
        live = self._live
        self._setup.send(
            Status(
                run_id=self.run_id,
                worker_id=self._setup.worker_id,
                done=self._done,
                totals=live.totals(self._requester.inflight if self._requester is not None else 0),
                health=told_health(self._health.last if self._health is not None else None),
                **live.times.take(),
            )
        )

    def _gauges(self) -> HealthGauges:
        lag = self._live.dispatch_lag
        p99, worst = lag.quantiles_ns((0.99, 1.0))
        lag.take()
        reads = self._client.counters.take()
        return HealthGauges(
            inflight=self._requester.inflight if self._requester is not None else 0,
            sent=self._live.sent,
            reads=reads.reads,
            read_delay_p99_ns=None if reads.delay_p99_ns is None else int(reads.delay_p99_ns),
            dispatch_lag_p99_ns=None if p99 is None else int(p99),
            dispatch_lag_max_ns=None if worst is None else int(worst),
        )

    def _ask_for_blocks(self, blocks: int) -> None:
        self._setup.send(NeedSeqs(run_id=self.run_id, worker_id=self._setup.worker_id, blocks=blocks))
