"""A message that cannot be handled ends the run that it is about, and no other."""

from collections.abc import Iterator
from pathlib import Path

import gevent
import msgspec
import pytest
from locust.env import Environment
from locust.rpc import Message

from servebench.loadgen.channel import wire_name
from servebench.loadgen.master.role import MasterRole
from servebench.loadgen.messages import Health as WorkerHealth
from servebench.loadgen.messages import Hello, Status, Totals
from servebench.loadgen.settings import Settings

LIMIT_S = 30


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """Give a single process of Locust with the form's options."""
    monkeypatch.setenv("SERVEBENCH_OUT", str(tmp_path / "runs"))
    monkeypatch.setenv("SERVEBENCH_MODEL", "m")
    made = Environment(user_classes=[], host="http://127.0.0.1:9")
    runner = made.create_local_runner()
    made.web_ui = object()  # type: ignore[assignment] # a page, so that the end of a run does not end the process
    yield made
    runner.quit()


def test_a_bad_message_of_an_older_run_leaves_the_current_one_alone(environment: Environment) -> None:
    role = MasterRole(environment, Settings.from_environment())
    runner = environment.runner
    assert runner is not None

    def hear(message: msgspec.Struct) -> None:
        handler, _ = runner.custom_messages[wire_name(type(message))]
        handler(environment=environment, msg=Message(wire_name(type(message)), msgspec.to_builtins(message), "w"))

    hear(Hello(worker_id="w", worker="w0-00000001", host="h", pid=1, boot_id="b"))
    role.on_test_start()
    older = role._current
    role.on_test_start()
    newer = role._current
    assert older is not None
    assert newer is not None
    assert older is not newer
    older._chronicle.view = None  # type: ignore[assignment] # a fault of ours, in that run only
    health = WorkerHealth()
    hear(
        Status(
            run_id=older.run_id,
            worker_id="w",
            done=False,
            totals=Totals(),
            ttft={},
            tpot={},
            chunk_gap={},
            health=health,
        )
    )
    with gevent.Timeout(LIMIT_S):
        older.finished.wait()
    assert older.exit_code == 4
    assert not newer.finished.is_set()
    newer.request_stop("user")
    with gevent.Timeout(LIMIT_S):
        newer.finished.wait()
    assert newer.exit_code == 0
