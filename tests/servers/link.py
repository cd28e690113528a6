"""A network link with delay, jitter and loss between two network namespaces, for kernels without netem.

    python -m tests.servers.link NAMESPACE_A IF_A NAMESPACE_B IF_B DELAY_MS JITTER_MS LOSS_PERCENT

Makes a TAP device of the given name in each namespace and carries Ethernet frames between the two in user space, in
order, each `DELAY_MS` +- `JITTER_MS` late. Root. Prints `ready`, ends with SIGTERM and then prints what it carried.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000


class Link:
    """Two ends and the frames between them; times in seconds, `loss` a share of 1."""

    def __init__(self, ends: tuple[int, int], delay_s: float, jitter_s: float, loss: float) -> None:
        self.carried = self.lost = 0
        self._far = {ends[0]: ends[1], ends[1]: ends[0]}
        self._delay_s, self._jitter_s, self._loss = delay_s, jitter_s, loss
        self._last_s = dict.fromkeys(ends, 0.0)
        self._frames: list[tuple[float, int, int, bytes]] = []
        self._random = random.Random(1)

    def serve(self) -> None:
        """Take in what is there, wait up to half a second for it, and give out what is due."""
        wait_s = max(0.0, min(0.5, self._frames[0][0] - time.monotonic())) if self._frames else 0.5
        for end in select.select(list(self._far), [], [], wait_s)[0]:
            self._take(end)
        while self._frames and self._frames[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(self._frames)
            try:
                os.write(end, frame)
            except OSError:
                self.lost += 1  # the far side is down or full

    def _take(self, end: int) -> None:
        while True:
            try:
                frame = os.read(end, 65_536)
            except BlockingIOError:
                return
            if self._random.random() < self._loss:
                self.lost += 1
                continue
            due_s = time.monotonic() + self._delay_s + self._random.uniform(-self._jitter_s, self._jitter_s)
            self._last_s[end] = max(due_s, self._last_s[end])
            self.carried += 1
            heapq.heappush(self._frames, (self._last_s[end], self.carried, self._far[end], frame))


def tap(namespace: str, name: str) -> int:
    """Return an open TAP device inside a namespace; the descriptor works from outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    here, there = (os.open(path, os.O_RDONLY) for path in ("/proc/self/ns/net", f"/run/netns/{namespace}"))
    if libc.setns(there, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    libc.setns(here, CLONE_NEWNET)
    os.close(here)
    os.close(there)
    return descriptor


def main() -> None:
    """Carry frames until told to end."""
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    first, first_name, second, second_name, *figures = sys.argv[1:]
    delay_ms, jitter_ms, loss_percent = map(float, figures)
    ends = tap(first, first_name), tap(second, second_name)
    link = Link(ends, delay_ms / 1e3, jitter_ms / 1e3, loss_percent / 100)
    print("ready", flush=True)
    while not ended:
        link.serve()
    print(f"carried {link.carried} lost {link.lost}")


if __name__ == "__main__":
    main()
