"""How children are started, stopped and ended; the children here are small scripts that speak the master's protocol."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from servebench.cli.processes import Child, Spawn, end, start, tail
from servebench.cli.status import Status
from servebench.cli.stops import Stops
from servebench.cli.watch import Cluster, watch
from servebench.core.errors import HarnessError, InputError

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
READY = "import sys, signal, time\nprint('ready', flush=True)\n"


class Heard:
    """A display that keeps what it was told."""

    def __init__(self) -> None:
        self.statuses: list[Status] = []
        self.events: list[str] = []

    def update(self, status: Status) -> None:
        """Keep a status."""
        self.statuses.append(status)

    def event(self, text: str) -> None:
        """Keep an event."""
        self.events.append(text)

    def tick(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Leave nothing behind."""


def _child(folder: Path, name: str, code: str, pass_fds: tuple[int, ...] = ()) -> Child:
    return start(
        Spawn(
            name=name,
            command=[sys.executable, "-u", "-c", code, *map(str, pass_fds)],
            environment=dict(os.environ),
            folder=folder,
            log=folder / f"{name}.log",
            pass_fds=pass_fds,
        )
    )


def _until(condition: object, seconds: float = 20.0) -> None:
    """Wait until `condition()` holds; fail after `seconds`."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def _ready(child: Child) -> None:
    _until(lambda: "ready" in tail(child.log))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator["Making"]:
    made = Making(tmp_path)
    yield made
    made.close()


class Making:
    """Builds a cluster of scripted children and ends them after the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: Cluster | None = None

    def make(self, master: str, workers: tuple[str, ...] = ()) -> Cluster:
        """Start the scripts; the master finds the pipe's number in sys.argv[1]."""
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        head = "import sys, os, json, signal, time\nfd = int(sys.argv[1])\n"
        say = "def say(**line): os.write(fd, json.dumps(line).encode() + b'\\n')\n"
        process = _child(self._folder, "master", head + say + master, (write_fd,))
        os.close(write_fd)
        others = [_child(self._folder, f"worker {n}", code) for n, code in enumerate(workers, 1)]
        self.made = Cluster(scratch=self._folder, progress_fd=read_fd, master=process, workers=others)
        return self.made

    def close(self) -> None:
        """End what still runs."""
        if self.made is not None:
            self.made.close(patience_s=0)


def test_a_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    child = _child(tmp_path, "c", READY + "time.sleep(60)")
    try:
        assert os.getsid(child.process.pid) == child.process.pid != os.getsid(0)
    finally:
        end([child])
    assert child.exit_code == -signal.SIGTERM


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = _child(
        tmp_path, "c", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY + "time.sleep(60)"
    )
    _ready(child)
    end([child], grace_s=0.2)
    assert child.exit_code == -signal.SIGKILL


def test_a_child_that_goes_by_itself_is_left_to_it(tmp_path: Path) -> None:
    child = _child(tmp_path, "c", "import time; time.sleep(0.3)")
    end([child], patience_s=20)
    assert child.exit_code == 0


def test_a_command_that_does_not_exist_is_a_harness_error(tmp_path: Path) -> None:
    spawn = Spawn(name="x", command=["/nonexistent"], environment={}, folder=tmp_path, log=tmp_path / "log" / "x.log")
    with pytest.raises(HarnessError, match="cannot start x: No such file"):
        start(spawn)


def test_a_child_gets_its_last_wish_when_this_process_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "note"
    # sigwait, because a handler that is set just before time.sleep() may run only after it.
    grandchild = (
        "import pathlib, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "print('ready', flush=True)\n"
        "signal.sigwait({signal.SIGINT})\n"
        f"pathlib.Path({str(note)!r}).write_text('asked')\n"
    )
    parent = (
        "import os, sys, signal, time, pathlib\n"
        "from servebench.cli.processes import Spawn, start\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        f"child = start(Spawn(name='g', command=[sys.executable, '-c', {grandchild!r}], environment=dict(os.environ),"
        " folder=folder, log=folder / 'g.log', last_wish=signal.SIGINT))\n"
        "print(child.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", parent], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        _until(lambda: "ready" in tail(tmp_path / "g.log"))
        process.kill()
    _until(note.exists)
    _until(lambda: not psutil.pid_exists(pid))


def test_a_master_is_followed_to_its_end_and_its_folder_is_known(cluster: Making) -> None:
    code = "say(kind='status', state='running', folder='/runs/a', sent=3)\nsay(kind='event', text='burst began')"
    made, heard = cluster.make(code), Heard()
    with Stops() as stops:
        assert watch(made, heard, stops, drain_s=30) == 0
    assert [status.sent for status in heard.statuses] == [3]
    assert heard.events == ["burst began"]
    assert made.folders == [Path("/runs/a")]


def test_what_the_master_said_just_before_it_ended_is_not_lost(cluster: Making) -> None:
    code = (
        "[say(kind='status', sent=n) for n in range(200)]\n"
        "say(kind='event', event='fault', text='no disk')\n"
        "os._exit(4)\n"
    )
    made, heard = cluster.make(code), Heard()
    with Stops() as stops:
        assert watch(made, heard, stops, drain_s=30) == 4
    assert heard.statuses[-1].sent == 199
    assert made.fault == "no disk"


def test_a_stop_ends_a_master_that_forgets_interrupts_before_it_has_a_run(cluster: Making) -> None:
    code = "signal.signal(signal.SIGINT, lambda *_: None)\nsay(kind='event', event='up', text='up')\ntime.sleep(60)\n"
    made = cluster.make(code)
    with Stops() as stops:

        class StopsWhenUp(Heard):
            def event(self, text: str) -> None:
                super().event(text)
                if text == "up":
                    os.kill(os.getpid(), signal.SIGINT)

        heard = StopsWhenUp()
        assert watch(made, heard, stops, drain_s=30) == -signal.SIGTERM
    assert [text.partition(":")[0] for text in heard.events] == ["up", "Stopping"]


def test_the_first_stop_is_handed_on_once_and_the_second_again_and_a_third_only_answered(cluster: Making) -> None:
    code = (
        "asked = []\n"
        "def note(*_):\n"
        "    asked.append(1)\n"
        "    say(kind='status', state='draining', sent=len(asked))\n"
        "signal.signal(signal.SIGINT, note)\n"
        "say(kind='status', state='running', inflight=57, sent=0)\n"
        "end = time.monotonic() + 30\n"
        "while len(asked) < 2 and time.monotonic() < end: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "sys.exit(130 if len(asked) == 2 else 9)\n"
    )
    made, heard = cluster.make(code), Heard()
    steps = iter([0, 1, 2])

    def press(status: Status) -> None:
        if status.sent == next(steps, None):
            os.kill(os.getpid(), signal.SIGINT if status.sent != 1 else signal.SIGTERM)

    with Stops() as stops:
        assert watch(made, heard, stops, drain_s=30, on_status=press) == 130
    assert heard.events[0] == (
        'Stopping: no new requests. 57 in flight, 30 s at most. Ctrl-C again stops now (they become "cancelled").'
    )
    assert heard.events[1].startswith("Stopping now")
    assert heard.events[2].startswith("Ignored")
    assert len(heard.events) == 3


def test_signal_handlers_come_back_after_a_run() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Stops():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_workers_that_all_die_before_the_load_end_the_run_with_their_last_words(cluster: Making) -> None:
    dying = "import sys\nprint('no module named x', file=sys.stderr)\nsys.exit(1)"
    made = cluster.make("time.sleep(60)", (dying, dying))
    with Stops() as stops, pytest.raises(HarnessError, match=r"every local worker ended(.|\n)*no module named x"):
        watch(made, Heard(), stops, drain_s=30)


def test_a_worker_that_refuses_its_input_makes_it_the_users_fault(cluster: Making) -> None:
    refusing = "import sys\nprint('SERVEBENCH_API_KEY_FILE k cannot be read', file=sys.stderr)\nsys.exit(2)"
    made = cluster.make("time.sleep(60)", (refusing,))
    with Stops() as stops, pytest.raises(InputError, match="cannot be read"):
        watch(made, Heard(), stops, drain_s=30)


def test_a_worker_lost_while_the_load_runs_is_told_and_the_run_goes_on(cluster: Making) -> None:
    code = "say(kind='status', state='running')\ntime.sleep(1.5)\nsys.exit(0)"
    made, heard = (
        cluster.make(code, ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", READY + "time.sleep(60)")),
        Heard(),
    )
    with Stops() as stops:
        assert watch(made, heard, stops, drain_s=30) == 0
    assert heard.events == ["! worker 1 ended (exit code -9)"]


def test_closing_a_cluster_leaves_no_child(cluster: Making) -> None:
    made = cluster.make("time.sleep(60)", ("import time; time.sleep(60)",) * 2)
    pids = [child.process.pid for child in (made.master, *made.workers)]
    made.close(patience_s=0)
    cluster.made = None
    assert [psutil.pid_exists(pid) for pid in pids] == [False] * 3


def test_a_line_that_is_no_status_does_not_stop_the_run(cluster: Making) -> None:
    made, heard = (
        cluster.make("os.write(fd, b'garbage\\n' + json.dumps({'kind': 'status', 'sent': 1}).encode() + b'\\n')"),
        Heard(),
    )
    with Stops() as stops:
        assert watch(made, heard, stops, drain_s=30) == 0
    assert json.dumps([status.sent for status in heard.statuses]) == "[1]"
