"""TLS between buffers gives the same data for any cut of its records, and learns of the end with the last of them."""

import contextlib
import ssl
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servebench.loadgen.transport.tls import TlsPipe


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's context and that of a client which trusts it."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-out", str(cert), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))


def connected(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> tuple[TlsPipe, "Far"]:
    server, client = contexts
    pipe, far = TlsPipe(client, "localhost"), Far(server)
    received, done = b"", False
    while not done:
        done = pipe.handshake(received)
        received = far.take(pipe.pending())
    pipe.decrypt(received)
    return pipe, far


class Far:
    """The server's end of a session."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._into, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._into, self._out, server_side=True)

    def take(self, data: bytes) -> bytes:
        self._into.write(data)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._session.do_handshake()
        return self._out.read()

    def send(self, data: bytes) -> bytes:
        self._session.write(data)
        return self._out.read()

    def end(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLSyscallError):
            self._session.unwrap()
        return self._out.read()


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5),
    cuts=st.lists(st.floats(0, 1, exclude_max=True), max_size=8),
)
def test_records_cut_anywhere_give_the_same_data_and_the_end(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], texts: list[bytes], cuts: list[float]
) -> None:
    pipe, far = connected(contexts)
    records = b"".join(far.send(text) for text in texts) + far.end()
    edges = [0, *sorted({int(cut * len(records)) for cut in cuts}), len(records)]
    parts = []
    for start, end in pairwise(edges):
        assert not pipe.ended
        parts.append(pipe.decrypt(records[start:end]))
    assert b"".join(parts) == b"".join(texts)
    assert pipe.ended
