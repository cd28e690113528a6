"""What the preflight says about real sockets that misbehave; each server is a few lines of the standard library."""

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from servebench.cli.preflight import preflight
from servebench.core.errors import InputError
from servebench.inquiry.secrets import read_secrets

pytestmark = pytest.mark.integration

Handler = Callable[[socket.socket, bytes], None]


@contextmanager
def serving(handler: Handler) -> Iterator[tuple[int, list[bytes]]]:
    """Serve one connection after the other; yields the port and the request heads seen."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def loop() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(10)
                    try:
                        head = connection.recv(65536)
                        seen.append(head)
                        handler(connection, head)
                    except OSError:
                        continue

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        yield server.getsockname()[1], seen
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def answering(status: str, body: bytes, *headers: str) -> Handler:
    """Return a handler that gives one HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]

    def handle(connection: socket.socket, _head: bytes) -> None:
        connection.sendall("\r\n".join(lines).encode() + body)

    return handle


ONE_MODEL = answering("200 OK", b'{"object":"list","data":[{"id":"tiny","object":"model"}]}')


def test_the_served_model_is_found_and_the_key_is_sent() -> None:
    with serving(ONE_MODEL) as (port, seen):
        found = preflight(
            f"http://127.0.0.1:{port}/v1", model=None, secrets=read_secrets({"SERVEBENCH_API_KEY": "sk-1"})
        )
    assert found.model == "tiny"
    assert seen[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert b"Authorization: Bearer sk-1\r\n" in seen[0]


def test_userinfo_and_query_of_the_address_reach_the_server() -> None:
    with serving(ONE_MODEL) as (port, seen):
        preflight(f"http://u:p@127.0.0.1:{port}?api-key=k", model="tiny", secrets=read_secrets({}))
    assert seen[0].startswith(b"GET /v1/models?api-key=k HTTP/1.1\r\n")
    assert b"Authorization: Basic dTpw\r\n" in seen[0]


def test_a_closed_port_is_told_with_address_reason_and_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(InputError, match=rf"nothing listens at 127\.0\.0\.1:{port} \(connection refused\)") as caught:
        preflight(f"http://127.0.0.1:{port}", model=None, secrets=read_secrets({}))
    assert "servebench demo" in str(caught.value)


def test_an_address_that_swallows_packets_is_told_after_the_connect_limit() -> None:
    # A full backlog drops further SYNs, as a firewall does.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            waiting.append(one)
        before = time.monotonic()
        with pytest.raises(InputError, match=r"no answer from 127\.0\.0\.1:\d+ in 2 s \(firewall or wrong address\?\)"):
            preflight(f"http://127.0.0.1:{full.getsockname()[1]}", model=None, secrets=read_secrets({}))
        assert time.monotonic() - before >= 1.9
        for one in waiting:
            one.close()


def test_a_host_without_an_address_is_told() -> None:
    with pytest.raises(InputError, match=r'cannot resolve host "no-such-host\.invalid"'):
        preflight("http://no-such-host.invalid:8000", model=None, secrets=read_secrets({}))


def test_a_server_that_never_answers_is_given_up() -> None:
    release = threading.Event()

    def hang(_connection: socket.socket, _head: bytes) -> None:
        release.wait(10)

    with serving(hang) as (port, _):
        try:
            with pytest.raises(InputError, match=rf"127\.0\.0\.1:{port} took the connection and did not answer"):
                preflight(f"http://127.0.0.1:{port}", model=None, secrets=read_secrets({}))
        finally:
            release.set()


def test_a_server_that_drips_its_answer_is_given_up_all_the_same() -> None:
    release = threading.Event()

    def drip(connection: socket.socket, _head: bytes) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 60:
            connection.sendall(bytes([byte]))
            if release.wait(0.2):
                return

    with serving(drip) as (port, _):
        try:
            with pytest.raises(InputError, match=r"no answer from .* to GET /v1/models in 2.5 s"):
                preflight(f"http://127.0.0.1:{port}", model=None, secrets=read_secrets({}))
        finally:
            release.set()


def test_something_that_is_no_http_server_is_told() -> None:
    greeting = b"SSH-2.0-OpenSSH_9.2\r\n"
    with (
        serving(lambda connection, _head: connection.sendall(greeting)) as (port, _),
        pytest.raises(InputError, match=rf"127\.0\.0\.1:{port} does not speak HTTP"),
    ):
        preflight(f"http://127.0.0.1:{port}", model=None, secrets=read_secrets({}))


def test_https_to_a_plain_port_is_told_with_the_address_that_works() -> None:
    with (
        serving(answering("400 Bad Request", b"")) as (port, _),
        pytest.raises(InputError, match=rf"does not speak TLS(.|\n)*--url http://127\.0\.0\.1:{port}"),
    ):
        preflight(f"https://127.0.0.1:{port}/", model=None, secrets=read_secrets({}))


def test_a_certificate_that_nobody_signed_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"),
            *("-days", "1", "-subj", "/CN=localhost"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    def handshake(server: socket.socket) -> None:
        try:
            connection, _ = server.accept()
            with connection, context.wrap_socket(connection, server_side=True):
                pass
        except OSError:
            return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=handshake, args=(server,), daemon=True)
        thread.start()
        with pytest.raises(InputError, match=r"certificate of localhost:\d+ is not trusted"):
            preflight(f"https://localhost:{server.getsockname()[1]}", model=None, secrets=read_secrets({}))
        thread.join(10)


def test_no_message_of_a_failing_preflight_holds_a_secret() -> None:
    url = "http://user:pw-canary-41@127.0.0.1:{}/v1?api-key=sk-canary-42"
    environ = {"SERVEBENCH_API_KEY": "sk-canary-7f3a"}
    for status in ("401 Unauthorized", "500 Oops", "301 Moved"):
        with serving(answering(status, b"sk-canary", "Location: http://x/?t=sk-canary")) as (port, _):
            with pytest.raises(InputError) as caught:
                preflight(url.format(port), model="m", secrets=read_secrets(environ))
            assert "canary" not in str(caught.value)
