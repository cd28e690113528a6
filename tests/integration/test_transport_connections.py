"""The transport's connections: kept, stale, refused, stalled, cancelled, many, encrypted."""

import contextlib
import gc
import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pytest
from tests.transport_servers import case, replay, write_case

from servebench.core.errors import HarnessError
from servebench.core.outcomes import Outcome
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_MS
from servebench.loadgen.transport.client import Client
from servebench.loadgen.transport.exchange import Exchange
from servebench.wire.endpoint import Delta
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.model import Timeouts

pytestmark = pytest.mark.integration

CHAT = ENDPOINTS["openai-chat"]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Opener = Callable[..., Client]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def token(text: str) -> bytes:
    event = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return chunk(b"data: " + json.dumps(event).encode() + b"\n\n")


DONE = chunk(b"data: [DONE]\n\n")
END = b"0\r\n\r\n"


@pytest.fixture
def open_client() -> Iterator[Opener]:
    """Give a function that opens a client; all are closed in the end."""
    with contextlib.ExitStack() as stack:

        def opener(
            url: str, timeouts: Timeouts | None = None, *, stream: bool = True, keep_text: bool = False
        ) -> Client:
            limits = timeouts or Timeouts()
            client = Client(parse_target(url), CHAT, limits, headers={}, stream=stream, keep_text=keep_text)
            stack.callback(client.close)
            return client

        yield opener


def perform(client: Client, request_id: str = "r-0-0") -> Exchange:
    return client.perform(b"{}", request_id, None)


def test_a_kept_connection_carries_the_next_request(tmp_path: Path, open_client: Opener) -> None:
    with replay([case("H15")], tmp_path, "--keep-alive") as server:
        client = open_client(server.url)
        exchanges = [perform(client) for _ in range(3)]
        client.close()
    assert [exchange.answer.outcome for exchange in exchanges] == [Outcome.OK] * 3
    assert [exchange.conn_reused for exchange in exchanges] == [False, True, True]
    assert [exchange.stamps.connect_start_ns is None for exchange in exchanges] == [False, True, True]
    assert len(server.events("accept")) == 1


def test_requests_at_once_get_a_connection_each(tmp_path: Path, open_client: Opener) -> None:
    with replay([case("S11")], tmp_path, "--keep-alive") as server:
        client = open_client(server.url)
        tasks = [gevent.spawn(perform, client) for _ in range(70)]
        gevent.joinall(tasks, raise_error=True)
        assert client.inflight == 0
        client.close()
    assert {task.get().answer.outcome for task in tasks} == {Outcome.OK}
    assert len(server.events("accept")) == 70


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(tmp_path: Path, open_client: Opener) -> None:
    with replay([case("H15")], tmp_path) as server:
        client = open_client(server.url)
        first, second = perform(client), perform(client)
        client.close()
    assert first.answer.outcome is second.answer.outcome is Outcome.OK
    assert second.conn_reused is False
    assert len(server.events("accept")) == 2
    assert len(server.events("request")) == 2


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_stale_connection_is_replaced_once_and_keeps_the_original_send(
    how: str, tmp_path: Path, open_client: Opener
) -> None:
    with replay([case("H15")], tmp_path, "--keep-alive", "--break-kept", how) as server:
        client = open_client(server.url)
        perform(client)
        second = perform(client)
        client.close()
    broken = next(end for end in server.events("end") if end["conn"] == 1)
    stamps = second.stamps
    assert second.answer.outcome is Outcome.OK
    assert (second.reconnects, second.conn_reused) == (1, False)
    assert stamps.sent_ns is not None
    assert stamps.connect_start_ns is not None
    assert stamps.sent_ns < broken["t_ns"]
    assert stamps.sent_ns < stamps.connect_start_ns


def test_a_fresh_connection_that_ends_without_a_byte_is_not_tried_again(tmp_path: Path, open_client: Opener) -> None:
    silent = write_case(tmp_path, [(b" ", "*")], "")
    silent.write_bytes(b"")
    silent.with_suffix(".seg").write_text("@rst\n")
    with replay([silent], tmp_path) as server:
        exchange = perform(open_client(server.url))
    assert exchange.answer.outcome is Outcome.CONNECT_ERROR
    assert exchange.reconnects == 0
    assert exchange.answer.chunks is None
    assert len(server.events("request")) == 1


def test_a_refused_port_is_a_connect_error_without_a_send(open_client: Opener) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening
        exchange = perform(open_client(f"http://127.0.0.1:{unused.getsockname()[1]}"))
    assert exchange.answer.outcome is Outcome.CONNECT_ERROR
    assert exchange.answer.error_class == "connection_refused"
    assert exchange.stamps.connect_start_ns is not None
    assert (exchange.stamps.connect_end_ns, exchange.stamps.sent_ns, exchange.conn_reused) == (None, None, None)


def test_a_peer_that_never_accepts_ends_at_the_connect_deadline(open_client: Opener) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # more than the kernel queues: from then on it drops SYN packets, as a black hole does
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        client = open_client(f"http://127.0.0.1:{listener.getsockname()[1]}", Timeouts(connect_ns=150 * NS_PER_MS))
        exchange = perform(client)
    assert (exchange.answer.outcome, exchange.answer.error_class) == (Outcome.TIMEOUT, "timeout_connect")
    assert exchange.answer.error_message == "no connection within 150ms (requests.timeouts.connect)"
    assert exchange.stamps.connect_start_ns is not None
    assert exchange.answer.end_ns >= exchange.stamps.connect_start_ns + 150 * NS_PER_MS
    assert exchange.stamps.sent_ns is None


def test_the_next_address_is_tried_when_one_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replay([case("H15")], tmp_path) as server:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", server.port)) for last in (9, 1)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
        client = Client(parse_target(f"http://llm.test:{server.port}"), CHAT, Timeouts(), headers={})
        outcomes = [perform(client).answer.outcome for _ in range(3)]
        client.close()
    assert outcomes == [Outcome.OK] * 3
    assert len(server.events("accept")) == 3


def test_the_first_token_deadline_runs_from_the_send_and_ignores_the_role_event(
    tmp_path: Path, open_client: Opener
) -> None:
    role = chunk(b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n')
    made = write_case(tmp_path, [(HEAD, "0 head"), (role, "20 role")], "@hold 30000")
    with replay([made], tmp_path) as server:
        exchange = perform(open_client(server.url, Timeouts(first_token_ns=300 * NS_PER_MS, idle_ns=50 * NS_PER_MS)))
    assert exchange.answer.error_class == "timeout_first_token"
    assert exchange.answer.error_message == "no token came within 300ms (requests.timeouts.first_token)"
    assert exchange.stamps.sent_ns is not None
    assert exchange.answer.end_ns >= exchange.stamps.sent_ns + 300 * NS_PER_MS
    assert exchange.answer.chunks is not None
    assert len(exchange.answer.chunks) == 1
    assert server.events("held")[0]["client_closed"]


def test_without_streaming_the_first_token_deadline_does_not_apply(tmp_path: Path, open_client: Opener) -> None:
    body = b'{"choices":[{"index":0,"message":{"content":"late"},"finish_reason":"stop"}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    made = write_case(tmp_path, [(head + body, "300 all")])
    with replay([made], tmp_path) as server:
        client = open_client(server.url, Timeouts(first_token_ns=100 * NS_PER_MS), stream=False, keep_text=True)
        exchange = perform(client)
    assert (exchange.answer.outcome, exchange.answer.text) == (Outcome.OK, "late")


def test_the_total_deadline_keeps_the_tokens_that_came_before_it(tmp_path: Path, open_client: Opener) -> None:
    with replay([case("S00")], tmp_path) as server:
        exchange = perform(open_client(server.url, Timeouts(total_ns=560 * NS_PER_MS), keep_text=True))
    assert exchange.answer.error_class == "timeout_total"
    assert exchange.answer.error_message == "not over after 560ms (requests.timeouts.total)"
    assert exchange.stamps.sent_ns is not None
    assert exchange.answer.end_ns >= exchange.stamps.sent_ns + 560 * NS_PER_MS
    before = [w for w in server.events("sent") if w["label"].startswith("token") and w["t_ns"] < exchange.answer.end_ns]
    assert exchange.answer.text == "".join(f" w{number + 1}" for number in range(len(before)))


def test_an_answer_that_is_over_does_not_wait_for_a_message_that_never_ends(
    tmp_path: Path, open_client: Opener
) -> None:
    made = write_case(tmp_path, [(HEAD, "0"), (token("all") + DONE, "20")], "@hold 30000")
    with replay([made], tmp_path) as server:
        exchange = perform(open_client(server.url, keep_text=True))
    assert (exchange.answer.outcome, exchange.answer.text) == (Outcome.OK, "all")
    assert server.events("held")[0]["client_closed"]
    assert exchange.answer.end_ns < server.events("held")[0]["t_ns"]


def test_an_answer_that_is_over_is_left_though_the_server_talks_on(tmp_path: Path, open_client: Opener) -> None:
    chatter = [(chunk(b": still here\n\n"), "50 chatter")] * 200
    made = write_case(tmp_path, [(HEAD, "0"), (token("all") + DONE, "20"), *chatter])
    with replay([made], tmp_path) as server:
        exchange = perform(open_client(server.url, keep_text=True))
    assert (exchange.answer.outcome, exchange.answer.text) == (Outcome.OK, "all")
    assert len([write for write in server.events("sent") if write["label"] == "chatter"]) < 200


def test_cancelling_ends_what_is_in_flight_and_keeps_what_came(tmp_path: Path, open_client: Opener) -> None:
    made = write_case(tmp_path, [(HEAD, "0"), (token("part"), "0")], "@hold 30000")
    with replay([made], tmp_path) as server:
        client = open_client(server.url, keep_text=True)
        tasks = [gevent.spawn(perform, client) for _ in range(5)]
        received = 0
        while received < 5 * len(HEAD + token("part")):
            gevent.sleep(0.01)
            received += client.counters.take().bytes
        assert client.inflight == 5
        assert client.cancel_all() == 5
        assert client.cancel_all() == 0
        gevent.joinall(tasks, raise_error=True)
        assert client.inflight == 0
    answers = [task.get().answer for task in tasks]
    assert [(answer.outcome, answer.text) for answer in answers] == [(Outcome.CANCELLED, "part")] * 5
    assert all(held["client_closed"] for held in server.events("held"))


def test_a_killed_greenlet_leaves_nothing_behind(tmp_path: Path, open_client: Opener) -> None:
    made = write_case(tmp_path, [(HEAD, "0")], "@hold 30000")
    with replay([made, case("H15")], tmp_path) as server:
        client = open_client(server.url)
        task = gevent.spawn(perform, client)
        while not client.counters.take().bytes:
            gevent.sleep(0.01)
        task.kill()
        assert client.inflight == 0
        assert perform(client).answer.outcome is Outcome.OK
    assert server.events("held")[0]["client_closed"]


def test_finished_requests_leave_nothing_to_the_garbage_collector(tmp_path: Path, open_client: Opener) -> None:
    with replay([case("H15")], tmp_path, "--keep-alive") as server:
        client = open_client(server.url)
        perform(client)
        gc.collect()
        for _ in range(30):
            perform(client)
        found = gc.collect()
        client.close()
    assert found < 30  # less than one object a request


def test_a_fault_of_the_parser_fails_its_own_exchange_only(tmp_path: Path) -> None:
    def decode(data: bytes) -> Delta:
        if b'"poison"' in data:
            raise RuntimeError("poison")
        return CHAT.decode_event(data)

    made = write_case(tmp_path, [(HEAD + token("poison") + DONE + END, "0")])
    with replay([made, case("H15")], tmp_path, "--keep-alive") as server:
        endpoint = CHAT._replace(decode_event=decode)
        client = Client(parse_target(server.url), endpoint, Timeouts(), headers={})
        with pytest.raises(HarnessError, match="poison"):
            perform(client)
        assert perform(client).answer.outcome is Outcome.OK
        client.close()


def test_descriptors_beyond_1023_are_as_good_as_others(tmp_path: Path, open_client: Opener) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"only {hard} descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with replay([case("H15")], tmp_path, "--keep-alive") as server:
            client = open_client(server.url)
            exchanges = [perform(client) for _ in range(20)]
            client.close()
    assert {exchange.answer.outcome for exchange in exchanges} == {Outcome.OK}
    assert len(server.events("accept")) == 1


def test_no_descriptor_is_left_after_closing(tmp_path: Path, open_client: Opener) -> None:
    gevent.sleep(0.001)  # the first hub of a process opens descriptors of its own, which stay
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only
    with replay([case("H15")], tmp_path, "--keep-alive") as server:
        client = open_client(server.url)
        gevent.joinall([gevent.spawn(perform, client) for _ in range(5)], raise_error=True)
        client.close()
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Make a throw-away certificate for 127.0.0.1."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-out", cert, "-keyout", key),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_encrypted_tokens_keep_their_kernel_stamps(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, open_client: Opener
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    pieces = [(HEAD, "0 head"), (token("a"), "60 token1"), (token("b"), "40 token2"), (DONE + END, "20 end")]
    made = write_case(tmp_path, pieces)
    with replay([made], tmp_path, "--keep-alive", "--tls", *map(str, certificate)) as server:
        client = open_client(f"https://127.0.0.1:{server.port}", keep_text=True)
        exchanges = [perform(client) for _ in range(2)]
        stats = client.counters.take()
        client.close()
    assert [(exchange.answer.text, exchange.conn_reused) for exchange in exchanges] == [("ab", False), ("ab", True)]
    assert stats.kernel_stamped == stats.reads
    writes = [write for write in server.events("sent") if write["label"].startswith("token")]
    stamps: list[int] = []
    for exchange in exchanges:
        assert exchange.answer.chunks is not None
        stamps += exchange.answer.chunks.ns[:2]
    assert len(stamps) == len(writes) == 4
    assert all(write["t_ns"] <= stamp for stamp, write in zip(stamps, writes, strict=True))
    assert all(stamp < write["t_ns"] for stamp, write in zip(stamps, writes[1:], strict=False))


def test_a_large_body_goes_out_whole_over_tls(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, open_client: Opener
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with replay([case("H15")], tmp_path, "--tls", *map(str, certificate)) as server:
        client = open_client(f"https://127.0.0.1:{server.port}")
        exchange = client.perform(b"x" * (8 << 20), "r-0-0", time.monotonic_ns())
        client.close()
    assert exchange.answer.outcome is Outcome.OK
    assert server.events("request")[0]["body_bytes"] == 8 << 20


def test_an_untrusted_certificate_is_a_connect_error(
    tmp_path: Path, certificate: tuple[Path, Path], open_client: Opener
) -> None:
    with replay([case("H15")], tmp_path, "--tls", *map(str, certificate)) as server:
        exchange = perform(open_client(f"https://127.0.0.1:{server.port}"))
    assert (exchange.answer.outcome, exchange.answer.error_class) == (Outcome.CONNECT_ERROR, "tls_error")
    assert "certificate" in (exchange.answer.error_message or "")
    assert exchange.stamps.sent_ns is None
    assert server.events("request") == []


def test_plain_http_from_a_tls_port_is_a_connect_error(tmp_path: Path, open_client: Opener) -> None:
    with replay([case("H15")], tmp_path) as server:
        client = open_client(f"https://127.0.0.1:{server.port}", Timeouts(connect_ns=500 * NS_PER_MS))
        exchange = perform(client)
    assert exchange.answer.outcome in {Outcome.CONNECT_ERROR, Outcome.TIMEOUT}
    assert exchange.stamps.sent_ns is None
