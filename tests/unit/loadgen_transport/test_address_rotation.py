"""The order in which a target's addresses are tried."""

import socket

from servebench.loadgen.transport.address import SocketAddress
from servebench.loadgen.transport.pool import Rotation

A, B, C = (SocketAddress(socket.AF_INET, (f"127.0.0.{last}", 80)) for last in (1, 2, 3))


def test_each_new_connection_begins_with_the_next_address() -> None:
    rotation = Rotation([A, B, C])
    assert [rotation.round() for _ in range(4)] == [[A, B, C], [B, C, A], [C, A, B], [A, B, C]]


def test_an_address_that_failed_comes_last_until_it_works_again() -> None:
    rotation = Rotation([A, B])
    rotation.note(A, worked=False)
    assert [rotation.round() for _ in range(2)] == [[B, A], [B, A]]
    rotation.note(A, worked=True)
    assert sorted(tried[0] for tried in (rotation.round(), rotation.round())) == [A, B]


def test_when_all_have_failed_all_are_tried() -> None:
    rotation = Rotation([A, B])
    rotation.note(A, worked=False)
    rotation.note(B, worked=False)
    assert sorted(rotation.round()) == [A, B]
