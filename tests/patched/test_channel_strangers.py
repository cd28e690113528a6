"""Whatever arrives at the port of the workers: the master leaves it out and goes on hearing its workers."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gevent
import msgpack  # type: ignore[import-untyped] # Locust's own
import msgspec
import pytest
import zmq.green as zmq
from locust import __version__ as locust_version
from locust.env import Environment
from locust.runners import MasterRunner

from servebench.loadgen import compat, messages
from servebench.loadgen.channel import Channel, GarbledMessageError, wire_name
from servebench.loadgen.messages import ClockPing, ClockPong

KINDS = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
LOCUSTS = ("client_ready", "heartbeat", "stats", "spawning", "spawning_complete", "client_stopped", "exception", "logs")
ODD: tuple[Any, ...] = (None, 0, -1, 2**63, 1.5, "", "../../x", "=1+1", b"\xff", [], [[]], {}, {"a": {}}, True)


@dataclass
class Port:
    """A real master's port, and what its handlers got."""

    runner: MasterRunner
    number: int
    pings: list[ClockPing] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    context: "zmq.Context[zmq.Socket[bytes]]" = field(default_factory=zmq.Context)

    def dial(self, name: str) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, name.encode())
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://127.0.0.1:{self.number}")
        return socket


@pytest.fixture
def port() -> Iterator[Port]:
    compat.apply()
    environment = Environment(user_classes=[])
    runner = environment.create_master_runner("127.0.0.1", 0)
    made = Port(runner, runner.server.port)
    channel = Channel(runner, made.failures.append)
    for kind in KINDS:
        if kind is not ClockPing:
            channel.on(kind, lambda _: None)

    def on_ping(ping: ClockPing) -> None:
        made.pings.append(ping)
        channel.send(ClockPong(t0_monotonic_ns=ping.t0_monotonic_ns, master_monotonic_ns=1), ping.worker_id)

    channel.on(ClockPing, on_ping)
    yield made
    runner.quit()
    made.context.destroy(linger=0)
    runner.server.socket.context.destroy(linger=0)


def answered(port: Port, socket: "zmq.Socket[bytes]", name: str, number: int) -> bool:
    """Ask the master for the time and say whether it answers this very question within 20 s."""
    socket.send(msgpack.dumps((wire_name(ClockPing), {"worker_id": name, "t0_monotonic_ns": number}, name)))
    while socket.poll(20_000):
        kind, data, _ = msgpack.loads(socket.recv())
        if kind == wire_name(ClockPong) and data["t0_monotonic_ns"] == number:
            return True
    return False


def garbled(rng: random.Random, name: str) -> list[bytes]:
    """Return the frames of one message that no worker sends."""
    kind = rng.choice([*map(wire_name, KINDS), *LOCUSTS, *ODD])
    fields = [word for one in KINDS for word in one.__struct_fields__]
    data = rng.choice(ODD) if rng.random() < 0.5 else {rng.choice(fields): rng.choice(ODD) for _ in range(6)}
    whole = msgpack.dumps((kind, data, rng.choice([name, *ODD])), default=str) if not _too_big(kind, data) else b"\xc1"
    match rng.randrange(5):
        case 0:
            return [rng.randbytes(rng.randrange(40))]
        case 1:
            return [rng.randbytes(9) for _ in range(rng.randrange(2, 5))]
        case 2:
            return [whole[: rng.randrange(1 + len(whole))]]
        case 3:
            return [bytes(byte ^ (rng.random() < 0.05) * rng.randrange(256) for byte in whole)]
    return [whole]


def _too_big(*values: object) -> bool:
    """Whether msgpack has no number for one of these."""
    return any(2**63 in value.values() if isinstance(value, dict) else value == 2**63 for value in values)


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_and_messages_out_of_form_never_make_the_master_deaf(port: Port, seed: int) -> None:
    rng = random.Random(seed)
    worker, stranger, known = port.dial("worker"), port.dial("stranger"), port.dial("known")
    for socket, name in ((worker, "worker"), (known, "known")):
        socket.send(msgpack.dumps(("client_ready", locust_version, name)))
    assert answered(port, worker, "worker", 1)
    for number in range(1_000):
        for socket, name in ((stranger, "stranger"), (known, "known")):
            socket.send_multipart(garbled(rng, name))
        if number % 100 == 0:
            gevent.sleep(0)
    for socket in (stranger, known):
        socket.send(b"\xc1")
    assert answered(port, worker, "worker", 2)
    assert "worker" in port.runner.clients
    assert {type(failure) for failure in port.failures} == {GarbledMessageError}, "it was tried, and each is told apart"


@pytest.mark.parametrize(
    ("kind", "field_name", "value"),
    [
        ("Hello", "worker", "../../etc/x"),
        ("Hello", "worker", "w0-0000000g"),
        ("Hello", "worker", "w0-00000000\n"),
        ("Hello", "host", "h" * 256),
        ("NeedSeqs", "blocks", 10**12),
        ("NeedSeqs", "blocks", 0),
        ("Status", "ttft", {10**9: 1}),
    ],
)
def test_a_value_that_would_do_harm_is_no_message(port: Port, kind: str, field_name: str, value: object) -> None:
    sound: dict[str, dict[str, Any]] = {
        "Hello": {"worker_id": "x", "worker": "w0-00000000", "host": "h", "pid": 1, "boot_id": "b"},
        "NeedSeqs": {"run_id": "r", "worker_id": "x", "blocks": 1},
        "Status": {key: {} for key in ("totals", "health", "ttft", "tpot", "chunk_gap")}
        | {"run_id": "r", "worker_id": "x", "done": False},
    }
    worker = port.dial("worker")
    for data in (sound[kind], sound[kind] | {field_name: value}):
        worker.send(msgpack.dumps((f"servebench.{kind}", data, "worker")))
    assert answered(port, worker, "worker", 4)
    assert [type(failure) for failure in port.failures] == [GarbledMessageError]
