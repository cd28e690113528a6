"""Know how the master takes in the parts that workers send: piece by piece, whole under their name or not there.

What a worker says is not trusted: names are those of its own parts and nothing else, so no path leaves the run folder.
"""

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gevent
from gevent.threadpool import ThreadPool

from servebench.core.errors import HarnessError
from servebench.loadgen.channel import StrayMessageError
from servebench.loadgen.messages import PartAck, PartPiece
from servebench.shards.manifest import sync_folder
from servebench.shards.parts import parse_part_name
from servebench.shards.remote import KINDS

MOST_BYTES = 1 << 30
"""Larger than any part; a claim beyond it is no part."""


class _Taken(NamedTuple):
    """How far a file is after a piece; `kept` = it is whole and was written here."""

    offset: int
    kept: bool = False
    error: str | None = None


class PartReceiver:
    """The incoming parts of one run. `take` is for message handlers; files are written by one native thread.

    `last_ns` is when the last piece came (monotonic), 0 before the first.
    """

    def __init__(
        self,
        folder: Path,
        reply: Callable[[PartAck, str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.last_ns = 0
        self._folder, self._reply, self._on_failure = folder, reply, on_failure
        self._written: set[tuple[str, str]] = set()
        self._pieces: deque[PartPiece] = deque()
        self._pool: ThreadPool | None = None
        self._drainer: gevent.Greenlet[[], None] | None = None

    def take(self, piece: PartPiece, worker: str) -> None:
        """Queue a piece of a part of `worker`; returns at once.

        Raises StrayMessageError for a piece that no worker of ours would send.
        """
        name = parse_part_name(piece.name)
        sound = 0 <= piece.offset < piece.size <= MOST_BYTES and piece.offset + len(piece.data) <= piece.size
        if piece.kind not in KINDS or name is None or name.worker != worker or not sound or not piece.data:
            msg = f"worker {worker} sent a piece of {piece.kind!r} {piece.name!r}, which is no part of its own"
            raise StrayMessageError(msg)
        self.last_ns = time.monotonic_ns()
        self._pieces.append(piece)
        if self._drainer is None:
            self._drainer = gevent.spawn(self._drain)

    def _drain(self) -> None:
        self._pool = self._pool or ThreadPool(1)
        while self._pieces:
            piece = self._pieces.popleft()
            taken = self._pool.apply(self._store, (piece,))
            if taken.error is not None:
                self._on_failure(HarnessError(f"cannot store {piece.name} of a worker: {taken.error}"))
            ack = PartAck(
                run_id=piece.run_id,
                kind=piece.kind,
                name=piece.name,
                asked=piece.offset,
                offset=taken.offset,
                kept=taken.kept,
                error=taken.error,
            )
            self._reply(ack, piece.worker_id)
        self._drainer = None

    def _store(self, piece: PartPiece) -> _Taken:
        """Run in the thread; returns errors, since gevent prints what a pool thread raises."""
        try:
            return self._append(piece)
        except OSError as error:
            return _Taken(
                piece.offset, error=f"{error.strerror or error}; free space on the master or use --collect URL"
            )

    def _append(self, piece: PartPiece) -> _Taken:
        path = self._folder / piece.kind / piece.name
        incoming = path.with_name(f".{piece.name}.in")
        if path.exists():
            # The sender's folder may be this very one: then it must not remove "its copy".
            return _Taken(piece.size, kept=(piece.kind, piece.name) in self._written)
        have = incoming.stat().st_size if incoming.exists() else 0
        if piece.offset != have:
            return _Taken(have)
        with incoming.open("ab") as file:
            file.write(piece.data)
            if have + len(piece.data) < piece.size:
                return _Taken(have + len(piece.data))
            file.flush()
            os.fsync(file.fileno())
        with incoming.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != piece.sha256:
            incoming.unlink()
            return _Taken(0)
        incoming.rename(path)
        sync_folder(path.parent)
        self._written.add((piece.kind, piece.name))
        return _Taken(piece.size, kept=True)
