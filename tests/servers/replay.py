"""Replay recorded HTTP responses byte for byte, cut in time as their plans say, and log when each byte left.

    python -m tests.servers.replay FILE.http [FILE.http ...] --log LOG [--chunk-bytes N] [--keep-alive]
                                   [--break-kept close|reset] [--tls CERT KEY]

The k-th request gets the k-th file, cyclically. A sibling FILE.seg holds the plan, a step a line:
`SIZE [DELAY_MS] [LABEL]` waits, then writes the next SIZE bytes; `@hold MS` sends nothing for MS or until the client
hangs up; `@rst` resets the connection. Without a plan, or with --chunk-bytes, the bytes go out whole or in pieces.

--break-kept: the first connection ends, with a FIN or a reset, in place of an answer to its second request.
One line on stdout, "listening PORT", says that connections are accepted. The log holds a JSON object a line; `t_ns` is
CLOCK_MONOTONIC just before the event, `done_ns` just after a write. The end of stdin ends the server, once every
connection is over: then the log is whole.
"""

import argparse
import itertools
import json
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RESET = struct.pack("ii", 1, 0)


class Step(NamedTuple):
    """One step of a plan: bytes [begin, end) after a delay; or a hold of `delay_s`; or a reset."""

    kind: str
    begin: int = 0
    end: int = 0
    delay_s: float = 0.0
    label: str = ""


class Reply(NamedTuple):
    name: str
    data: bytes
    plan: list[Step]


class Options(NamedTuple):
    keep_alive: bool
    break_kept: str | None
    context: ssl.SSLContext | None


class Log:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def __call__(self, event: str, connection: int, t_ns: int | None = None, **more: object) -> None:
        stamp = time.monotonic_ns() if t_ns is None else t_ns
        with self._lock:
            self._file.write(json.dumps({"ev": event, "conn": connection, "t_ns": stamp, **more}) + "\n")
            self._file.flush()


def read_plan(text: str, size: int) -> Iterator[Step]:
    """Yield the steps of a plan for `size` bytes; raises ValueError when they do not cover them."""
    begin = 0
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if words[0] == "@rst":
            yield Step("reset")
        elif words[0] == "@hold":
            yield Step("hold", delay_s=float(words[1]) / 1000)
        else:
            end = size if words[0] == "*" else begin + int(words[0])
            delay_s = float(words[1]) / 1000 if len(words) > 1 else 0.0
            yield Step("send", begin, end, delay_s, " ".join(words[2:]))
            begin = end
    if begin != size:
        msg = f"the plan covers {begin} of {size} bytes"
        raise ValueError(msg)


def load(path: Path, chunk_bytes: int) -> Reply:
    data, plan = path.read_bytes(), path.with_suffix(".seg")
    if plan.exists() and not chunk_bytes:
        return Reply(path.name, data, list(read_plan(plan.read_text("utf-8"), len(data))))
    size = chunk_bytes or len(data)
    steps = [Step("send", begin, min(begin + size, len(data))) for begin in range(0, len(data), size)]
    return Reply(path.name, data, steps)


class Requests:
    """Read requests off a connection: just enough HTTP to know where one ends."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = b""

    def begin(self) -> bool:
        """Wait for the first byte of the next request; False when the client closed."""
        if not self._buffer:
            self._buffer = self._sock.recv(65536)
        return bool(self._buffer)

    def read(self) -> tuple[list[str], int]:
        """Return the head's lines and the size of the body."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        lengths = [line.partition(":")[2] for line in lines if line.lower().startswith("content-length:")]
        size = int(lengths[0]) if lengths else 0
        missing = size - len(self._buffer)
        while missing > 0:
            missing -= len(self._sock.recv(min(missing, 1 << 20)) or self._gone())
        self._buffer = self._buffer[size:]
        return lines, size

    def _more(self) -> None:
        self._buffer += self._sock.recv(65536) or self._gone()

    @staticmethod
    def _gone() -> bytes:
        msg = "client closed in mid-request"
        raise ConnectionAbortedError(msg)


def hold(sock: socket.socket, seconds: float) -> bool:
    """Send nothing; True if the client hung up meanwhile."""
    ready, _, _ = select.select([sock], [], [], seconds)
    return bool(ready)


def answer(sock: socket.socket, number: int, reply: Reply, log: Log) -> str | None:
    """Play one reply; return why the connection ends, None when it goes on."""
    due = time.monotonic()
    for step in reply.plan:
        if step.kind == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return "reset"
        if step.kind == "hold":
            closed = hold(sock, step.delay_s)
            log("held", number, client_closed=closed)
            if closed:
                return "client closed during a hold"
            due = time.monotonic()
            continue
        due += step.delay_s  # against a schedule, so that delays do not add up their errors
        time.sleep(max(0.0, due - time.monotonic()))
        before = time.monotonic_ns()
        sock.sendall(reply.data[step.begin : step.end])
        log("sent", number, before, begin=step.begin, end=step.end, done_ns=time.monotonic_ns(), label=step.label)
    return None


def serve(sock: socket.socket, number: int, options: Options, replies: Iterator[Reply], log: Log) -> str:
    requests = Requests(sock)
    for count in itertools.count(1):
        if not requests.begin():
            return "client closed"
        if number == 1 and count == 2 and options.break_kept is not None:
            if options.break_kept == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return f"broke the kept connection: {options.break_kept}"
        began = time.monotonic_ns()
        head, size = requests.read()
        reply = next(replies)
        log("request", number, began, head=head, body_bytes=size, file=reply.name)
        why = answer(sock, number, reply, log)
        if why is not None:
            return why
        if not options.keep_alive:
            break
    sock.shutdown(socket.SHUT_WR)
    sock.settimeout(5)
    while sock.recv(65536):
        pass
    return "closed"


def connection(sock: socket.socket, number: int, options: Options, replies: Iterator[Reply], log: Log) -> None:
    log("accept", number)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.context is not None:
            sock = options.context.wrap_socket(sock, server_side=True)
        with sock:
            why = serve(sock, number, options, replies, log)
    except (OSError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
    finally:
        sock.close()
    log("end", number, why=why)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--chunk-bytes", type=int, default=0)
    parser.add_argument("--keep-alive", action="store_true")
    parser.add_argument("--break-kept", choices=["close", "reset"])
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    given = parser.parse_args()
    context = None
    if given.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*given.tls)
    options = Options(given.keep_alive, given.break_kept, context)
    replies = itertools.cycle([load(path, given.chunk_bytes) for path in given.files])
    log = Log(given.log)
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print("listening", listener.getsockname()[1], flush=True)

        def accept() -> None:
            for number in itertools.count(1):
                sock, _ = listener.accept()
                thread = threading.Thread(target=connection, args=(sock, number, options, replies, log), daemon=True)
                threads.append(thread)
                thread.start()

        threading.Thread(target=accept, daemon=True).start()
        sys.stdin.read()
    for thread in threads:
        thread.join(10)


if __name__ == "__main__":
    main()
