"""What an event takes in memory between its arrival and the disk, measured by the interpreter's own accounting."""

import tracemalloc
from collections import deque
from collections.abc import Callable

from tests.record_builders import answer, chunks, identity, record

from servebench.core.outcomes import CHUNK_KINDS
from servebench.shards.columns import PartBuffer
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.timeline import End, Timeline

EVENTS = 20_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN)


def bytes_kept(work: Callable[[], object]) -> float:
    """Return what the result of some work takes in memory, per event."""
    tracemalloc.start()
    try:
        kept = work()
        taken = tracemalloc.get_traced_memory()[0]
        assert kept is not None
        return taken / EVENTS
    finally:
        tracemalloc.stop()


def buffer_of(**columns: list[int]) -> PartBuffer:
    buffer = PartBuffer()
    for seq in range(EVENTS // 200):
        buffer.add(record(seq, answer=answer(chunks=chunks(range(200), **columns))))
    return buffer


def test_an_event_without_token_count_takes_16_bytes_until_its_part_is_written() -> None:
    request = bytes_kept(lambda: [record(seq, answer=answer(chunks=chunks([]))) for seq in range(EVENTS // 200)])
    assert bytes_kept(lambda: buffer_of(tokens=[-1] * 200)) - request <= 16


def test_an_event_of_an_open_stream_takes_16_bytes_once_parsed() -> None:
    def parsed() -> Timeline:
        timeline = Timeline(ENDPOINTS["openai-chat"])
        for number, read in enumerate([HEAD, *[CHUNK] * EVENTS]):
            waiting = deque([(read, number, 5)])
            if not timeline.feed_plain(waiting):
                timeline.feed(*waiting.popleft())
        return timeline

    assert bytes_kept(parsed) <= 16


def test_columns_that_begin_late_in_a_part_are_filled_up_before_and_behind() -> None:
    buffer = PartBuffer()
    buffer.add(record(0, answer=answer(chunks=chunks([1, 2], tokens=[-1, -1]))))
    buffer.add(record(1, answer=answer(chunks=chunks([3, 4], tokens=[-1, 7], choice=[0, 3], read=[65_535, 65_536]))))
    buffer.add(record(2, answer=answer(chunks=chunks([5], tokens=[-1], read=[9]))))
    buffer.add(record(3, answer=answer(chunks=chunks([]))))
    table = buffer.to_table(run_id=identity().run_id, worker=identity().worker, epoch_monotonic_ns=0)
    assert table["chunk_tokens"].to_pylist() == [[None, None], [None, 7], [None], []]
    assert table["chunk_choice"].to_pylist() == [[0, 0], [0, 3], [0], []]
    assert table["chunk_read"].to_pylist() == [[0, 1], [65_535, 65_536], [9], []]
    assert table["chunk_kind"].to_pylist()[0] == [CHUNK_KINDS[0], CHUNK_KINDS[0]]


def test_a_stream_of_more_reads_than_two_bytes_count_keeps_every_number() -> None:
    timeline = Timeline(ENDPOINTS["openai-chat"])
    timeline.feed(HEAD, 0, 1)
    last = 70_000
    for number in range(1, last + 1):
        waiting = deque([(CHUNK, number, 1)])
        if not timeline.feed_plain(waiting):
            timeline.feed(*waiting.popleft())
    found = timeline.finish(End.CANCELLED, last).chunks
    assert found is not None
    assert found.read.tolist() == list(range(1, last + 1))
