"""Know one checking process from the worker's side: how it is started, spoken to, and how it ended."""

import os
import sys
from collections.abc import Callable, Sequence

import gevent
import msgspec
from gevent import socket, subprocess
from gevent.event import Event

from servebench.acceptance.letters import Finding, Opened, Opening, Splitter, letter, opened
from servebench.core.errors import InputError
from servebench.workload.checks import Check

OPEN_LIMIT_S = 60.0
"""For a user's file that loads a model."""
CLOSE_LIMIT_S = 2.0
_READ_BYTES = 1 << 16


class CheckingProcess:
    """One checking process and the two greenlets that talk to it."""

    def __init__(
        self, checks: Sequence[Check], found: Callable[[Finding], None], lost: "Callable[[CheckingProcess, str], None]"
    ) -> None:
        self._found, self._lost = found, lost
        self._line, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "servebench.acceptance", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={name: value for name, value in os.environ.items() if not name.startswith("SERVEBENCH_")},
            )
        self._splitter = Splitter()
        self._unsent: list[bytes] = []
        self._more = Event()
        self._over = False
        try:
            self._open(checks)
        except BaseException:
            self.close()
            raise
        gevent.spawn(self._write)
        gevent.spawn(self._read)

    def _open(self, checks: Sequence[Check]) -> None:
        self._line.sendall(letter(Opening(checks=tuple(checks))))
        self._line.settimeout(OPEN_LIMIT_S)
        try:
            said = self._first()
        except TimeoutError:
            said = Opened(fault=f"the checking process was not ready within {OPEN_LIMIT_S:.0f} s")
        self._line.settimeout(None)
        if said.fault is not None:
            raise InputError(said.fault)

    def _first(self) -> Opened:
        while data := self._line.recv(_READ_BYTES):
            for message in self._splitter.feed(data):
                return opened(message, Opened)
        return Opened(fault=f"the checking process {self._ending()} before it was ready; see the worker's log")

    def send(self, data: bytes) -> None:
        """Send soon; never blocks."""
        self._unsent.append(data)
        self._more.set()

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()

    def close(self) -> None:
        """Close the line, on which it ends, and see that it did."""
        self._over = True
        self._more.set()
        self._line.close()
        try:
            self._child.wait(CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _write(self) -> None:
        try:
            while not self._over:
                self._more.wait()
                self._more.clear()
                data, self._unsent = b"".join(self._unsent), []
                self._line.sendall(data)
        except OSError:
            return  # it ended; the reader says so

    def _read(self) -> None:
        try:
            while data := self._line.recv(_READ_BYTES):
                for message in self._splitter.feed(data):
                    self._found(opened(message, Finding))
            why = self._ending()
        except (OSError, msgspec.MsgspecError) as error:
            why = f"cannot be talked to: {error}"
        if not self._over:
            self.kill()
            self.close()
            self._lost(self, why)

    def _ending(self) -> str:
        try:
            code = self._child.wait(CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            return "closed its line"
        return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
