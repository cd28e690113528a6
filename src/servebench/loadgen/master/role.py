"""Know the master's side of the plugin: one Coordinator per run, started and stopped by what Locust does."""

import datetime
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

import gevent
from locust.exception import StopTest
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, MasterRunner

from servebench import __version__
from servebench.core.errors import HarnessError, ServebenchError
from servebench.core.outcomes import ExitCode
from servebench.core.target import parse_target, shown_argument
from servebench.core.units import NS_PER_S
from servebench.loadgen.by_hand import refuse_by_hand
from servebench.loadgen.channel import Channel, GarbledMessageError, StrayMessageError
from servebench.loadgen.desk.choices import as_planned, chosen_workload
from servebench.loadgen.desk.live_board import LiveBoard
from servebench.loadgen.desk.prometheus_export import Meters
from servebench.loadgen.master.chronicle import Chronicle
from servebench.loadgen.master.coordinator import Coordinator
from servebench.loadgen.master.interactive import interactive_workload
from servebench.loadgen.master.journal import Journal
from servebench.loadgen.master.models import only_model
from servebench.loadgen.master.orders import Order
from servebench.loadgen.master.planning import cache_notes, measured_requests
from servebench.loadgen.master.planning import planned as plan_of
from servebench.loadgen.master.runbook import Runbook
from servebench.loadgen.master.stop_rules import StopWatch
from servebench.loadgen.messages import (
    Alive,
    ClockPing,
    ClockPong,
    Closed,
    Hello,
    Leaving,
    NeedSeqs,
    PartPiece,
    Prepare,
    Ready,
    Status,
    WorkerFault,
)
from servebench.loadgen.progress import ProgressPipe
from servebench.loadgen.runclock import boot_id
from servebench.loadgen.scrape.pages import places_to_ask
from servebench.loadgen.settings import Settings, full_url
from servebench.shards.folder import create_run_folder, new_run_id, new_token
from servebench.shards.manifest import Manifest, write_manifest
from servebench.shards.reader import file_sha256
from servebench.shards.schema import SCHEMA_VERSION
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.codec import decode_workload, encode_workload, workload_hash
from servebench.workload.model import Workload
from servebench.workload.schedule import Schedule

log = logging.getLogger(__name__)

RunMessage = TypeVar("RunMessage", Ready, Alive, Status, NeedSeqs, Leaving, Closed, WorkerFault, PartPiece)


CLOSE_PATIENCE_S = 40.0
REPORT_PATIENCE_S = 120.0
GIVE_UP_DRAIN_NS = 5 * NS_PER_S
"""What is open when a run is given up may end in this time; all that ended before it had failed."""


class MasterRole:
    """Listens to Locust on the master (or in a single process) and runs one Coordinator per test."""

    def __init__(self, environment: Any, settings: Settings) -> None:  # noqa: ANN401 - Locust is untyped
        self._environment, self._settings = environment, settings
        self._channel = Channel(environment.runner, self._fail)
        self._pipe = ProgressPipe(settings.progress_fd)
        self.board = LiveBoard()
        self.meters = Meters()
        self._helloed: dict[str, Hello] = {}
        self._runs: dict[str, Coordinator] = {}
        self._followers: list[gevent.Greenlet[..., None]] = []
        self._current: Coordinator | None = None
        self._chronicle: Chronicle | None = None
        self._interrupts = 0
        self._register()

    @property
    def headless(self) -> bool:
        """Whether the process ends with its run."""
        return self._environment.web_ui is None

    def _register(self) -> None:
        channel = self._channel
        channel.on(Hello, self._on_hello)
        channel.on(ClockPing, self._on_ping)
        self._hear(Ready, Coordinator.on_ready)
        self._hear(Alive, Coordinator.on_alive)
        self._hear(Status, Coordinator.on_status)
        self._hear(NeedSeqs, Coordinator.on_need)
        self._hear(Leaving, Coordinator.on_leaving)
        self._hear(Closed, Coordinator.on_closed)
        self._hear(WorkerFault, Coordinator.on_fault)
        self._hear(PartPiece, Coordinator.on_piece)

    def _hear(self, kind: type[RunMessage], handle: Callable[[Coordinator, RunMessage], None]) -> None:
        """Hand messages of a run to it; one that cannot be handled ends that run, which may not be the current one."""

        def handed(message: RunMessage) -> None:
            run = self._of(message.run_id)
            try:
                handle(run, message)
            except StrayMessageError:
                raise
            except Exception as error:  # noqa: BLE001 - top of a message handler: its run ends and says why
                run.fail(error)

        self._channel.on(kind, handed)

    def _of(self, run_id: str) -> Coordinator:
        run = self._runs.get(run_id)
        if run is None:
            msg = f"run {run_id} is not known here"
            raise StrayMessageError(msg)
        return run

    def _is_present(self, worker_id: str) -> bool:
        """Whether Locust still counts this worker as connected; a single process is its own worker."""
        runner = self._environment.runner
        if not isinstance(runner, MasterRunner):
            return True
        node = runner.clients.get(worker_id)
        return node is not None and node.state != STATE_MISSING

    def _on_hello(self, hello: Hello) -> None:
        if not self._is_present(hello.worker_id):
            msg = f"{hello.worker_id!r} says hello and is no worker"
            raise StrayMessageError(msg)
        self._helloed[hello.worker_id] = hello
        if self._current is not None and not self._current.finished.is_set():
            self._current.welcome(hello)

    def _on_ping(self, ping: ClockPing) -> None:

        now_ns = time.monotonic_ns()
        self._channel.send(ClockPong(t0_monotonic_ns=ping.t0_monotonic_ns, master_monotonic_ns=now_ns), ping.worker_id)

    def mark(self, text: str) -> bool:
        """Write a word of the operator's into the events of the run that goes on; False when none does."""
        run = self._current
        if run is None or run.finished.is_set():
            return False
        run.mark(text)
        return True

    # Locust's events.

    def on_test_start(self) -> None:
        """Begin a run; called in the greenlet that starts the test, before users are spawned."""
        if self.headless and self._interrupts:
            raise StopTest("told to go before the run began")
        try:
            self._current = self._begin()
        except Exception as error:  # noqa: BLE001 - Locust would forget it and go on without a run, headless for ever
            self._refuse(error)

    def on_worker_connect(self, worker_id: str) -> None:
        """Let a worker that Locust has back take part in the run under way."""
        hello = self._helloed.get(worker_id)
        if hello is not None and self._current is not None and not self._current.finished.is_set():
            self._current.welcome(hello)

    def on_test_stopping(self) -> None:
        """End the current run because the operator pressed Stop, or a time limit did."""
        told = self._interrupts > 0  # to go, while the run began
        if self._current is not None:
            code = ExitCode.INTERRUPTED if told else ExitCode.OK
            self._current.request_stop("finished" if self.headless and not told else "user", code)

    def on_quitting(self) -> None:
        """Wait until every run is on disk and reported; the process ends after this. Blocks the calling greenlet."""
        self._interrupts += 1  # whatever ends the process has asked once: the next Ctrl-C cancels
        for run in list(self._runs.values()):
            if not run.finished.is_set():
                run.request_stop("user", ExitCode.INTERRUPTED)
                run.finished.wait(self._settings.drain_ns / NS_PER_S + CLOSE_PATIENCE_S)
        gevent.joinall(self._followers, timeout=REPORT_PATIENCE_S)
        if self._current is not None:
            self._environment.process_exit_code = self._current.exit_code
        elif self._environment.process_exit_code is None and self.headless:
            self._environment.process_exit_code = ExitCode.INTERRUPTED  # told to go before a run began

    def on_interrupt(self) -> None:
        """Handle Ctrl-C: the first stops and drains, the second cancels, further ones say that files are written."""
        self._interrupts += 1
        run = self._current
        if run is None and self.headless:
            # Locust's main loop waits for workers and sees no end of its runner: it has to be ended from within.
            gevent.spawn(self._give_up_waiting)
        elif run is None or run.finished.is_set():
            self._environment.process_exit_code = ExitCode.INTERRUPTED
            self._quit()
        elif self._interrupts == 1:
            run.request_stop("user", ExitCode.INTERRUPTED)
        elif self._interrupts == 2:
            run.cancel_now()
        else:
            self._pipe.event("stop", "files are being written; this takes a moment")

    def _begin(self) -> Coordinator:
        settings = self._settings
        workload, planned = self._workload()
        url = self._url()
        target = parse_target(url)
        made_by = None if settings.locustfile is None else file_sha256(settings.locustfile)
        model = settings.model or workload.target.model
        if model is None and made_by is None:
            model = only_model(target, workload, settings.secrets)
        if not planned:
            refuse_by_hand(workload)
        schedule, reuse = plan_of(workload) if planned and workload.closed is None else (None, {})
        now = datetime.datetime.now(datetime.UTC)
        run_id = new_run_id(now, settings.run_name or workload.name, new_token())
        folder = create_run_folder(settings.out, run_id)
        closed = workload.closed if planned else None
        manifest = self._manifest(run_id, now, workload, schedule, target.redacted)
        manifest.plan_reuse = reuse
        if settings.locustfile is not None:
            folder.spans.mkdir()
            manifest.observed["locustfile"] = {"name": settings.locustfile.name, "sha256": made_by}
        if closed is not None:
            manifest.engine = "closed"
        write_manifest(folder.root, manifest)
        prepare = Prepare(
            run_id=run_id,
            engine=manifest.engine,
            workload=encode_workload(workload).decode(),
            url=target.redacted,
            model=model,
            master_boot_id=manifest.boot_id,
            collect=settings.collect,
            locustfile=made_by,
        )
        order = Order(
            prepare=prepare,
            schedule_hash=manifest.schedule_hash,
            duration_ns=workload.duration_ns if schedule is not None else closed.duration_ns if closed else None,
            drain_ns=settings.drain_ns,
            total=closed.total if closed else None,
        )
        runbook = Runbook(folder.root, manifest, schedule, closed)
        chronicle = self._open(run_id, order.duration_ns, runbook, Journal(folder.events))
        self.board.begin(run_id, workload.objectives)
        chronicle.ask_engines(places_to_ask(settings.metrics_urls, target, workload.target.endpoint))
        run = Coordinator(order, self._channel, chronicle, self._is_present)
        self._let_end(run, chronicle, workload, measured_requests(schedule, closed))
        self._set_going(run_id, run)
        log.info("run %s began in %s", run_id, folder.root)
        return run

    def _worker_name(self, worker_id: str) -> str:
        """Return the name in the files of a worker, Locust's id of one that never said hello."""
        hello = self._helloed.get(worker_id)
        return hello.worker if hello is not None else worker_id

    def _let_end(self, run: Coordinator, chronicle: Chronicle, workload: Workload, planned: int | None) -> None:
        """Say what ends a run before its time: that nothing goes well, and the rules of its workload."""
        end = partial(run.request_stop, drain_ns=min(self._settings.drain_ns, GIVE_UP_DRAIN_NS))
        if not self._settings.keep_going and not run.by_hand:  # by hand, the operator sees it and decides
            chronicle.give_up = end
            seen = self._settings.locustfile is None  # the tokens of a locustfile's answers are not
            chronicle.streams = seen and workload.requests.stream and ENDPOINTS[workload.target.endpoint].streams
        if workload.stop is not None:
            chronicle.watch, chronicle.end = StopWatch(workload.stop, workload.objectives, planned), end

    def _set_going(self, run_id: str, run: Coordinator) -> None:
        """Let the workers that are here take part, and follow the run to its end."""
        self._runs = {i: other for i, other in self._runs.items() if not other.finished.is_set()} | {run_id: run}
        self._followers = [follower for follower in self._followers if not follower.ready()]
        for worker_id, hello in self._helloed.items():
            if self._is_present(worker_id):
                run.welcome(hello)
        gevent.spawn(run.run)
        self._followers.append(gevent.spawn(self._follow, run))

    def _open(self, run_id: str, duration_ns: int | None, runbook: Runbook, journal: Journal) -> Chronicle:
        """Begin to tell of a run, to its folder and to whoever watches."""
        chronicle = Chronicle(run_id, duration_ns, runbook, journal, self._pipe, self.board, self.meters)
        if self._chronicle is not None:
            self._chronicle.board = None  # a run that still drains is no longer the one that is watched
        self._chronicle = chronicle
        self.meters.begin(chronicle.view, self._worker_name)
        return chronicle

    def _manifest(
        self, run_id: str, now: datetime.datetime, workload: Workload, schedule: Schedule | None, target_url: str
    ) -> Manifest:
        given = self._settings.command
        command = json.loads(given) if given else [shown_argument(argument) for argument in sys.argv]
        return Manifest(
            run_id=run_id,
            schema_version=SCHEMA_VERSION,
            servebench_version=__version__,
            created_utc=now.isoformat(timespec="milliseconds"),
            name=workload.name,
            state="running",
            engine="plan" if schedule is not None else "tokens",
            workload=json.loads(encode_workload(workload)),
            workload_hash=workload_hash(workload),
            seed=workload.seed,
            schedule_hash=schedule.schedule_hash if schedule is not None else None,
            target_url=target_url,
            declared=dict(workload.target.declared),
            observed={"command": command, "collect": self._settings.collect, **cache_notes(workload, run_id)},
            epoch_monotonic_ns=0,
            epoch_unix_ns=0,
            boot_id=boot_id(),
        )

    def _workload(self) -> tuple[Workload, bool]:
        """Return the workload and whether its own schedule drives the run (headless) or a person does (web UI)."""
        path, options = self._settings.workload_path, self._environment.parsed_options
        given = decode_workload(path.read_bytes()) if path is not None else None
        workload = chosen_workload(options, given or interactive_workload())
        return workload, as_planned(options, workload) or (self.headless and given is not None)

    def _url(self) -> str:
        """Return where to send: the address of the form or of --host; the full one if it differs by secrets only."""
        return full_url(self._environment.host, self._settings.url)

    def _follow(self, run: Coordinator) -> None:
        """Feed the operator's rate to the run while it lives, then end the process or make the report."""
        while not run.finished.wait(0.2):
            if run.by_hand:
                self._offer(run)
        going = self._environment.runner.state in {STATE_SPAWNING, STATE_RUNNING}
        if going and run is self._current and not self.headless:  # a run that drained may end in the midst of the next
            self._environment.runner.stop()  # the plan came to its end, Locust knows nothing of it
        if not self.headless or self._settings.progress_fd is None:
            self._report(run)  # a headless run's command, behind the pipe, does it itself
        if self.headless or self._interrupts:
            self._environment.process_exit_code = run.exit_code
            self._quit()

    def _offer(self, run: Coordinator) -> None:
        options = self._environment.parsed_options
        users = self._environment.runner.target_user_count or 0
        rate = getattr(options, "rate_per_user", 1.0)
        run.offered(users * float(rate))

    def _report(self, run: Coordinator) -> None:
        """Merge and report in a process of its own, so that the master's hub does not stall."""
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "servebench.cli", "merge", str(self._settings.out / run.run_id)],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode not in {ExitCode.OK, ExitCode.MISSED, ExitCode.INVALID, ExitCode.INTERRUPTED}:
            log.error("report of %s failed: %s", run.run_id, done.stderr.strip())
        else:
            log.info("report of %s: %s", run.run_id, self._settings.out / run.run_id / "report.html")

    def _refuse(self, error: Exception) -> None:
        known = isinstance(error, ServebenchError | OSError)
        log.error("%s", error, exc_info=None if known else error)
        self._pipe.event("fault", str(error) or repr(error))
        code = error.exit_code if isinstance(error, ServebenchError) else HarnessError.exit_code
        if self.headless:
            self._environment.process_exit_code = code
            self._quit()
        raise StopTest(str(error))

    def _fail(self, error: BaseException) -> None:
        """End the current run because of a message that belongs to none."""
        if isinstance(error, StrayMessageError | GarbledMessageError):
            log.warning("message left out: %s", error)
            return
        if self._current is not None:
            self._current.fail(error)
        else:
            log.error("message handler failed", exc_info=error)

    def _quit(self) -> None:
        gevent.spawn(self._end_process)

    def _give_up_waiting(self) -> NoReturn:
        """End the process before its first run; gevent hands the exit on to the main greenlet."""
        self._environment.runner.quit()
        sys.exit(ExitCode.INTERRUPTED)

    def _end_process(self) -> None:
        self._environment.runner.quit()
        if self._environment.web_ui is not None:
            self._environment.web_ui.stop()
