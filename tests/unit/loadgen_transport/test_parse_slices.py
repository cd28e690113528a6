"""Parsing in slices: sockets and timers have their turn in between."""

import os
import time
from collections.abc import Iterator

import gevent
import pytest
from gevent.event import Event

from servebench.loadgen.transport.parsing import ParseQueue


class Work:
    """Something to parse that takes a number of whole slices."""

    def __init__(self, name: str, slices: int, log: list[str], done: Event) -> None:
        self._name, self._left, self._log, self._done = name, slices, log, done

    def parse(self, until_ns: int) -> bool:
        self._log.append(self._name)
        while time.monotonic_ns() < until_ns:
            pass
        self._left -= 1
        if not self._left:
            self._done.set()
        return not self._left


@pytest.fixture
def queue() -> Iterator[ParseQueue]:
    made = ParseQueue()
    yield made
    made.close()


def test_a_ready_descriptor_is_served_between_two_slices(queue: ParseQueue) -> None:
    log: list[str] = []
    done = Event()
    reader, writer = os.pipe()
    watcher = gevent.get_hub().loop.io(reader, 1)

    def readable() -> None:
        os.read(reader, 1)
        log.append("read")
        if not done.is_set():
            os.write(writer, b"x")

    watcher.start(readable)
    os.write(writer, b"x")
    queue.add(Work("parse", 10, log, done))
    done.wait()
    watcher.stop()
    watcher.close()
    os.close(reader)
    os.close(writer)
    first, last = log.index("parse"), len(log) - 1 - log[::-1].index("parse")
    assert log[first : last + 1].count("parse") == 10
    assert "parse parse" not in " ".join(log[first : last + 1])


def test_a_long_answer_lets_a_short_one_pass(queue: ParseQueue) -> None:
    log: list[str] = []
    long_done, short_done = Event(), Event()
    queue.add(Work("long", 5, log, long_done))
    queue.add(Work("short", 1, log, short_done))
    long_done.wait()
    assert log == ["long", "short", "long", "long", "long", "long"]


def test_what_is_added_while_the_queue_runs_is_parsed_too(queue: ParseQueue) -> None:
    log: list[str] = []
    done, later = Event(), Event()
    queue.add(Work("first", 1, log, done))
    done.wait()
    queue.add(Work("second", 1, log, later))
    later.wait()
    assert log == ["first", "second"]
