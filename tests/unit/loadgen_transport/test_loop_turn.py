"""A greenlet that starts many others lets sockets be read in between."""

import socket

import gevent

from servebench.loadgen.loop_turn import let_loop_run


def test_a_ready_descriptor_is_served_before_the_greenlet_goes_on() -> None:
    here, there = socket.socketpair()
    log: list[str] = []
    with here, there:
        watcher = gevent.get_hub().loop.io(here.fileno(), 1)
        watcher.start(lambda: log.append("read" if here.recv(1) else "closed"))
        for _ in range(3):
            there.send(b"x")
            log.append("start")
            let_loop_run()
        watcher.stop()
        watcher.close()
    assert log == ["start", "read"] * 3


def test_what_was_started_begins_before_the_greenlet_goes_on() -> None:
    log: list[int] = []
    for number in range(3):
        gevent.spawn(log.append, number)
        let_loop_run()
        assert log == list(range(number + 1))
