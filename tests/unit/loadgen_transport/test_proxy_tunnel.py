"""How a proxy is asked for a tunnel, and what counts as one, for answers cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.wire.tunnel import Tunnel, TunnelRefusedError

OPEN = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 squid\r\n\r\n"


def test_the_request_names_host_and_port_twice() -> None:
    assert Tunnel("llm.test:443", None).request == b"CONNECT llm.test:443 HTTP/1.1\r\nHost: llm.test:443\r\n\r\n"


def test_a_credential_goes_to_the_proxy_alone() -> None:
    request = Tunnel("llm.test:443", "Basic bWU6eA==").request
    assert b"\r\nProxy-Authorization: Basic bWU6eA==\r\n" in request
    assert b"\r\nAuthorization" not in request


@given(st.lists(st.integers(1, len(OPEN) - 1), max_size=6))
def test_the_tunnel_is_there_with_the_last_byte_of_the_head_and_not_before(cuts: list[int]) -> None:
    tunnel = Tunnel("llm.test:443", None)
    edges = [0, *sorted(set(cuts)), len(OPEN)]
    told = [tunnel.feed(OPEN[start:end]) for start, end in pairwise(edges)]
    assert told == [False] * (len(told) - 1) + [True]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407"),
        (b"HTTP/1.0 502 Bad Gateway\r\nX: y\r\n\r\n", "502"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "302"),
        (b"\x16\x03\x01 nonsense\r\n\r\n", "no HTTP"),
        (b"\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 2xx fine\r\n\r\n", "no HTTP"),
        (OPEN + b"x", "more than"),
        (b"HTTP/1.1 200 " + b"x" * 70_000, "no end"),
    ],
)
def test_anything_else_is_refused_with_what_the_proxy_said(answer: bytes, words: str) -> None:
    with pytest.raises(TunnelRefusedError, match=words):
        Tunnel("llm.test:443", None).feed(answer)
