"""Know how a real engine runs beside a test: pinned to one core, the client to another, read by its own counters."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.engines.engines import Engine, Places
from tests.engines.installing import ROOT, installed

READY_LIMIT_S = 400
CORES = sorted(os.sched_getaffinity(0))
ENGINE_CORE, CLIENT_CORE = CORES[-1], CORES[0]


@dataclass(slots=True)
class Serving:
    """A running engine."""

    engine: Engine
    places: Places
    log: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Address that a client is given."""
        return f"http://127.0.0.1:{self.places.port}"

    @property
    def metrics_url(self) -> str:
        """Address of its metrics page."""
        return f"http://127.0.0.1:{self.engine.metrics_port(self.places)}/metrics"

    @property
    def model(self) -> str:
        """Model that it serves."""
        return self.engine.model.format(home=self.places.home)

    def start(self) -> None:
        """Start what does not run, and wait until it answers. Fails with the end of its log."""
        alive = [process for process in self.processes if process.poll() is None]
        commands = self.engine.commands(self.places)
        self.processes = [*alive, *(self._spawn(command) for command in commands[len(alive) :])]
        limit_s = time.monotonic() + READY_LIMIT_S
        while not self._ready():
            assert all(process.poll() is None for process in self.processes), self._last_words()
            assert time.monotonic() < limit_s, self._last_words()
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the process that answers HTTP, as a crash would."""
        _signal_group(self.processes[-1], signal.SIGKILL)
        self.processes[-1].wait(30)

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self.processes):
            _signal_group(process, signal.SIGTERM)
        for process in reversed(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            _signal_group(process, signal.SIGKILL)
            process.wait(30)

    def samples(self) -> dict[str, float]:
        """Return every number of the metrics page, summed over labels; of buckets, over all labels but `le`."""
        page = _get(self.metrics_url)
        sums: dict[str, float] = {}
        method = self.engine.counters.method
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if method and sample.labels.get("method", method) != method:
                    continue
                name = f"{sample.name}{{le={float(sample.labels['le'])}}}" if "le" in sample.labels else sample.name
                sums[name] = sums.get(name, 0.0) + sample.value
        return sums

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.engine.environment(self.places)}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["taskset", "-c", str(ENGINE_CORE), *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.places.folder,
                env=environment,
                start_new_session=True,
            )

    def _ready(self) -> bool:
        try:
            return self.engine.ready_words in _get(self.url + self.engine.ready)
        except OSError:
            return False

    def _last_words(self) -> str:
        return f"{self.engine.name} did not come up:\n{self.log.read_text(errors='replace')[-3000:]}"


@contextlib.contextmanager
def serving(engine: Engine, folder: Path) -> Iterator[Serving]:
    """Install an engine where needed, start it, and end it afterwards. Raises UnavailableError with the reason."""
    home = installed(engine.recipe)
    folder.mkdir(parents=True)
    ports = _free_ports(3)
    places = Places(home=home, folder=folder, port=ports[0], ports=(ports[1], ports[2]))
    one = Serving(engine, places, folder / "engine.log")
    try:
        one.start()
        yield one
    finally:
        one.stop()


def servebench(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, pinned to the client's core; `more` of its environment."""
    env = {**_environment(), **more}
    return subprocess.run(
        _command(*arguments),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
        env=env,
    )


@contextlib.contextmanager
def started(folder: Path, *arguments: str, **more: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start a command that the test goes on to disturb; gives the process and the file of its stderr."""
    words = folder / "stderr.txt"
    with words.open("wb") as stderr:
        process = subprocess.Popen(
            _command(*arguments),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            cwd=folder,
            env={**_environment(), **more},
            start_new_session=True,
        )
    try:
        yield process, words
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def await_words(words: Path, pattern: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until stderr matches; fails when the process has ended without."""
    while not re.search(pattern, words.read_text()):
        assert process.poll() is None, words.read_text()
        time.sleep(0.05)


def run_folder(folder: Path) -> Path:
    """Return the newest run in `folder`/runs."""
    return max(
        (path for path in (folder / "runs").iterdir() if (path / "run.json").exists()), key=lambda path: path.name
    )


def events(run: Path) -> list[dict[str, object]]:
    """Return what happened in a run beside requests."""
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def _command(*arguments: str) -> list[str]:
    return ["taskset", "-c", str(CLIENT_CORE), sys.executable, "-m", "servebench.cli", *arguments]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src")}


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode("utf-8", "replace"))


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
