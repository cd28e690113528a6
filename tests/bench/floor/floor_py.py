# ruff: noqa
# mypy: ignore-errors
# A yardstick: kept as it was when the figures it is compared with were measured.
"""The floor in plain Python: recv, take the time, nothing else (the end of a response is seen by its last five bytes).
  floor_py.py gevent|epoll|epoll-kts PORT CONCURRENCY REQUESTS TOKENS [OUT.bin] [events]
epoll-kts takes the kernel's receive time of each chunk (SO_TIMESTAMPNS through recvmsg) in place of the clock.
With 'events' every SSE event is counted and timed (bytes.count), not only every recv."""

import sys

mode = sys.argv[1]
if mode == "gevent":
    from gevent import monkey

    monkey.patch_socket()
    import gevent
import json, select, socket, struct, time
from record import Writer

port, conc, total, tokens = map(int, sys.argv[2:6])
w = Writer(sys.argv[6] if len(sys.argv) > 6 else "")
EVENTS = len(sys.argv) > 7
KTS = mode == "epoll-kts"
ts_of = struct.Struct("qq").unpack
now = time.perf_counter_ns
# wall clock minus monotonic: the least of a few tries, so that no preemption is in it
OFF = min((lambda a, b, c: (c - a, b - (a + c) // 2))(now(), time.time_ns(), now()) for _ in range(50))[1]
body = json.dumps(
    {
        "model": "mock",
        "messages": [{"role": "user", "content": "Tell me a long story about a ship."}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
)
started = 0


def request():
    global started
    i = started
    started += 1
    return f"f-{i}", (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nX-Request-Id: f-{i}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def connect():
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if KTS:
        s.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
    return s


def user():
    s = connect()
    recv = s.recv
    while started < total:
        rid, req = request()
        ts = []
        add = ts.append
        t0 = now()
        s.sendall(req)
        while True:
            d = recv(65536)
            t = now()
            if EVENTS:
                ts += [t] * d.count(b"\n\n")
            else:
                add(t)
            if d[-5:] == b"0\r\n\r\n":
                break
        w.add(rid, t0, t, ts if EVENTS else ts[1:])  # the first recv is the head alone


def run_epoll():
    ep = select.epoll()
    st = {}
    live = 0

    def begin(fd):
        s = st[fd]
        rid, req = request()
        s[1:] = [rid, [], now()]
        s[0].sendall(req)

    for _ in range(min(conc, total)):
        s = connect()
        ep.register(s, select.EPOLLIN)
        st[s.fileno()] = [s, 0, 0, 0]
        begin(s.fileno())
        live += 1
    while live:
        for fd, _ in ep.poll():
            s = st[fd]
            if KTS:
                d, anc, _, _ = s[0].recvmsg(65536, 64)
                if anc:  # the kernel starts to stamp a moment after the first setsockopt
                    sec, ns = ts_of(anc[0][2])
                    t = sec * 1000000000 + ns - OFF
                else:
                    t = now()
            else:
                d = s[0].recv(65536)
                t = now()
            if EVENTS:
                s[2] += [t] * d.count(b"\n\n")
            else:
                s[2].append(t)
            if d[-5:] == b"0\r\n\r\n":
                w.add(s[1], s[3], t, s[2] if EVENTS else s[2][1:])
                if started < total:
                    begin(fd)
                else:
                    live -= 1


if mode == "gevent":
    gevent.joinall([gevent.spawn(user) for _ in range(conc)], raise_error=True)
else:
    run_epoll()
w.close()
