"""How one HTTP/1 response is framed (RFC 9112), told through the parser's attributes."""

import gzip
import zlib

import pytest

from servebench.wire.coding import PIECE_BYTES, Inflater
from servebench.wire.http import MAX_FRAMING_BYTES, MAX_HEAD_BYTES, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"


def parsed(*reads: bytes) -> tuple[ResponseParser, bytes]:
    parser = ResponseParser()
    body = b"".join(part for read in reads for part in parser.feed(read))
    return parser, body


def test_a_counted_body_ends_by_its_length_and_leaves_the_connection_usable() -> None:
    parser, body = parsed(OK + b"Content-Length: 5\r\n\r\nhel", b"lo")
    assert (body, parser.complete, parser.reusable, parser.close_delimited) == (b"hello", True, True, False)


def test_a_chunked_body_ends_by_its_last_chunk_and_its_trailers_are_no_headers() -> None:
    parser, body = parsed(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", b"Retry-After: 9\r\n\r\n")
    assert (body, parser.complete, parser.reusable) == (b"abc", True, True)
    assert b"retry-after" not in parser.headers


def test_a_body_without_length_never_completes_by_itself() -> None:
    parser, body = parsed(OK + b"\r\nab", b"cd")
    assert (body, parser.complete, parser.close_delimited, parser.reusable) == (b"abcd", False, True, False)


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n", OK + b"Connection: close\r\n"], ids=["1.0", "close"])
def test_a_server_that_closes_leaves_nothing_to_reuse(head: bytes) -> None:
    parser, body = parsed(head + b"Content-Length: 2\r\n\r\nhi")
    assert (body, parser.complete, parser.reusable) == (b"hi", True, False)


def test_interim_responses_are_not_the_response() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 1\r\nLocation: /x\r\n\r\n"
    parser, body = parsed(b"HTTP/1.1 100 Continue\r\n\r\n", early)
    assert (parser.status, parser.head_done, parser.complete) == (None, False, False)
    body = b"".join(parser.feed(b"HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx"))
    assert (parser.status, body, parser.reusable) == (201, b"x", True)
    assert b"location" not in parser.headers


def test_header_names_are_told_in_lower_case() -> None:
    parser, _ = parsed(OK + b"CONTENT-TYPE: Text/HTML\r\nX-Other: 1\r\nContent-Length: 0\r\n\r\n")
    assert parser.headers == {b"content-type": b"Text/HTML", b"content-length": b"0"}


@pytest.mark.parametrize("extra", [b"x", OK + b"Content-Length: 1\r\n\r\nx"], ids=["junk", "another response"])
@pytest.mark.parametrize("together", [True, False], ids=["same read", "next read"])
def test_bytes_after_the_message_make_the_connection_unusable(extra: bytes, *, together: bool) -> None:
    response = OK + b"Content-Length: 2\r\n\r\nhi"
    parser, body = parsed(response + extra) if together else parsed(response, extra)
    assert (body, parser.complete, parser.extra, parser.reusable) == (b"hi", True, True, False)
    assert parser.fault is None


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=["other protocol", "status", "chunk size", "length", "upgrade"],
)
def test_what_is_no_http_is_a_fault_and_not_an_exception(data: bytes) -> None:
    parser, _ = parsed(data, b"more")
    assert parser.fault
    assert (parser.complete, parser.reusable) == (False, False)


def test_a_head_without_end_is_a_fault() -> None:
    parser = ResponseParser()
    parser.feed(OK)
    for number in range(MAX_HEAD_BYTES // 1000 + 1):
        parser.feed(b"X-%d: %s\r\n" % (number, b"a" * 1000))
    assert parser.fault is not None
    assert str(MAX_HEAD_BYTES) in parser.fault


@pytest.mark.parametrize("endless", [b"X-T: ", b"X-T: 1\r\n"], ids=["value", "trailers"])
def test_trailers_without_end_are_a_fault(endless: bytes) -> None:
    parser, body = parsed(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n" + endless)
    for _ in range(MAX_FRAMING_BYTES // 10_000 + 1):
        parser.feed(b"x" * 10_000 if endless.endswith(b" ") else endless * 1_250)
    assert body == b"hi"
    assert parser.fault is not None
    assert str(MAX_FRAMING_BYTES) in parser.fault


CODINGS = {
    "gzip": (b"gzip", gzip.compress(b"hello" * 100)),
    "two gzip members": (b"x-gzip", gzip.compress(b"hello" * 60) + gzip.compress(b"hello" * 40)),
    "deflate wrapped": (b"deflate", zlib.compress(b"hello" * 100)),
    "deflate bare": (b"deflate", zlib.compress(b"hello" * 100, wbits=-15)),
}


@pytest.mark.parametrize(("coding", "data"), CODINGS.values(), ids=CODINGS.keys())
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_coding_is_undone_however_it_is_cut(coding: bytes, data: bytes, step: int) -> None:
    inflater = Inflater(coding)
    plain = b"".join(piece for at in range(0, len(data), step) for piece in inflater.feed(data[at : at + step]))
    assert plain == b"hello" * 100


def test_a_flushed_piece_comes_out_before_the_end_of_the_body() -> None:
    deflater = zlib.compressobj(wbits=31)
    first = deflater.compress(b"data: a\n\n") + deflater.flush(zlib.Z_SYNC_FLUSH)
    assert b"".join(Inflater(b"gzip").feed(first)) == b"data: a\n\n"


def test_a_bomb_comes_out_in_bounded_pieces() -> None:
    bomb = gzip.compress(b"0" * (5 * PIECE_BYTES))
    sizes = [len(piece) for piece in Inflater(b"gzip").feed(bomb)]
    assert sum(sizes) == 5 * PIECE_BYTES
    assert max(sizes) <= PIECE_BYTES


def test_bytes_of_another_coding_raise_zlib_error() -> None:
    with pytest.raises(zlib.error):
        list(Inflater(b"gzip").feed(b"data: a\n\n"))
