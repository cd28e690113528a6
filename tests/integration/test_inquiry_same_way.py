"""Every question before the load reaches the server as the load will: compared with what the transport sends."""

import contextlib
import gzip
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.test_cli_preflight_servers import answering, serving

from servebench.cli.preflight import preflight
from servebench.cli.probe import Prober
from servebench.cli.way_options import Way
from servebench.core.errors import InputError
from servebench.core.target import parse_target
from servebench.inquiry.secrets import Secrets, read_secrets
from servebench.inquiry.way import approach_to
from servebench.loadgen.master.models import only_model
from servebench.loadgen.transport.client import Client
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.load import parse_workload
from servebench.workload.model import Workload

pytestmark = pytest.mark.integration

MODELS = b'{"object":"list","data":[{"id":"tiny","object":"model"}]}'
URL = "http://user:pw@llm.test:81/gw/v1?tier=2"
ENVIRON = {"SERVEBENCH_API_KEY": "sk-1", "SERVEBENCH_HEADERS": "X-Tenant: 7\nx-team: env"}
WORKLOAD = """
name: way
target: {endpoint: anthropic-messages, model: tiny}
prompts: {source: {kind: mt-bench}, output_tokens: {from: fixed, tokens: 1}}
requests: {headers: {X-Team: file, X-Route: blue}}
load: {kind: open, arrivals: {process: constant}, phases: [{name: a, shape: steady, rate_per_s: 1, duration: 1s}]}
"""
ALONE = {"content-type", "accept", "content-length", "x-request-id"}
"""Headers that only a request with a body has, or that name a single request."""


def workload() -> Workload:
    return parse_workload(WORKLOAD, "way.yaml")


def by_load(secrets: Secrets) -> None:
    given = workload()
    endpoint = ENDPOINTS[given.target.endpoint]
    way = approach_to(parse_target(URL), endpoint, secrets, headers=given.requests.headers, proxy=None)
    client = Client(way.target, endpoint, given.requests.timeouts, headers=way.headers, proxy=way.proxy)
    client.perform(b"{}", "r-0-0", None)
    client.close()


def by_preflight(secrets: Secrets) -> None:
    assert preflight(URL, model=None, secrets=secrets, workload=workload()).model == "tiny"


def by_master(secrets: Secrets) -> None:
    assert only_model(parse_target(URL), workload(), secrets) == "tiny"


def by_check(secrets: Secrets) -> None:
    way = Way(headers={"X-Route": "blue"})
    prober = Prober(target=parse_target(URL), endpoint=ENDPOINTS["anthropic-messages"], secrets=way.over(secrets))
    assert prober.first("/v1/models").status == 200
    prober.caller.close()


def by_check_stream(secrets: Secrets) -> None:
    way = Way(headers={"X-Route": "blue"})
    endpoint = ENDPOINTS["anthropic-messages"]
    prober = Prober(target=parse_target(URL), endpoint=endpoint, secrets=way.over(secrets))
    prober.stream(endpoint, "tiny", {})
    prober.caller.close()


def head(ask: Callable[[Secrets], None]) -> tuple[str, set[str]]:
    """Return the target of the request that a proxy saw, without the endpoint's path, and its headers."""
    with serving(answering("200 OK", MODELS)) as (port, seen):
        ask(read_secrets(ENVIRON | {"SERVEBENCH_PROXY": f"http://me:x@127.0.0.1:{port}"}))
    lines = seen[0].decode("latin-1").partition("\r\n\r\n")[0].split("\r\n")
    target = lines[0].split()[1].replace("/v1/models", "/v1/messages")
    return target, {line for line in lines[1:] if line.partition(":")[0].lower() not in ALONE}


@pytest.mark.parametrize("ask", [by_preflight, by_master, by_check, by_check_stream])
def test_a_question_goes_through_the_proxy_with_the_heads_of_the_load(ask: Callable[[Secrets], None]) -> None:
    target, headers = head(by_load)
    assert target == "http://llm.test:81/gw/v1/messages?tier=2"
    assert {
        "Host: llm.test:81",
        "Authorization: Bearer sk-1",
        "x-api-key: sk-1",
        "anthropic-version: 2023-06-01",
        "Proxy-Authorization: Basic bWU6eA==",
        "X-Tenant: 7",
        "x-team: env",
        "X-Route: blue",
    } <= headers
    assert head(ask) == (target, headers)


@contextlib.contextmanager
def tls_proxy(folder: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Serve one tunnel: CONNECT is granted, then TLS is spoken with a certificate for llm.test that `folder` holds."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"),
            *("-days", "1", "-subj", "/CN=llm.test", "-addext", "subjectAltName=DNS:llm.test"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    seen: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            plain, _ = listener.accept()
            plain.settimeout(10)
            seen.append(plain.recv(65536))
            plain.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with context.wrap_socket(plain, server_side=True) as secure:
                seen.append(secure.recv(65536))
                answering("200 OK", MODELS)(secure, b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], seen
        thread.join(10)


def test_https_is_asked_through_a_tunnel_and_the_key_stays_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_proxy(tmp_path) as (port, seen):
        monkeypatch.setenv("SSL_CERT_FILE", os.fspath(tmp_path / "cert.pem"))
        secrets = Secrets(api_key="sk-1", proxy=f"http://me:x@127.0.0.1:{port}")
        assert preflight("https://llm.test/v1", model=None, secrets=secrets).model == "tiny"
    assert seen[0].split(b"\r\n")[:3] == [
        b"CONNECT llm.test:443 HTTP/1.1",
        b"Host: llm.test:443",
        b"Proxy-Authorization: Basic bWU6eA==",
    ]
    assert b"sk-1" not in seen[0]
    assert seen[1].startswith(b"GET /v1/models HTTP/1.1\r\nHost: llm.test\r\n")
    assert b"Authorization: Bearer sk-1\r\n" in seen[1]
    assert b"Proxy-Authorization" not in seen[1]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("407 Proxy Authentication Required", "proxy 127.0.0.1:.* 407; give user and password in SERVEBENCH_PROXY"),
        ("502 Bad Gateway", "refuses the tunnel with status 502"),
    ],
)
def test_a_proxy_that_gives_no_tunnel_is_told(status: str, words: str) -> None:
    with serving(answering(status, b"")) as (port, _), pytest.raises(InputError, match=words):
        preflight("https://llm.test", model=None, secrets=Secrets(proxy=f"http://127.0.0.1:{port}"))


def test_a_proxy_that_is_not_there_is_told_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(InputError, match=rf"nothing listens at 127\.0\.0\.1:{port}, the proxy"):
        preflight("http://llm.test", model=None, secrets=Secrets(proxy=f"http://127.0.0.1:{port}"))


def test_a_proxy_that_wants_a_password_for_http_is_told() -> None:
    with (
        serving(answering("407 Proxy Authentication Required", b"")) as (port, _),
        pytest.raises(InputError, match=r"proxy wants user and password \(407\)"),
    ):
        preflight("http://llm.test", model=None, secrets=Secrets(proxy=f"http://127.0.0.1:{port}"))


def test_a_redirect_is_followed_where_the_workload_follows_them() -> None:
    text = WORKLOAD.replace("headers:", "redirects: true, headers:")
    answers = [answering("308 Moved", b"", "Location: /new/models"), answering("200 OK", MODELS)]

    def answer(peer: socket.socket, head: bytes) -> None:
        answers.pop(0)(peer, head)

    with serving(answer) as (port, seen):
        found = preflight(
            f"http://127.0.0.1:{port}", model=None, secrets=Secrets(), workload=parse_workload(text, "w.yaml")
        )
    assert found.model == "tiny"
    assert [head.split(b" ")[1] for head in seen] == [b"/v1/models", b"/new/models"]


def test_an_interim_answer_and_a_coding_that_nobody_asked_for_are_read() -> None:
    packed = gzip.compress(MODELS)
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"

    def answer(peer: socket.socket, head: bytes) -> None:
        peer.sendall(early)
        answering("200 OK", packed, "Content-Encoding: gzip")(peer, head)

    with serving(answer) as (port, _):
        assert preflight(f"http://127.0.0.1:{port}", model=None, secrets=Secrets()).model == "tiny"
