"""What the hub does else makes room for the next request: turns end before it is due, and its timer goes first."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import gevent
import pytest

from servebench.loadgen.next_due import LEAST_ROOM_NS, NextDue
from servebench.loadgen.transport.parsing import SLICE_NS, ParseQueue
from servebench.loadgen.transport.reactor import MAX_BATCH, READ_NS, Reactor
from servebench.loadgen.worker.timerfd import TimerFd

MS = 1_000_000
READABLE = 1


class Counting:
    """A socket's user that never reads, so that its socket stays ready."""

    def __init__(self) -> None:
        self.served = 0

    def on_event(self, mask: int) -> None:
        del mask
        self.served += 1

    def on_fault(self, error: Exception) -> None:
        raise error


@pytest.fixture
def ready() -> Iterator[list[socket.socket]]:
    """Give more sockets with something to read than one turn serves."""
    with ExitStack() as stack:
        pairs = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(2 * MAX_BATCH)]
        for _, there in pairs:
            there.send(b"x")
        yield [here for here, _ in pairs]


def served_in_one_turn(
    next_due: NextDue, sockets: list[socket.socket], turn: Callable[[Reactor], None] = Reactor.poll
) -> int:
    reactor, user = Reactor(next_due), Counting()
    try:
        for each in sockets:
            reactor.add(each.fileno(), user, READABLE)
        turn(reactor)
    finally:
        reactor.close()
    return user.served


def test_with_nobody_due_a_turn_serves_a_full_batch(ready: list[socket.socket]) -> None:
    assert served_in_one_turn(NextDue(), ready) == MAX_BATCH


def test_with_a_request_due_a_turn_serves_the_least(ready: list[socket.socket]) -> None:
    next_due = NextDue()
    next_due.at_ns = time.monotonic_ns()
    assert served_in_one_turn(next_due, ready) == LEAST_ROOM_NS // READ_NS


def test_a_turn_that_catches_up_serves_a_full_batch_whoever_is_due(ready: list[socket.socket]) -> None:
    next_due = NextDue()
    next_due.at_ns = time.monotonic_ns()
    assert served_in_one_turn(next_due, ready, Reactor.catch_up) == MAX_BATCH


def test_room_is_what_is_left_until_the_request_is_due() -> None:
    next_due = NextDue()
    next_due.at_ns = 10 * MS
    assert next_due.room_ns(7 * MS) == 3 * MS
    assert next_due.room_ns(10 * MS - 1) == LEAST_ROOM_NS
    assert next_due.room_ns(50 * MS) == LEAST_ROOM_NS
    next_due.clear()
    assert next_due.room_ns(50 * MS) > 3600 * 1000 * MS


class Slice:
    """Something to parse that notes how long it might take."""

    def __init__(self) -> None:
        self.room_ns = 0

    def parse(self, until_ns: int) -> bool:
        self.room_ns = until_ns - time.monotonic_ns()
        return True


@pytest.mark.parametrize(("after_ns", "most_ns"), [(3600 * 1000 * MS, SLICE_NS), (0, LEAST_ROOM_NS)])
def test_a_slice_of_parsing_ends_when_a_request_is_due(after_ns: int, most_ns: int) -> None:
    next_due = NextDue()
    queue, item = ParseQueue(next_due), Slice()
    next_due.at_ns = time.monotonic_ns() + after_ns
    queue.add(item)
    gevent.sleep(0.01)
    queue.close()
    assert 0 < item.room_ns <= most_ns


def test_a_timer_tells_when_it_goes_off_and_takes_it_back() -> None:
    next_due = NextDue()
    timer = TimerFd(next_due)
    at_ns = time.monotonic_ns() + 3 * MS
    seen: list[int] = []
    gevent.spawn(lambda: seen.append(next_due.at_ns))
    timer.sleep_until(at_ns)
    assert seen == [at_ns]
    assert next_due.room_ns(at_ns + MS) > 3600 * 1000 * MS
    timer.arm(at_ns)
    timer.close()
    assert next_due.room_ns(at_ns + MS) > 3600 * 1000 * MS


def test_a_wake_up_that_nobody_sleeps_for_makes_no_haste() -> None:
    next_due = NextDue()
    timer = TimerFd(next_due)
    timer.arm(1)
    assert next_due.room_ns(time.monotonic_ns()) > 3600 * 1000 * MS
    timer.close()


def test_of_all_that_is_ready_the_timer_is_served_first() -> None:
    log: list[str] = []
    loop = gevent.get_hub().loop
    reader, writer = os.pipe()
    os.write(writer, b"x")
    copies = [os.dup(reader) for _ in range(8)]
    watchers = [loop.io(copy, READABLE) for copy in copies]
    timer = TimerFd()

    def sleeper() -> None:
        timer.sleep_until(time.monotonic_ns() + 2 * MS)
        log.append("timer")

    greenlet = gevent.spawn(sleeper)
    gevent.sleep(0)  # it sleeps now
    for watcher in watchers:
        watcher.start(log.append, "read")
    time.sleep(0.005)  # nothing is served meanwhile; then all are ready at once
    greenlet.join()
    for watcher in watchers:
        watcher.stop()
        watcher.close()
    timer.close()
    for end in (*copies, reader, writer):
        os.close(end)
    assert log[0] == "timer"
