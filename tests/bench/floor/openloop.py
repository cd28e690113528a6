"""An open-loop dispatcher with nothing around it: one gevent process, a timerfd, gevent sockets that are kept.

    openloop.py PORT RATE REQUESTS TOKENS

Prints the lags of its requests behind their due times, ns, as JSON: the moment before each is sent, after connecting
where no kept connection was free. No rows, no parsing; the end of an answer is seen by its last five bytes.
"""

import ctypes
import gc
import json
import os
import struct
import sys
import time

import gevent
from gevent import socket

TIMERFD_ABSOLUTE = 1
NONBLOCKING = 0o4000


def main() -> None:
    """Send the load and print the lags."""
    port, rate, requests, tokens = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    message = {"role": "user", "content": "Tell me a long story about a ship."}
    body = json.dumps({"model": "mock", "messages": [message], "max_tokens": tokens, "stream": True}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: mock\r\nContent-Type: application/json\r\n"
    request += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    kept: list[socket.socket] = []
    lags: list[int] = []

    def one(due_ns: int) -> None:
        sock = kept.pop() if kept else socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lags.append(time.monotonic_ns() - due_ns)
        sock.sendall(request)
        while not sock.recv(65536).endswith(b"0\r\n\r\n"):
            pass
        kept.append(sock)

    libc = ctypes.CDLL(None, use_errno=True)
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, NONBLOCKING)
    watcher = gevent.get_hub().loop.io(timer, 1)
    gc.collect()
    gc.freeze()
    start_ns = time.monotonic_ns() + 20_000_000
    running = []
    for number in range(requests):
        due_ns = start_ns + int(number * 1e9 / rate)
        if due_ns > time.monotonic_ns():
            libc.timerfd_settime(timer, TIMERFD_ABSOLUTE, struct.pack("4q", 0, 0, *divmod(due_ns, 10**9)), None)
            gevent.get_hub().wait(watcher)
            os.read(timer, 8)
        running.append(gevent.spawn(one, due_ns))
    gevent.joinall(running, raise_error=True)
    print(json.dumps(lags))


if __name__ == "__main__":
    main()
