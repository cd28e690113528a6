"""A client whose loop is held up: what the kernel stamped stays right, and what shared a read says so."""

import time
from collections import Counter
from pathlib import Path
from statistics import median

import gevent
import pytest
from tests.transport_servers import replay, write_case

from servebench.core.outcomes import Outcome
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_MS
from servebench.loadgen.transport.client import Client
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.model import Timeouts

pytestmark = pytest.mark.integration

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STALL_NS = 40 * NS_PER_MS
ALONE_MS, PAIR_MS = 60, 2


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = chunk(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def hold_up_the_loop() -> None:
    """Let the loop run for 1 ms, then keep it from running for 40."""
    while True:
        gevent.sleep(0.001)
        until_ns = time.monotonic_ns() + STALL_NS
        while time.monotonic_ns() < until_ns:
            pass


def test_stalls_of_the_loop_move_no_stamp_and_reads_of_several_events_are_marked(tmp_path: Path) -> None:
    pairs = [piece for _ in range(12) for piece in ((TOKEN, f"{ALONE_MS} token"), (TOKEN, f"{PAIR_MS} token"))]
    alone = [(TOKEN, f"{ALONE_MS} token") for _ in range(12)]
    made = write_case(tmp_path, [(HEAD, "0 head"), *alone, *pairs, (END, f"{ALONE_MS} end")])
    with replay([made], tmp_path) as server:
        client = Client(parse_target(server.url), ENDPOINTS["openai-chat"], Timeouts(), headers={})
        staller = gevent.spawn(hold_up_the_loop)
        answer = client.perform(b"{}", "r-0-0", None).answer
        staller.kill()
        client.close()
    assert answer.outcome is Outcome.OK
    assert answer.chunks is not None
    written_ns = [write["t_ns"] for write in server.events("sent") if write["label"] == "token"]
    chunks = list(zip(answer.chunks.ns, answer.chunks.delay_ns, answer.chunks.read, strict=True))[: len(written_ns)]
    events_of = Counter(read for _, _, read in chunks)
    single = [
        (stamp, delay, at) for (stamp, delay, read), at in zip(chunks, written_ns, strict=True) if events_of[read] == 1
    ]
    stalled = [row for row in single if row[1] >= STALL_NS / 4]
    assert stalled, "no token came while the loop was held up"
    assert all(stamp >= at for stamp, _, at in stalled)
    assert median(stamp - at for stamp, _, at in stalled) < median(delay for _, delay, _ in stalled) / 2
    assert max(events_of.values()) > 1, "no two tokens shared a read"
    assert all(len({stamp for stamp, _, read in chunks if read == which}) == 1 for which in events_of)
