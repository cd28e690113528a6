"""Know how a started load generator is watched: its progress shown, the user's stops handed on, its end awaited."""

import os
import selectors
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from servebench.cli.cluster import (
    Launch,
    master_command,
    master_environment,
    worker_command,
    worker_environment,
    worker_flags,
)
from servebench.cli.display import Display
from servebench.cli.processes import Child, Spawn, end, start, tail
from servebench.cli.status import Event, LineBuffer, Status, parse_line
from servebench.cli.stops import Stops
from servebench.core.errors import HarnessError, InputError
from servebench.core.outcomes import ExitCode

POLL_S = 0.1
CUT_LIMIT_S = 20.0
"""After the second stop the master gets this long to write before it is killed."""
_BEFORE_LOAD = {"waiting", "preparing"}


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A running master with its local workers. `scratch` holds their working folders and logs until the end."""

    scratch: Path
    progress_fd: int
    master: Child
    workers: list[Child]
    lines: LineBuffer = field(default_factory=LineBuffer)
    status: Status = field(default_factory=Status)
    folders: list[Path] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)
    fault: str | None = None
    """What the master said went wrong, None as long as it said nothing."""

    def close(self, patience_s: float = 5.0) -> None:
        """End every child; workers get `patience_s` to follow a master that ended by itself."""
        end([self.master], grace_s=5.0)
        end(self.workers, patience_s=patience_s)
        os.close(self.progress_fd)


def launch_cluster(launch: Launch) -> Cluster:
    """Start the master and the local workers of a launch.

    Raises InputError when the output folder cannot be written, HarnessError when a process cannot be started.
    """
    scratch = make_scratch(launch.out)
    workload = _write_workload(scratch, launch.workload_json)
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    children: list[Child] = []
    try:
        for index, spawn in enumerate(_spawns(launch, scratch, workload, write_fd)):
            spawn.folder.mkdir()
            children.append(start(spawn))
            if index == 0:
                os.close(write_fd)
    except BaseException:
        end(children)
        os.close(read_fd)
        raise
    return Cluster(scratch=scratch, progress_fd=read_fd, master=children[0], workers=children[1:])


def watch(
    cluster: Cluster,
    display: Display,
    stops: Stops,
    *,
    drain_s: float,
    on_status: Callable[[Status], None] | None = None,
) -> int:
    """Follow a cluster until its master has ended; return the master's exit code.

    Raises HarnessError when every local worker ended before the load began, with the last words of one.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(cluster.progress_fd, selectors.EVENT_READ)
        stopping = _Stopping(cluster, display, stops, drain_s)
        while (code := cluster.master.exit_code) is None:
            if selector.select(POLL_S) and not _read(cluster, display, on_status):
                selector.unregister(cluster.progress_fd)
            stopping.hand_on()
            _look_after_workers(cluster, display, stopping=stops.count > 0)
            display.tick()
        _read(cluster, display, on_status)
    return code


def make_scratch(out: Path) -> Path:
    """Return a new hidden folder beside the run folders, on the same disk.

    Raises InputError when there can be none.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".starting-", dir=out)).absolute()
    except OSError as error:
        msg = f"cannot write into --out {out}: {error.strerror}\n  try: --out DIR with a folder that you may write to"
        raise InputError(msg) from error


def move_logs(scratch: Path, folder: Path) -> None:
    """Move the children's logs into a run folder and remove the scratch folder."""
    target = folder / "log"
    target.mkdir(exist_ok=True)
    for log in sorted((scratch / "log").glob("*.log")):
        shutil.move(log, target / log.name)
    shutil.rmtree(scratch, ignore_errors=True)


class _Stopping:
    """Hands the user's stops to the master: the first drains, the second cuts, a third is only answered."""

    def __init__(self, cluster: Cluster, display: Display, stops: Stops, drain_s: float) -> None:
        self._cluster, self._display, self._stops, self._drain_s = cluster, display, stops, drain_s
        self._handled = 0
        self._cut_at: float | None = None

    def hand_on(self) -> None:
        """Act on each stop since the last call; kill a master that hangs long after the second."""
        while self._handled < self._stops.count:
            self._handled += 1
            self._act(self._handled)
        if self._cut_at is not None and time.monotonic() - self._cut_at > CUT_LIMIT_S:
            self._display.event(f"The master did not end within {CUT_LIMIT_S:g} s and was killed.")
            self._cluster.master.process.kill()
            self._cut_at = None

    def _act(self, number: int) -> None:
        flying = self._cluster.status.inflight
        if number == 1:
            waiting = "" if flying is None else f" {flying:,} in flight,"
            self._display.event(
                f"Stopping: no new requests.{waiting} {self._drain_s:g} s at most. Ctrl-C again stops now"
                ' (they become "cancelled").'
            )
        elif number == 2:
            self._display.event("Stopping now: open requests are cancelled, then files are written.")
            self._cut_at = time.monotonic()
        else:
            self._display.event("Ignored: the files of the run are being written.")
            return
        # Before there is a run an interrupt may reach Python in the midst of an import and be forgotten. SIGTERM ends
        # the process then, and from the moment on that Locust listens to it, it drains a run as an interrupt does.
        no_run_yet = self._cluster.status.state == Status().state
        self._cluster.master.send(signal.SIGTERM if no_run_yet else signal.SIGINT)


def _spawns(launch: Launch, scratch: Path, workload: Path | None, progress_fd: int) -> list[Spawn]:
    logs = scratch / "log"
    master = Spawn(
        name="master",
        command=master_command(launch),
        environment=master_environment(os.environ, launch, workload, progress_fd),
        folder=scratch / "master",
        log=logs / "master.log",
        pass_fds=(progress_fd,),
        # If this process is killed, the master drains and closes the run as after one Ctrl-C, and tells the workers.
        last_wish=signal.SIGINT,
    )
    workers = [
        Spawn(
            name=f"worker {number}",
            command=worker_command("127.0.0.1", launch.bind_port, worker_flags(launch.locust_flags), launch.locustfile),
            environment=worker_environment(os.environ, launch, workload),
            folder=scratch / f"worker-{number}",
            log=logs / f"worker-{number}.log",
        )
        for number in range(1, launch.local_workers + 1)
    ]
    return [master, *workers]


def _write_workload(scratch: Path, workload_json: bytes | None) -> Path | None:
    if workload_json is None:
        return None
    path = scratch / "workload.json"
    path.write_bytes(workload_json)
    return path


def _read(cluster: Cluster, display: Display, on_status: Callable[[Status], None] | None) -> bool:
    """Take what the progress pipe holds; return False at its end."""
    while True:
        try:
            data = os.read(cluster.progress_fd, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        for line in cluster.lines.feed(data):
            said = parse_line(line)
            if isinstance(said, Event):
                cluster.fault = said.text if said.event == "fault" else cluster.fault
                display.event(said.text)
            elif said is not None:
                _note_status(cluster, said)
                display.update(said)
                if on_status is not None:
                    on_status(said)


def _note_status(cluster: Cluster, status: Status) -> None:
    cluster.status = status
    if status.folder and Path(status.folder) not in cluster.folders:
        cluster.folders.append(Path(status.folder))


def _look_after_workers(cluster: Cluster, display: Display, *, stopping: bool) -> None:
    gone = [worker for worker in cluster.workers if worker.exit_code]
    for worker in gone:
        if worker.name not in cluster.reported:
            cluster.reported.add(worker.name)
            display.event(f"! {worker.name} ended (exit code {worker.exit_code})")
    before_load = cluster.status.state in _BEFORE_LOAD and not stopping
    if before_load and gone and len(gone) == len(cluster.workers) and cluster.master.exit_code is None:
        kind = InputError if gone[0].exit_code == ExitCode.BAD_INPUT else HarnessError
        raise kind("\n".join(["every local worker ended before the load began", *last_words(gone[0])]))


def last_words(child: Child) -> list[str]:
    """Return the end of a child's log, indented, for a message."""
    return [f"  {child.name}: {line}" for line in tail(child.log)]
