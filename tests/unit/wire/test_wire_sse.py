"""What the event-stream format says of single streams; laws for any stream are in tests/property."""

import pytest

from servebench.wire.sse import EventDecoder

STREAMS = {
    "LF": (b"data: a\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"", b"a"), (b"", b"b")]),
    "CR": (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
    "no space": (b"data:a\n\n", [(b"", b"a")]),
    "one space of two goes": (b"data:  a\n\n", [(b"", b" a")]),
    "several data lines": (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
    "comments": (b": ping\n:\n\n:OPEN\ndata: a\n\n", [(b"", b"a")]),
    "name": (b"event: error\ndata: a\n\ndata: b\n\n", [(b"error", b"a"), (b"", b"b")]),
    "name without data is no event": (b"event: error\n\ndata: b\n\n", [(b"", b"b")]),
    "byte-order mark": (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
    "mark in a later event is no mark": (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [(b"", b"a")]),
    "unknown fields": (b"id: 7\nretry: 5\nfoo: bar\nfoo\ndata: a\n\n", [(b"", b"a")]),
    "line ends of both sorts": (b"data: a\rdata: b\n\n", [(b"", b"a\nb")]),
    "blanks at the end stay": (b"data:a \n\ndata: b \n\n", [(b"", b"a "), (b"", b"b ")]),
    "empty data": (b"data:\n\ndata\n\ndata: \n\n", [(b"", b""), (b"", b""), (b"", b"")]),
    "bytes 85 and A0 end no line": (
        b"data: \xe5\x85\xa8\xc2\x85\xc2\xa0\n\n",
        [(b"", b"\xe5\x85\xa8\xc2\x85\xc2\xa0")],
    ),
    "unfinished event": (b"data: a\n\ndata: b\n", [(b"", b"a")]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize(("stream", "events"), STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_a_stream_has_these_events(stream: bytes, events: list[tuple[bytes, bytes]], step: int) -> None:
    decoder = EventDecoder()
    found = [event for at in range(0, len(stream), step) for event in decoder.feed(stream[at : at + step])]
    assert [(event.name, event.data) for event in found] == events


def test_an_event_is_there_with_the_cr_of_its_blank_line() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\r\n") == []
    assert [event.data for event in decoder.feed(b"\r")] == [b"a"]
    assert decoder.feed(b"\n") == []


def test_a_whole_event_in_one_read_does_not_overtake_an_unfinished_one() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert [event.data for event in decoder.feed(b"data: b\n\n")] == [b"a\nb"]


def test_a_read_that_ends_one_byte_into_a_line_is_no_whole_event() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\nd") == []
    assert [event.data for event in decoder.feed(b"ata: b\n\n")] == [b"a\nb"]


def test_half_a_byte_order_mark_is_part_of_the_first_line() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"\xef\xbb") == []
    assert decoder.feed(b"data: a\n\n") == []
    assert [event.data for event in decoder.feed(b"data: b\n\n")] == [b"b"]


def test_flush_gives_the_event_without_its_blank_line_once() -> None:
    decoder = EventDecoder()
    decoder.feed(b"event: x\ndata: [DO")
    decoder.feed(b"NE]")
    event = decoder.flush()
    assert event is not None
    assert (event.name, event.data) == (b"x", b"[DONE]")
    assert decoder.flush() is None


def test_flush_gives_nothing_where_only_a_comment_or_a_name_is_left() -> None:
    decoder = EventDecoder()
    decoder.feed(b"event: x\n: ping")
    assert decoder.flush() is None
