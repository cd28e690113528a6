"""However the bytes of an answer are cut into reads, its end is seen with its last byte and no deadline is needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from servebench.core.outcomes import Outcome
from servebench.core.target import parse_target
from servebench.loadgen.transport.flight import Flight, Lane
from servebench.loadgen.transport.losses import Loss, Lost
from servebench.loadgen.transport.parsing import ParseQueue
from servebench.loadgen.transport.pool import Pool
from servebench.loadgen.transport.reactor import Reactor
from servebench.loadgen.transport.route import Route
from servebench.wire.approach import Approach
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.timeline import Timeline
from servebench.workload.model import Timeouts

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
CRLF_TOKEN = TOKEN.replace(b"\n", b"\r\n")
DONE = b"data: [DONE]\n\n"
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'


def chunked(*events: bytes, trailer: bytes = b"") -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n" + trailer + b"\r\n"


def counted(*events: bytes) -> bytes:
    body = b"".join(events)
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


ENDING_BY_THEMSELVES = st.sampled_from(
    [
        chunked(TOKEN, TOKEN, DONE),
        chunked(TOKEN, TOKEN, STOP, trailer=b"X-T: 1\r\n"),
        chunked(CRLF_TOKEN, CRLF_TOKEN, DONE),
        chunked(TOKEN + TOKEN + STOP),
        counted(TOKEN, TOKEN, DONE),
        counted(TOKEN, TOKEN, STOP),
        b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(TOKEN, TOKEN, DONE),
    ]
)
CUTS = st.lists(st.integers(1, 700), max_size=40)


@contextmanager
def lane() -> Iterator[Lane]:
    reactor, queue = Reactor(), ParseQueue()
    pool = Pool(reactor, Route(approach=Approach(target=parse_target("http://127.0.0.1:1")), addresses=[]))
    yield Lane(pool=pool, queue=queue, timeouts=Timeouts(), stream=True)
    queue.close()
    reactor.close()


def feed(flight: Flight, data: bytes, cuts: list[int]) -> int:
    """Feed the data in reads with stamps 100, 101, ...; return the last stamp."""
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for number, (begin, end) in enumerate(pairwise(places)):
        flight.on_read(data[begin:end], 100 + number, 5)
    return 100 + len(places) - 2


@given(data=ENDING_BY_THEMSELVES, cuts=CUTS)
def test_the_end_of_a_framed_message_needs_no_deadline(data: bytes, cuts: list[int]) -> None:
    with lane() as shared:
        flight = Flight(shared, b"", Timeline(ENDPOINTS["openai-chat"], keep_text=True))
        feed(flight, data, cuts)
        flight.wait()
        answer = flight.exchange(None).answer
        flight.drop()
    assert (answer.outcome, answer.text) == (Outcome.OK, "ww")


@given(cuts=CUTS)
def test_a_body_that_the_connection_ends_needs_no_deadline(cuts: list[int]) -> None:
    with lane() as shared:
        flight = Flight(shared, b"", Timeline(ENDPOINTS["openai-chat"], keep_text=True))
        feed(flight, HEAD + b"\r\n" + TOKEN + TOKEN + STOP, cuts)
        flight.on_lost(Lost(Loss.EOF))
        flight.wait()
        answer = flight.exchange(None).answer
        flight.drop()
    assert (answer.outcome, answer.text) == (Outcome.OK, "ww")


@given(cuts=CUTS)
def test_tokens_have_the_stamp_of_the_read_that_completes_them(cuts: list[int]) -> None:
    data = chunked(TOKEN, TOKEN, DONE)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    first = data.index(b"\n\n") + 2
    second = data.index(b"\n\n", first) + 2
    want = [100 + next(n for n, end in enumerate(places[1:]) if end >= place) for place in (first, second)]
    with lane() as shared:
        flight = Flight(shared, b"", Timeline(ENDPOINTS["openai-chat"]))
        feed(flight, data, cuts)
        flight.wait()
        chunks = flight.exchange(None).answer.chunks
        flight.drop()
    assert chunks is not None
    assert list(chunks.ns[:2]) == want
