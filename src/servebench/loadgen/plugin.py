"""Know which of Locust's events servebench listens to, and which role each process plays.

What only a master needs is imported there: web page, scraper and exporter would cost each worker 0.1 s of CPU.
Locust logs and forgets what a listener raises: those here catch, so that nothing is lost without a word.
"""

import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import gevent
from locust import events
from locust.runners import LocalRunner, MasterRunner, WorkerRunner

from servebench.core.errors import InputError
from servebench.loadgen import compat
from servebench.loadgen.options import add_options
from servebench.loadgen.settings import Settings
from servebench.loadgen.trim import keep_trimming
from servebench.loadgen.users import LoadToken
from servebench.loadgen.worker.role import WorkerRole

if TYPE_CHECKING:
    from servebench.loadgen.master.role import MasterRole

log = logging.getLogger(__name__)

MAX_STOP_TIMEOUT_S = 10.0
AWAIT_WORKERS_S = 4.0
"""Local workers are ready in less; Locust says after 5 s of its own for how many it waits."""
LOOK_EVERY_S = 0.01


def refuse_long_stop(stop_timeout_s: float | None) -> None:
    """Raise InputError for a --stop-timeout that would cut workers off.

    While Locust waits that long its workers hear nothing, and at 60 s they take the master for dead and quit. Requests
    in flight do not need it: servebench drains them itself.
    """
    if stop_timeout_s and stop_timeout_s > MAX_STOP_TIMEOUT_S:
        msg = (
            f"--stop-timeout {stop_timeout_s:g}: at most {MAX_STOP_TIMEOUT_S:g} s, since Locust's workers hear nothing "
            "meanwhile; to let requests finish use --drain, or SERVEBENCH_DRAIN_S"
        )
        raise InputError(msg)


class Plugin:
    """The roles of this process; Locust's `init` event fills them in."""

    def __init__(self) -> None:
        self._master: MasterRole | None = None
        self._worker: WorkerRole | None = None

    def install(self) -> None:
        """Patch Locust and listen; called once by the locustfile."""
        compat.apply()
        events.init_command_line_parser.add_listener(add_options)
        events.init.add_listener(self._on_init)
        events.test_start.add_listener(self._on_test_start)
        events.test_stopping.add_listener(self._on_test_stopping)
        events.worker_connect.add_listener(self._on_worker_connect)
        events.spawning_complete.add_listener(self._on_spawning_complete)
        events.quitting.add_listener(self._on_quitting)

    def _on_init(self, environment: Any, **_: Any) -> None:  # noqa: ANN401 - Locust's signature
        try:
            settings = Settings.from_environment()
            refuse_long_stop(environment.stop_timeout)
            if isinstance(environment.runner, MasterRunner | LocalRunner):
                self._master = _begin_master(environment, settings)
        except InputError as error:
            # Locust turns an exception here into exit code 1 and a traceback.
            log.error("%s", error)  # noqa: TRY400
            sys.exit(error.exit_code)
        gevent.spawn(keep_trimming, environment.stats)
        if isinstance(environment.runner, WorkerRunner | LocalRunner):
            self._worker = WorkerRole(environment, settings)
            LoadToken.on_change = staticmethod(self._worker.change_tokens)
            self._worker.hello()
        if isinstance(environment.runner, WorkerRunner):
            # As an exception it would end whatever greenlet just runs, maybe that of a request; Locust answers SIGTERM.
            gevent.signal_handler(signal.SIGINT, os.kill, os.getpid(), signal.SIGTERM)

    def _on_test_start(self, environment: Any, **_: Any) -> None:  # noqa: ANN401 - Locust's signature
        if self._master is not None:
            self._master.on_test_start()

    def _on_worker_connect(self, client_id: str, **_: Any) -> None:  # noqa: ANN401 - Locust's signature
        if self._master is not None:
            self._master.on_worker_connect(client_id)

    def _on_test_stopping(self, environment: Any, **_: Any) -> None:  # noqa: ANN401 - Locust's signature
        if self._master is not None:
            self._master.on_test_stopping()

    def _on_spawning_complete(self, user_count: int, **_: Any) -> None:  # noqa: ANN401 - Locust's signature
        if self._worker is not None:
            self._worker.change_tokens(0)

    def _on_quitting(self, environment: Any, **_: Any) -> None:  # noqa: ANN401 - Locust's signature
        if self._master is not None:
            self._master.on_quitting()
        elif self._worker is not None:
            self._worker.on_quitting()


def _begin_master(environment: Any, settings: Settings) -> "MasterRole":  # noqa: ANN401 - Locust is untyped
    """Return the role of a master that answers; raises InputError for settings that only a master has."""
    from servebench.loadgen.desk.prometheus_export import serve
    from servebench.loadgen.desk.web import WebDesk
    from servebench.loadgen.desk.web_login import install_login, read_login
    from servebench.loadgen.master.role import MasterRole

    web = environment.web_ui
    login = read_login(os.environ) if web is not None and web.web_login else None
    master = MasterRole(environment, settings)
    serve(master.meters, settings.metrics_listen)
    if web is not None:
        if login is not None:
            install_login(web, login)
        WebDesk(environment, master.board, settings.out, master.mark).install()
    gevent.signal_handler(signal.SIGINT, master.on_interrupt)
    if web is None and isinstance(environment.runner, MasterRunner):
        await_workers(environment.runner.clients, environment.parsed_options.expect_workers)
    return master


def await_workers(clients: Any, expected: int, patience_s: float = AWAIT_WORKERS_S) -> None:  # noqa: ANN401 - Locust's
    """Return as soon as `expected` workers are ready, or after `patience_s`; blocks the calling greenlet only.

    Locust looks once a second, which a run of local workers would wait for; it goes on looking where this gives up.
    """
    until_s = time.monotonic() + patience_s
    while len(clients.ready) < expected and time.monotonic() < until_s:
        gevent.sleep(LOOK_EVERY_S)
