"""Typed messages survive Locust's own encoding, and a failing handler is heard of."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from locust.rpc.protocol import Message

from servebench.loadgen.channel import Channel, GarbledMessageError, wire_name
from servebench.loadgen.messages import Health, Lease, MembersFrom, Prepare, Status, Totals


class Loop:
    """A runner whose messages come back to itself, through Locust's serialisation."""

    def __init__(self) -> None:
        self.listeners: dict[str, Callable[..., None]] = {}

    def register_message(self, msg_type: str, listener: Callable[..., None]) -> None:
        self.listeners[msg_type] = listener

    def send_message(self, msg_type: str, data: Any, client_id: str | None = None) -> None:  # noqa: ANN401
        message = Message.unserialize(Message(msg_type, data, "n1").serialize())
        self.listeners[message.type](environment=None, msg=message)


MESSAGES: list[msgspec.Struct] = [
    Lease(run_id="r", valid_until_ns=2**62, members=(MembersFrom(from_ns=-(2**62), worker_ids=("a", "b")),)),
    Prepare(run_id="r", engine="plan", workload="{}", url="http://h", model=None, master_boot_id="b"),
    Status(
        run_id="r",
        worker_id="w",
        done=False,
        totals=Totals(dispatched=3, outcomes={"ok": 2}),
        ttft={17: 2, 0: 1},
        tpot={},
        chunk_gap={},
        health=Health(cpu_share=0.25),
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_arrives_as_it_was_sent(message: msgspec.Struct) -> None:
    got: list[msgspec.Struct] = []
    channel = Channel(Loop(), on_failure=_raise)
    channel.on(type(message), got.append)
    channel.send(message)
    assert got == [message]


def test_a_failing_handler_is_reported_and_does_not_reach_locust() -> None:
    failures: list[BaseException] = []
    channel = Channel(Loop(), on_failure=failures.append)
    channel.on(Prepare, lambda _: _raise(ValueError("broken")))
    channel.send(MESSAGES[1])
    assert [str(failure) for failure in failures] == ["broken"]


def test_a_message_of_another_version_is_a_failure_not_a_crash() -> None:
    failures: list[BaseException] = []
    loop = Loop()
    Channel(loop, on_failure=failures.append).on(Prepare, _raise)
    loop.send_message(wire_name(Prepare), {"run_id": 3})
    assert len(failures) == 1
    assert isinstance(failures[0], GarbledMessageError)


def _raise(error: Any) -> None:  # noqa: ANN401 - stands for handlers of several kinds
    raise error if isinstance(error, BaseException) else AssertionError(error)
