"""Know how a worker's finished parts get to where they are merged, while the load goes on.

Parts are sealed files, so what travels is whole files and never rows: the master's work does not grow with the tokens.
A local copy is removed only when the other side has said that it holds the file; what could not be delivered stays.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import gevent
import msgspec
from gevent.event import Event
from gevent.threadpool import ThreadPool

from servebench.core.errors import HarnessError
from servebench.core.units import NS_PER_S
from servebench.loadgen.messages import PartAck, PartPiece, Prepare
from servebench.shards.manifest import MANIFEST_NAME
from servebench.shards.parts import WrittenPart
from servebench.shards.remote import RemoteFolder

AUTO, LOCAL, SHARED, MASTER = "auto", "local", "shared", "master"

PIECE_BYTES = 256 * 1024
ACK_LIMIT_S = 5.0
LOOK_EVERY_S = 0.5
LAST_LIMIT_S = 30.0
"""After the run: without any progress for this long the rest stays where it is."""
STUCK_LIMIT_S = 300.0
"""After the run: one part takes at most this long, whatever its place does."""


class PartSource(Protocol):
    """Anything that finishes parts: the recorder and its like."""

    @property
    def parts(self) -> tuple[WrittenPart, ...]:
        """Finished parts, in order."""
        ...


class Delivery(Protocol):
    """Takes one finished part to its place. Called by one greenlet at a time."""

    def on_ack(self, ack: PartAck) -> None:
        """Take an acknowledgement of the master."""
        ...

    def deliver(self, kind: str, part: WrittenPart, give_up: Callable[[], bool]) -> bool:
        """Return True when the place holds the part for itself, False when this worker's file is that very one.

        Blocks the calling greenlet. Raises HarnessError when the place refuses it, or `give_up` says so.
        """
        ...


class PartSender:
    """Delivers the parts of one run in the background; the folder of a part says of which kind it is.

    `failure` is why parts stayed here, None while all is well.
    """

    def __init__(self, sources: Sequence[PartSource | None], delivery: Delivery) -> None:
        self.failure: HarnessError | None = None
        self._sources = [source for source in sources if source is not None]
        self._done = [0] * len(self._sources)
        self._delivery = delivery
        self._progress_ns = time.monotonic_ns()
        self._ending = Event()
        self._greenlet = gevent.spawn(self._run)

    def on_ack(self, ack: PartAck) -> None:
        """Take an acknowledgement of the master; called by the message handler."""
        self._delivery.on_ack(ack)

    @property
    def finishing(self) -> bool:
        """Whether the last parts are on their way."""
        return self._ending.is_set() and not self._greenlet.ready()

    def finish(self) -> None:
        """Deliver what is left; blocks the calling greenlet until it is done or nothing moves any more."""
        self._progress_ns = time.monotonic_ns()
        self._ending.set()
        while not self._greenlet.ready():
            self._greenlet.join(LOOK_EVERY_S)
            if time.monotonic_ns() - self._progress_ns > STUCK_LIMIT_S * NS_PER_S:
                # What hangs is a thread in a call to the store or disk, which nobody can end: the process leaves it.
                self.failure = HarnessError(
                    f"a part has been on its way for {STUCK_LIMIT_S:g} s; it and later ones stay here: copy them"
                )
                self._greenlet.kill(timeout=LOOK_EVERY_S)
                return

    def _run(self) -> None:
        while True:
            last = self._ending.is_set()
            try:
                self._deliver_new()
            except HarnessError as error:
                self.failure = error
                return
            except Exception as error:  # noqa: BLE001 - top of a greenlet: the session asks for `failure`
                self.failure = HarnessError(f"cannot collect parts: {type(error).__name__}: {error}")
                return
            if last:
                return
            self._ending.wait(LOOK_EVERY_S)

    def _deliver_new(self) -> None:
        for place, source in enumerate(self._sources):
            for part in source.parts[self._done[place] :]:
                if self._delivery.deliver(part.path.parent.name, part, self._give_up):
                    part.path.unlink()
                self._done[place] += 1
                self._progress_ns = time.monotonic_ns()

    def _give_up(self) -> bool:
        silent_ns = time.monotonic_ns() - self._progress_ns
        return self._ending.is_set() and silent_ns > LAST_LIMIT_S * NS_PER_S


class MasterDelivery:
    """Sends parts to the master in pieces, each acknowledged before the next, over Locust's own channel."""

    def __init__(self, run_id: str, worker_id: str, send: Callable[[msgspec.Struct], None]) -> None:
        self._run_id, self._worker_id, self._send = run_id, worker_id, send
        self._ack: PartAck | None = None
        self._acked = Event()

    def on_ack(self, ack: PartAck) -> None:
        """Take an acknowledgement; called by the message handler."""
        self._ack = ack
        self._acked.set()

    def deliver(self, kind: str, part: WrittenPart, give_up: Callable[[], bool]) -> bool:
        """Send one part; see `Delivery`."""
        file = os.open(part.path, os.O_RDONLY)
        try:
            ack = PartAck(run_id=self._run_id, kind=kind, name=part.path.name, offset=0, kept=False)
            while ack.offset < part.bytes:
                data = os.pread(file, PIECE_BYTES, ack.offset)
                ack = self._exchange(kind, part, ack.offset, data) or ack
                if ack.error is not None:
                    msg = f"the master does not take {part.path}: {ack.error}; the file stays here"
                    raise HarnessError(msg)
                if give_up():
                    msg = f"the master does not answer; {part.path} and later parts stay here: copy them to its folder"
                    raise HarnessError(msg)
        finally:
            os.close(file)
        return ack.kept

    def _exchange(self, kind: str, part: WrittenPart, offset: int, data: bytes) -> PartAck | None:
        """Send a piece and return the answer to it, None when there is none in time."""
        self._acked.clear()
        self._send(
            PartPiece(
                run_id=self._run_id,
                worker_id=self._worker_id,
                kind=kind,
                name=part.path.name,
                offset=offset,
                size=part.bytes,
                sha256=part.sha256,
                data=data,
            )
        )
        deadline = time.monotonic() + ACK_LIMIT_S
        while self._acked.wait(max(0.0, deadline - time.monotonic())):
            ack = self._ack
            self._acked.clear()
            # A late answer to a piece that was sent twice says nothing new.
            if ack is not None and (ack.kind, ack.name) == (kind, part.path.name) and ack.asked == offset:
                return ack
        return None


class RemoteDelivery:
    """Uploads parts to an object store or any other file system that Arrow knows, from a native thread."""

    def __init__(self, remote: RemoteFolder) -> None:
        self._remote = remote
        self._pool = ThreadPool(1)

    def on_ack(self, ack: PartAck) -> None:
        """Ignore it: nothing was sent to the master."""

    def deliver(self, kind: str, part: WrittenPart, give_up: Callable[[], bool]) -> bool:
        """Upload one part, again and again until it is there; see `Delivery`."""
        while True:
            error = self._pool.apply(self._try, (kind, part))
            if error is None:
                return True
            if give_up():
                raise error
            gevent.sleep(1)

    def _try(self, kind: str, part: WrittenPart) -> HarnessError | None:
        """Run in the thread; errors are returned, since gevent prints what a pool thread raises."""
        try:
            self._remote.put(kind, part.path)
        except HarnessError as error:
            return error
        return None


def make_delivery(
    order: Prepare, worker_id: str, send: Callable[[msgspec.Struct], None], *, shared: bool
) -> Delivery | None:
    """Return how finished parts of a run travel, None where they stay: asked for, or in the master's own folder.

    Raises InputError for a URL that Arrow knows nothing of.
    """
    if order.collect in {LOCAL, SHARED} or (shared and order.collect in {AUTO, MASTER}):
        return None
    if order.collect in {AUTO, MASTER}:
        return MasterDelivery(order.run_id, worker_id, send)
    return RemoteDelivery(RemoteFolder(order.collect, order.run_id))


def sees_masters_folder(folder: Path) -> bool:
    """Return whether this worker's run folder is the master's own; ask before making it."""
    return (folder / MANIFEST_NAME).exists()
