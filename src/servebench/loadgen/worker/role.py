"""Know the worker's side of the plugin: one WorkerSession per run, and the tokens that stand for offered load."""

import logging
import os
import secrets
import socket
import time
from typing import Any

import gevent

from servebench.core.outcomes import Outcome
from servebench.core.records import RequestRecord
from servebench.core.units import NS_PER_MS
from servebench.loadgen.channel import Channel, StrayMessageError
from servebench.loadgen.hub_ticker import HubTicker
from servebench.loadgen.messages import (
    Alive,
    Arm,
    CancelNow,
    ClockPing,
    ClockPong,
    Close,
    Hello,
    Lease,
    PartAck,
    Prepare,
    Ready,
    SeqBlock,
    Step,
    Stop,
    WorkerFault,
)
from servebench.loadgen.runclock import boot_id
from servebench.loadgen.settings import Settings, full_url
from servebench.loadgen.users import LoadToken
from servebench.loadgen.worker.clock_sync import SAME_CLOCK, ClockOffset, ClockSample, ClockSync
from servebench.loadgen.worker.counting import AnswerCounter
from servebench.loadgen.worker.memory import settle_memory
from servebench.loadgen.worker.pipeline import UserCode, user_code
from servebench.loadgen.worker.session import WorkerSession
from servebench.loadgen.worker.setup import WorkerSetup
from servebench.shards.folder import worker_name

log = logging.getLogger(__name__)

FAREWELL_S = 0.3


class WorkerRole:
    """Listens to the master and to Locust on a worker (or in a single process)."""

    def __init__(self, environment: Any, settings: Settings) -> None:  # noqa: ANN401 - Locust is untyped
        self._environment, self._settings = environment, settings
        runner = environment.runner
        self._worker_id: str = runner.client_id
        self._worker = worker_name(max(runner.worker_index, 0), secrets.token_hex(4))
        self._boot_id = boot_id()
        self._channel = Channel(runner, self._fail)
        self._sessions: dict[str, WorkerSession] = {}
        self._ticker = HubTicker()
        self._ticker.start()
        self._counter = AnswerCounter(settings.tokenizer)
        self._tokens = 0
        self._sync = ClockSync(self._ping)
        self._register()

    def _register(self) -> None:
        channel = self._channel
        channel.on(Prepare, self._on_prepare)
        channel.on(ClockPong, self._on_pong)
        channel.on(Arm, lambda m: self._of(m.run_id).arm(m))
        channel.on(Lease, self._on_lease)
        channel.on(SeqBlock, lambda m: self._of(m.run_id).add_block(m.first, m.count))
        channel.on(Step, lambda m: self._of(m.run_id).step(m))
        channel.on(Stop, lambda m: self._of(m.run_id).stop(m))
        channel.on(CancelNow, lambda m: self._of(m.run_id).cancel_now())
        channel.on(Close, lambda m: self._of(m.run_id).close())
        channel.on(PartAck, lambda m: self._of(m.run_id).on_ack(m))

    def _of(self, run_id: str) -> WorkerSession:
        session = self._sessions.get(run_id)
        if session is None:
            msg = f"run {run_id} is not here"
            raise StrayMessageError(msg)
        return session

    def hello(self) -> None:
        """Tell the master that the handlers exist."""
        self._channel.send(
            Hello(
                worker_id=self._worker_id,
                worker=self._worker,
                host=socket.gethostname(),
                pid=os.getpid(),
                boot_id=self._boot_id,
            )
        )

    def change_tokens(self, by: int) -> None:
        """Note that a token user came or went."""
        self._tokens += by
        for session in self._sessions.values():
            session.rate_changed()

    def on_quitting(self) -> None:
        """Write everything before the process ends; blocks the calling greenlet."""
        leaving = [session for session in self._sessions.values() if not session.closed.is_set()]
        for session in leaving:
            session.leave(self._settings.drain_ns)
        if leaving:
            # ZeroMQ sends from a thread of its own, which the end of the process would cut short.
            gevent.sleep(FAREWELL_S)

    def _on_prepare(self, order: Prepare) -> None:
        gevent.spawn(self._prepare, order)

    def _on_lease(self, message: Lease) -> None:
        session = self._of(message.run_id)
        changes = session.lease(message)
        self._channel.send(
            Alive(
                run_id=message.run_id,
                worker_id=self._worker_id,
                changes=changes,
                reached=session.reached,
                armed=session.armed,
            )
        )

    def _on_pong(self, pong: ClockPong) -> None:
        self._sync.on_pong(ClockSample(pong.t0_monotonic_ns, pong.master_monotonic_ns, time.monotonic_ns()))

    def _ping(self, now_ns: int) -> None:
        self._channel.send(ClockPing(worker_id=self._worker_id, t0_monotonic_ns=now_ns))

    def _prepare(self, order: Prepare) -> None:
        """Make a session and report; a greenlet of its own, since planning takes time."""
        try:
            offset = self._clock_offset(order.master_boot_id)
            with self._ticker.paused():
                session = WorkerSession(order, self._setup(order, offset))
                session.checker.open()
                going = {i: s for i, s in self._sessions.items() if not s.closed.is_set()}
                self._sessions = going | {order.run_id: session}
                settle_memory()  # takes 0.1 s, which a run that is armed has not
            self._channel.send(
                Ready(
                    run_id=order.run_id,
                    worker_id=self._worker_id,
                    schedule_hash=session.schedule_hash,
                    offset_ns=offset.offset_ns,
                    clock_bound_ns=offset.bound_ns,
                )
            )
        except Exception as error:
            log.exception("run %s cannot be prepared", order.run_id)
            self._channel.send(
                WorkerFault(
                    run_id=order.run_id,
                    worker_id=self._worker_id,
                    text=str(error) or repr(error),
                    exit_code=getattr(error, "exit_code", 4),
                )
            )

    def _setup(self, order: Prepare, offset: ClockOffset) -> WorkerSetup:
        return WorkerSetup(
            worker_id=self._worker_id,
            worker=self._worker,
            boot_id=self._boot_id,
            offset_ns=offset.offset_ns,
            sync=self._sync if order.master_boot_id != self._boot_id else None,
            out=self._settings.out,
            url=full_url(order.url, self._settings.url),
            secrets=self._settings.secrets,
            send=self._channel.send,
            tell_locust=self._tell_locust,
            token_rate_per_s=self._token_rate_per_s,
            counter=self._counter,
            code=self._code(),
            ticker=self._ticker,
        )

    def _code(self) -> UserCode | None:
        path = self._settings.locustfile
        if path is None:
            return None
        users = [user for user in self._environment.user_classes if user is not LoadToken]
        return user_code(path, self._environment, users)

    def _token_rate_per_s(self) -> float:
        return self._tokens * float(getattr(self._environment.parsed_options, "rate_per_user", 1.0))

    def _clock_offset(self, master_boot_id: str) -> ClockOffset:
        """Return this clock's offset to the master's; zero where it is the same clock."""
        if master_boot_id == self._boot_id:
            return SAME_CLOCK
        self._sync.start()
        return self._sync.settle()

    def _tell_locust(self, record: RequestRecord, epoch_monotonic_ns: int) -> None:
        """Fire Locust's request event once per request: end-to-end from intended, output tokens as length."""
        answer, ask = record.answer, record.ask
        begun_ns = ask.intended_ns + epoch_monotonic_ns if ask.intended_ns is not None else record.stamps.dispatched_ns
        failed = None
        if answer.outcome is not Outcome.OK:
            failed = RequestFailed(answer.error_class or answer.outcome.value)
        self._environment.events.request.fire(
            request_type="POST",
            name=ask.phase,
            response_time=(answer.end_ns - begun_ns) / NS_PER_MS if begun_ns is not None else None,
            response_length=answer.output_tokens or 0,
            exception=failed,
            context={},
        )

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, StrayMessageError):
            log.debug("stray message: %s", error)
            return
        log.error("message handler failed", exc_info=error)
        for session in self._sessions.values():
            if not session.closed.is_set():  # an earlier run is over, whatever a message of this one does
                session.fail(error)


class RequestFailed(Exception):  # noqa: N818 - the word Locust's failure table shows
    """A request that did not succeed, by its class: few distinct texts, so Locust's table stays small."""
