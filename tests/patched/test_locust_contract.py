"""What servebench relies on in Locust, private parts included: each test fails when Locust changes beneath it."""

import inspect
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import locust.main
import pytest
from locust import argument_parser, runners, stats
from locust.env import Environment
from locust.runners import LocalRunner, MasterRunner, WorkerRunner

from servebench.loadgen import compat
from servebench.loadgen.plugin import await_workers

ROOT = Path(__file__).parents[2]


def test_the_spawn_handler_still_asks_for_the_default_arguments_by_that_name() -> None:
    assert "default_args_dict()" in inspect.getsource(WorkerRunner.handle_message)


def test_the_default_arguments_are_built_once() -> None:
    compat.apply()
    assert argument_parser.default_args_dict() is argument_parser.default_args_dict()


def test_applying_the_patches_twice_changes_nothing() -> None:
    compat.apply()
    memoised = argument_parser.default_args_dict
    compat.apply()
    assert argument_parser.default_args_dict is memoised


def test_workers_read_the_report_interval_at_each_turn() -> None:
    compat.apply()
    assert runners.WORKER_REPORT_INTERVAL == 1.0
    assert "WORKER_REPORT_INTERVAL" in inspect.getsource(WorkerRunner.stats_reporter)


def test_stopping_walks_no_stack_and_still_stops(caplog: pytest.LogCaptureFixture) -> None:
    used = inspect.getsource(runners).count("inspect.")
    assert used == inspect.getsource(runners.Runner.stop).count("inspect.") == 2
    compat.apply()
    runner = Environment(user_classes=[]).create_local_runner()
    with caplog.at_level("DEBUG", logger="locust.runners"):
        runner.stop()
    assert runner.state == runners.STATE_STOPPED
    assert "couldn't determine where stop() was called from" in caplog.text


def test_response_times_go_through_the_patched_bucket_function() -> None:
    compat.apply()
    entry = stats.RequestStats().get("steps", "POST")
    entry.log(1234.56, 10)  # type: ignore[arg-type] # Locust gets floats from every user class
    assert list(entry.response_times) == [1230.0]


@pytest.mark.parametrize(("ms", "bucket"), [(0.9234, 0.923), (1.05, 1.05), (1054.9, 1050), (12_449, 12_400), (0, 0)])
def test_a_bucket_keeps_three_significant_digits(ms: float, bucket: float) -> None:
    assert compat.three_digits(ms) == pytest.approx(bucket)


@pytest.mark.parametrize("runner", [LocalRunner, MasterRunner, WorkerRunner])
def test_every_runner_sends_and_registers_messages_the_same_way(runner: type) -> None:
    assert {"msg_type", "data", "client_id"} <= set(inspect.signature(runner.send_message).parameters)  # type: ignore[attr-defined]
    assert {"msg_type", "listener"} <= set(inspect.signature(runner.register_message).parameters)  # type: ignore[attr-defined]


def test_the_master_announces_a_start_before_it_spawns_users() -> None:
    source = inspect.getsource(MasterRunner.start)
    assert source.index("test_start.fire") < source.index("new_dispatch")


def test_locust_ends_a_process_through_the_quitting_event_and_the_exit_code_set_there() -> None:
    from locust import main

    source = inspect.getsource(main.main)
    assert source.index("quitting.fire") < source.index("environment.process_exit_code is not None")


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (("--stop-timeout", "30"), {}, "--stop-timeout 30: at most 10 s"),
        ((), {"SERVEBENCH_DRAIN_S": "soon"}, 'SERVEBENCH_DRAIN_S "soon" is no number of seconds'),
    ],
)
def test_input_that_would_spoil_a_run_ends_the_process_with_a_reason(
    arguments: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "locustfiles" / "replay.py"), "--headless"]
    done = subprocess.run(
        [*command, "--host", "http://127.0.0.1:9", "-u", "1", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_locust_still_spreads_users_inside_the_greenlet_that_reads_messages() -> None:
    compat.apply()
    listener = inspect.getsource(inspect.unwrap(MasterRunner.client_listener))
    handler = inspect.getsource(MasterRunner.handle_message)
    assert "self.handle_message(" in listener
    assert "self.start(" in handler
    assert "self.client_listener)" in inspect.getsource(MasterRunner.__init__)


def test_a_start_from_the_reading_greenlet_runs_beside_it_and_any_other_at_once() -> None:
    compat.apply()
    spawned: list[Any] = []
    pool = SimpleNamespace(spawn=lambda *arguments: spawned.append(arguments))
    runner: Any = SimpleNamespace(greenlet=pool, _servebench_listener=gevent.getcurrent())
    MasterRunner.start(runner, 3, 1)
    ((start, *arguments),) = spawned
    assert start is inspect.unwrap(MasterRunner.start)
    assert arguments == [runner, 3, 1]
    runner._servebench_listener = None
    with pytest.raises(AttributeError):
        MasterRunner.start(runner, 3, 1)  # Locust's own, which wants more of a runner
    assert len(spawned) == 1


def test_locust_ends_a_test_without_workers_from_the_greenlet_that_counts_heartbeats() -> None:
    compat.apply()
    beat = inspect.getsource(inspect.unwrap(MasterRunner.heartbeat_worker))
    assert beat.count(" self.stop()\n") == 1
    assert "if self.worker_count <= 0:" in beat[: beat.index(" self.stop()\n")]
    assert "self.heartbeat_worker)" in inspect.getsource(MasterRunner)


def test_a_stop_from_the_heartbeat_greenlet_does_nothing_and_any_other_is_locusts_own() -> None:
    compat.apply()
    runner: Any = SimpleNamespace(_servebench_heart=gevent.getcurrent())
    MasterRunner.stop(runner)
    runner._servebench_heart = None
    with pytest.raises(AttributeError):
        MasterRunner.stop(runner)  # Locust's own, which wants more of a runner


def test_locusts_runners_compare_times_of_their_own_only_so_a_monotonic_clock_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = inspect.getsource(runners)
    assert set(re.findall(r"\btime\.\w+", source)) == {"time.time"}
    compat.apply()
    clock: Any = vars(runners)["time"]
    before = clock.time()
    monkeypatch.setattr(time, "time", lambda: 0.0)  # the wall clock is set back by decades
    assert clock.time() >= before


def test_locust_itself_looks_for_workers_once_a_second_after_the_init_event() -> None:
    source = inspect.getsource(locust.main.main)
    init = source.index("environment.events.init.fire(")
    looking = source.index("while len(runner.clients.ready) < options.expect_workers:")
    assert init < looking
    assert "time.sleep(1)" in source[looking : looking + 1500]


def test_the_wait_for_workers_ends_when_the_last_is_ready_and_gives_up_after_its_patience() -> None:
    clients = SimpleNamespace(ready=["a"])
    arriving = gevent.spawn_later(0.05, clients.ready.append, "b")
    with gevent.Timeout(30):
        await_workers(clients, 2, patience_s=3600)
    assert arriving.ready()
    assert clients.ready == ["a", "b"]
    with gevent.Timeout(30):
        await_workers(clients, 3, patience_s=0.05)
    assert clients.ready == ["a", "b"]
