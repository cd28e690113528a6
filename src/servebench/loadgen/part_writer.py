"""Know how parts reach the disk without stalling the hub: one native thread, in order, from a bounded queue."""

import time
from collections import deque
from collections.abc import Callable

import gevent
from gevent.threadpool import ThreadPool

from servebench.core.errors import HarnessError
from servebench.shards.parts import WrittenPart

MAX_PENDING = 8


class PartWriter:
    """The queue of one kind of part; all its methods are for greenlets of one hub.

    `failure` is the first thing that went wrong, None while all is well; later parts are still tried. `parts` are those
    that have their name, in order. `begun_ns` is when the part that is being written was begun (monotonic), None while
    nothing waits.
    """

    def __init__(self, max_pending: int = MAX_PENDING) -> None:
        self.failure: HarnessError | None = None
        self.parts: list[WrittenPart] = []
        self.begun_ns: int | None = None
        self._max_pending = max_pending
        self._jobs: deque[Callable[[], WrittenPart]] = deque()
        self._pool = ThreadPool(1)
        self._drainer: gevent.Greenlet[[], None] | None = None

    @property
    def full(self) -> bool:
        """True while `submit` would exceed the bound."""
        return len(self._jobs) >= self._max_pending

    def submit(self, job: Callable[[], WrittenPart]) -> None:
        """Queue a job for the thread; returns at once. The caller heeds `full`."""
        self._jobs.append(job)
        # ThreadPool.spawn waits for a free thread, so a greenlet of our own waits, never the one that submits.
        if self._drainer is None:
            self.begun_ns = time.monotonic_ns()
            self._drainer = gevent.spawn(self._drain)

    def close(self) -> None:
        """Wait until the queue is empty, then end the thread. Blocks the calling greenlet only."""
        while self._drainer is not None:
            self._drainer.join()
            if self._drainer is not None and self._drainer.dead:  # ended from outside: it will never say so itself
                self.fail(HarnessError(f"{len(self._jobs)} parts were not written: their writer was ended"))
                break
        self._pool.kill()

    def fail(self, failure: HarnessError) -> None:
        """Keep the first failure."""
        self.failure = self.failure or failure

    def _drain(self) -> None:
        while self._jobs:
            result = self._pool.apply(_attempt, (self._jobs[0],))
            self._jobs.popleft()
            self.begun_ns = time.monotonic_ns()
            if isinstance(result, WrittenPart):
                self.parts.append(result)
            elif isinstance(result, HarnessError):
                self.fail(result)
            else:
                self.fail(HarnessError(f"a part was neither written nor refused ({result!r}); its rows are lost"))
        self._drainer = self.begun_ns = None


def _attempt(job: Callable[[], WrittenPart]) -> WrittenPart | HarnessError:
    """Run a job; errors are returned, since gevent prints what a pool thread raises."""
    try:
        return job()
    except HarnessError as error:
        return error
    except Exception as error:  # noqa: BLE001 the top of a thread: whatever it is, it ends the run
        failure = HarnessError(f"cannot record: {type(error).__name__}: {error}; finished parts stay readable")
        failure.__cause__ = error
        return failure
