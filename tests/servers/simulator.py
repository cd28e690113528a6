"""A simulator process for tests, and a client of the standard library that says what it saw and when."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol

from prometheus_client.parser import text_string_to_metric_families

from servebench.sim.truth import TruthRecord, read_truth

ROOT = Path(__file__).parents[2]


@dataclass
class Sim:
    """A running simulator process."""

    process: subprocess.Popen[str]
    port: int
    truth_log: Path
    connections: list[HTTPConnection] = field(default_factory=list)

    def connect(self) -> HTTPConnection:
        """Return a new connection; it is closed when the test ends."""
        self.connections.append(HTTPConnection("127.0.0.1", self.port, timeout=30))
        return self.connections[-1]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> list[TruthRecord]:
        self.process.send_signal(number)
        assert self.process.wait(timeout=20) == 0
        return read_truth(self.truth_log)

    def end(self) -> None:
        """Close every connection and make sure that the process is gone."""
        for connection in self.connections:
            connection.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@dataclass
class Reply:
    """What the client saw; `stamps_ns[i]` is when `events[i]` had been read."""

    status: int
    headers: dict[str, str]
    sent_ns: int
    events: list[str] = field(default_factory=list)
    stamps_ns: list[int] = field(default_factory=list)
    body: bytes = b""

    def decoded(self) -> list[dict[str, Any]]:
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    def token_stamps_ns(self) -> list[int]:
        return [stamp for event, stamp in zip(self.events, self.stamps_ns, strict=True) if text_of(event)]


def text_of(event: str) -> str:
    if event == "[DONE]":
        return ""
    choices = json.loads(event).get("choices") or [{}]
    text: str = choices[0].get("text") or choices[0].get("delta", {}).get("content") or ""
    return text


class StartSim(Protocol):
    """Starts a simulator; every one is ended with the test."""

    def __call__(
        self,
        *options: str,
        preset: str = "fast",
        environment: dict[str, str] | None = None,
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
    ) -> Sim: ...


@contextmanager
def sim_starter(folder: Path) -> Iterator[StartSim]:
    """Give a function that starts simulators with truth logs in `folder`."""
    started: list[Sim] = []

    def start(
        *options: str,
        preset: str = "fast",
        environment: dict[str, str] | None = None,
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
    ) -> Sim:
        truth_log = folder / f"truth-{len(started)}.jsonl"
        process = subprocess.Popen(
            [
                *(*prefix, sys.executable, "-m", "servebench.sim", "--preset", preset, "--host", host),
                *("--truth-log", str(truth_log), *options),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **(environment or {})},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        sim = Sim(process=process, port=int(line.rpartition(":")[2]), truth_log=truth_log)
        started.append(sim)
        assert line == f"listening http://{host}:{sim.port}\n"
        return sim

    try:
        yield start
    finally:
        for sim in started:
            sim.end()


def run_to_end(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "servebench.sim", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ask(
    connection: HTTPConnection,
    body: dict[str, Any] | bytes,
    *,
    path: str = "/v1/chat/completions",
    headers: dict[str, str] | None = None,
) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent_ns = time.monotonic_ns()
    connection.request("POST", path, data, {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    reply = Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, sent_ns)
    if not reply.headers["content-type"].startswith("text/event-stream"):
        reply.body = response.read()
        return reply
    while line := response.readline():
        if line.startswith(b"data: "):
            reply.stamps_ns.append(time.monotonic_ns())
            reply.events.append(line[6:].decode().rstrip("\n"))
    return reply


def chat(max_tokens: int | None = 5, *, stream: bool = True, text: str = "hello", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    options = {"stream_options": {"include_usage": True}} if stream else {}
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return {
        "model": "sim-1",
        "messages": [{"role": "user", "content": text}],
        "stream": stream,
        **options,
        **limit,
        **more,
    }


def get(connection: HTTPConnection, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    connection.request("GET", path, headers=headers or {})
    response = connection.getresponse()
    return response.status, response.read()


def metric(connection: HTTPConnection, name: str) -> float:
    _, text = get(connection, "/metrics")
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            if sample.name == name:
                return sample.value
    raise AssertionError(f"{name} is not in /metrics")


def raw(port: int, data: bytes) -> bytes:
    """Send bytes and return everything until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        received = b""
        while piece := connection.recv(65_536):
            received += piece
    return received
