"""Print what TLS adds to reading a stream: opening a record that holds one event, and a handshake.

    python -m tests.bench.bench_tls [events]

Both ends are in this process and only the client's part is timed (CPU of this thread): TLS 1.3 between buffers, one
record per event of 240 bytes, as a server sends that flushes each token. The socket's part is the same with and without
TLS, and so are the kernel's stamps.
"""

import contextlib
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from servebench.loadgen.transport.tls import TlsPipe

EVENT = b"x" * 240


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's and a trusting client's context with a throw-away certificate."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-out", str(cert), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))


def connect(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[TlsPipe, ssl.SSLObject, ssl.MemoryBIO, int]:
    """Shake hands; return the client's pipe, the server's session, its outgoing bytes, and the client's CPU in ns."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    far = server.wrap_bio(into, out, server_side=True)
    pipe, received, spent_ns, done = TlsPipe(client, "localhost"), b"", 0, False
    while not done:
        start = time.thread_time_ns()
        done = pipe.handshake(received)
        sent = pipe.pending()
        spent_ns += time.thread_time_ns() - start
        into.write(sent)
        with contextlib.suppress(ssl.SSLWantReadError):
            far.do_handshake()
        received = out.read()
    if received:
        pipe.decrypt(received)
    return pipe, far, out, spent_ns


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as name:
        server, client = contexts(Path(name))
        handshakes = sorted(connect(server, client)[3] for _ in range(50))
        pipe, far, out, _ = connect(server, client)
        spent = []
        for _ in range(events):
            far.write(EVENT)
            records = out.read()
            start = time.thread_time_ns()
            data = pipe.decrypt(records)
            pipe.pending()
            spent.append(time.thread_time_ns() - start)
            assert data == EVENT
    spent.sort()
    print(f"opening a record of {len(EVENT)} bytes: {spent[events // 2] / 1e3:.2f} us at the median")
    print(f"a handshake, the client's part: {handshakes[len(handshakes) // 2] / 1e3:.0f} us at the median")


if __name__ == "__main__":
    main()
