"""Know how child processes are started, asked to stop and ended, so that none is left behind."""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servebench.core.errors import HarnessError

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A running child; what it prints goes to `log`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self.process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the child itself; does nothing when it has ended."""
        self.process.send_signal(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """What starts a child. `last_wish` is the signal that the kernel sends it if this process dies without a word."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    pass_fds: tuple[int, ...] = ()
    last_wish: signal.Signals | None = None


def start(spawn: Spawn) -> Child:
    """Start a child in a session of its own, so that a Ctrl-C at the terminal reaches only this process.

    Raises HarnessError when the system cannot start it.
    """
    spawn.log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with spawn.log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - the command is built here, no shell sees it
                list(spawn.command),
                env=dict(spawn.environment),
                cwd=spawn.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=spawn.pass_fds,
                start_new_session=True,
                # Only prctl runs between fork and exec, and the library is loaded before: no lock can be held there.
                preexec_fn=_die_with_parent(spawn.last_wish) if spawn.last_wish else None,  # noqa: PLW1509
            )
    except OSError as error:
        msg = f"cannot start {spawn.name}: {error.strerror or error}"
        raise HarnessError(msg) from error
    return Child(name=spawn.name, process=process, log=spawn.log)


def end(children: Iterable[Child], *, patience_s: float = 0.0, grace_s: float = 5.0) -> None:
    """End children: wait `patience_s` for them to go by themselves, then SIGTERM, then SIGKILL after `grace_s`."""
    alive = list(children)
    alive = _wait(alive, patience_s)
    for child in alive:
        child.send(signal.SIGTERM)
    for child in _wait(alive, grace_s):
        child.process.kill()
        child.process.wait()


def child_environment(
    base: Mapping[str, str], *, drop_prefixes: Sequence[str], extra: Mapping[str, str]
) -> dict[str, str]:
    """Return an environment without the variables of `drop_prefixes`, with `extra`, for a child in another folder.

    Relative entries of PYTHONPATH become absolute: they would point elsewhere from there.
    """
    kept = {name: value for name, value in base.items() if not name.startswith(tuple(drop_prefixes))}
    if "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = os.pathsep.join(
            str(Path(entry).absolute()) for entry in kept["PYTHONPATH"].split(os.pathsep)
        )
    # A log that is read when its writer was killed must hold what was written.
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port of `host` that nothing listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def tail(path: Path, lines: int = 8) -> list[str]:
    """Return the last lines of a log that are not blank; none when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]


def _wait(children: list[Child], seconds: float) -> list[Child]:
    """Return the children that still run after at most `seconds`."""
    deadline = time.monotonic() + seconds
    for child in children:
        try:
            child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
    return [child for child in children if child.exit_code is None]


def _die_with_parent(wish: signal.Signals) -> Callable[[], None]:
    libc = ctypes.CDLL(None)

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(wish), 0, 0, 0)

    return arrange
