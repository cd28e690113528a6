"""Proxies, retries and redirects: what the servers on the way saw, and which rows come of it."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.record_builders import identity
from tests.transport_servers import case, replay

from servebench.core.outcomes import Outcome
from servebench.core.records import Ask, RequestRecord
from servebench.core.target import parse_proxy, parse_target
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.transport.client import Client
from servebench.loadgen.worker.counting import AnswerCounter
from servebench.loadgen.worker.live import LiveCounters
from servebench.loadgen.worker.permit import Permit
from servebench.loadgen.worker.recorder import Recorder
from servebench.loadgen.worker.requester import Requester, RequestParts
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.load import parse_workload
from servebench.workload.model import Requests, Timeouts
from servebench.workload.prompts import PromptSet

pytestmark = pytest.mark.integration

CHAT = ENDPOINTS["openai-chat"]
ANSWER = case("H15").read_bytes()
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
MOVED = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /moved?to=here\r\nContent-Length: 0\r\n\r\n"


def read_head(peer: socket.socket) -> bytes:
    """Read up to the blank line, byte by byte, so that nothing behind it is taken."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = peer.recv(1)
        if not byte:
            break
        head += byte
    return head


def read_request(peer: socket.socket) -> bytes:
    """Read a request; return its head."""
    head = read_head(peer)
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    left = int(lengths[0]) if lengths else 0
    while left and (part := peer.recv(left)):
        left -= len(part)
    return head


class Server:
    """A server in native threads: the k-th request of all connections gets the k-th answer, the last one for good."""

    def __init__(self, answers: list[bytes]) -> None:
        self.heads: list[bytes] = []
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *given: socket.socket) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self._start(self._serve, peer)

    def _serve(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer:
            while head := read_request(peer):
                self.heads.append(head)
                peer.sendall(self._answers[min(len(self.heads), len(self._answers)) - 1])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept, which closing would not
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


class ConnectProxy(Server):
    """A proxy that opens tunnels, or answers CONNECT with what it was given."""

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            self.heads.append(head := read_head(peer))
            if self._answers:
                peer.sendall(self._answers[0])
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=copy, args=(far, peer), daemon=True)
                back.start()
                copy(peer, far)
                back.join(5)


def copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def serving(*answers: bytes, kind: type[Server] = Server) -> Iterator[Server]:
    server = kind(list(answers))
    try:
        yield server
    finally:
        server.close()


def fail(error: BaseException) -> None:
    raise error


@contextlib.contextmanager
def client_of(url: str, proxy: str | None = None) -> Iterator[Client]:
    client = Client(
        parse_target(url), CHAT, Timeouts(), headers={}, proxy=None if proxy is None else parse_proxy(proxy)
    )
    try:
        yield client
    finally:
        client.close()


def test_a_proxy_gets_http_requests_whole_with_its_own_credential() -> None:
    with serving(ANSWER) as proxy, client_of("http://llm.test:81/v1", f"http://me:x@127.0.0.1:{proxy.port}") as client:
        exchange = client.perform(b"{}", "r-0-0", None)
    head = proxy.heads[0]
    assert exchange.answer.outcome is Outcome.OK
    assert head.startswith(b"POST http://llm.test:81/v1/chat/completions HTTP/1.1\r\nHost: llm.test:81\r\n")
    assert b"\r\nProxy-Authorization: Basic bWU6eA==\r\n" in head


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


def test_https_goes_through_a_tunnel_that_carries_the_next_request_too(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with (
        replay([case("H15")], tmp_path, "--keep-alive", "--tls", *map(str, certificate)) as server,
        serving(kind=ConnectProxy) as proxy,
        client_of(f"https://127.0.0.1:{server.port}", f"http://me:x@127.0.0.1:{proxy.port}") as client,
    ):
        exchanges = [client.perform(b"{}", "r-0-0", None) for _ in range(2)]
        stats = client.counters.take()
    assert [exchange.answer.outcome for exchange in exchanges] == [Outcome.OK] * 2
    assert [exchange.conn_reused for exchange in exchanges] == [False, True]
    assert stats.kernel_stamped == stats.reads > 0
    (head,) = proxy.heads
    authority = f"127.0.0.1:{server.port}".encode()
    assert head.startswith(b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + authority + b"\r\n")
    assert b"\r\nProxy-Authorization: Basic bWU6eA==\r\n" in head


def test_a_proxy_that_refuses_is_a_connect_error_of_its_own_name() -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    with (
        serving(refusal, kind=ConnectProxy) as proxy,
        client_of("https://127.0.0.1:9", f"http://127.0.0.1:{proxy.port}") as client,
    ):
        answer = client.perform(b"{}", "r-0-0", None).answer
    assert (answer.outcome, answer.error_class) == (Outcome.CONNECT_ERROR, "proxy_error")
    assert answer.error_message is not None
    assert "407" in answer.error_message
    assert "SERVEBENCH_PROXY" in answer.error_message


def test_a_redirect_is_told_and_not_followed_by_the_transport() -> None:
    with serving(MOVED, ANSWER) as server, client_of(f"http://127.0.0.1:{server.port}") as client:
        exchange = client.perform(b"{}", "r-0-0", None)
    assert (exchange.answer.outcome, exchange.answer.error_class) == (Outcome.HTTP_ERROR, "redirect")
    assert exchange.redirected_to == "/moved?to=here"
    assert len(server.heads) == 1


def rows_of(folder: Path, url: str, requests: Requests) -> tuple[list[dict[str, object]], RequestRecord]:
    """Perform one planned request as a worker does; return the rows recorded and the last of them as its caller saw."""
    workload = parse_workload(
        "{name: a, prompts: {source: {kind: mt-bench}}, load: {kind: open, phases: [{name: p, shape: steady, "
        "rate_per_s: 1, duration: 1s}]}}",
        "test",
    )
    prompts = PromptSet.load(workload.prompts)
    recorder = Recorder(folder, identity())
    with client_of(url) as client:
        requester = Requester(
            parts=RequestParts(
                endpoint=CHAT,
                model="m",
                requests=requests,
                prompts=prompts,
                tag="0badcafe",
                target=url,
                mean_gap_ns={},
            ),
            clock=RunClock(identity().epoch_monotonic_ns),
            permit=Permit(),
            client=client,
            recorder=recorder,
            live=LiveCounters(),
            counter=AnswerCounter(None),
            tell_locust=lambda _record, _epoch: None,
            on_failure=fail,
        )
        ask = Ask(7, "p", None, True, requester_now(), 0, None, 16, 7, 0)
        last = requester.perform(ask, requester.render(ask))
        assert requester.wait_idle(5)
    recorder.close()
    return pq.read_table(folder).sort_by("attempt").to_pylist(), last


def requester_now() -> int:
    return RunClock(identity().epoch_monotonic_ns).now_ns()


def test_every_attempt_is_a_row_and_the_schedule_sees_the_first_only(tmp_path: Path) -> None:
    with serving(BUSY, BUSY, ANSWER) as server:
        rows, last = rows_of(tmp_path, f"http://127.0.0.1:{server.port}", Requests(retries=2))
    assert [row["outcome"] for row in rows] == ["http_error", "http_error", "ok"]
    assert [row["attempt"] for row in rows] == [0, 1, 2]
    assert [row["request_id"] for row in rows] == ["0badcafe-7-0", "0badcafe-7-1", "0badcafe-7-2"]
    sent = [f"X-Request-Id: {row['request_id']}\r\n".encode() for row in rows]
    assert [line in head for line, head in zip(sent, server.heads, strict=True)] == [True] * 3
    assert [row["retry_after_s"] for row in rows] == [0.0, 0.0, None]
    assert [row["dispatched_ns"] is None for row in rows] == [False, True, True]
    assert len({row["intended_ns"] for row in rows}) == 1
    assert last.attempt == 2


def ids_of(server: Server) -> list[str]:
    """Return the X-Request-Id of each request that the server saw, in order."""
    lines = [line for head in server.heads for line in head.decode("latin-1").split("\r\n")]
    return [line.split(": ")[1] for line in lines if line.startswith("X-Request-Id: ")]


def test_a_retry_behind_a_redirect_goes_there_again_under_the_next_id(tmp_path: Path) -> None:
    with serving(MOVED, BUSY, ANSWER) as server:
        rows, _ = rows_of(tmp_path, f"http://127.0.0.1:{server.port}", Requests(retries=1, redirects=True))
    assert [row["outcome"] for row in rows] == ["http_error", "http_error", "ok"]
    assert [head.split()[1] for head in server.heads] == [b"/v1/chat/completions", b"/moved?to=here", b"/moved?to=here"]
    assert [row["request_id"] for row in rows] == ids_of(server) == [f"0badcafe-7-{attempt}" for attempt in range(3)]


def test_without_retries_a_failure_is_one_row(tmp_path: Path) -> None:
    with serving(BUSY, ANSWER) as server:
        rows, _ = rows_of(tmp_path, f"http://127.0.0.1:{server.port}", Requests())
    assert [row["outcome"] for row in rows] == ["http_error"]
    assert len(server.heads) == 1


def test_a_followed_redirect_is_two_rows_and_two_requests(tmp_path: Path) -> None:
    with serving(MOVED, ANSWER) as server:
        rows, _ = rows_of(tmp_path, f"http://127.0.0.1:{server.port}", Requests(redirects=True))
    assert [(row["outcome"], row["error_class"]) for row in rows] == [("http_error", "redirect"), ("ok", None)]
    assert [head.split()[1] for head in server.heads] == [b"/v1/chat/completions", b"/moved?to=here"]
    assert [row["request_id"] for row in rows] == ids_of(server) == ["0badcafe-7-0", "0badcafe-7-1"]
