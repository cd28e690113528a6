"""Feed the wire what a coverage-guided fuzzer thinks of: `python -m tests.fuzz.fuzz_wire CORPUS [libFuzzer options]`.

Needs atheris, which no other test does and which is therefore in no list of ours. The first byte of an input chooses
the endpoint, the second what is done with the rest: decode one event, decode a whole body, or read it as a response in
pieces. An empty corpus folder is filled with the golden answers.
"""

import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["servebench.wire"]):
    from servebench.wire.endpoint import Delta, Endpoint, PayloadError
    from servebench.wire.endpoints import ENDPOINTS
    from servebench.wire.timeline import End, Timeline

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = tuple(ENDPOINTS)
ENDS = tuple(End)
EVENT, BODY, WHOLE_READ, HALVES, BYTES = range(5)
MODES = 5
HEADS = (
    b"",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip, deflate\r\n\r\n",
)


def check_delta(delta: Delta) -> None:
    """Raise AssertionError for what chunk columns could not hold."""
    assert 0 <= delta.kind < 10
    assert 0 <= delta.choice <= 127
    assert delta.tokens is None or delta.tokens >= 0
    assert delta.usage is None or all(number is None or 0 <= number < 1 << 31 for number in delta.usage)
    for word in (delta.text, delta.aside, delta.finish, delta.model, delta.error):
        assert word is None or isinstance(word.encode("utf-8", "replace"), bytes)


def decode(endpoint: Endpoint, mode: int, data: bytes) -> None:
    """Decode a payload in the one way or the other; malformed is a documented outcome."""
    with suppress(PayloadError):
        check_delta((endpoint.decode_event if mode == EVENT else endpoint.decode_body)(data))


def read(endpoint: Endpoint, mode: int, data: bytes) -> None:
    """Read a response in one piece, in two, or byte by byte; nothing may raise and all columns agree."""
    timeline = Timeline(endpoint, stream=bool(len(data) & 1), keep_text=True)
    data = HEADS[mode // MODES % len(HEADS)] + data
    step = {WHOLE_READ: len(data) or 1, HALVES: len(data) // 2 + 1, BYTES: 1}[mode % MODES]
    reads = deque((data[start : start + step], 1000 + start, 5) for start in range(0, len(data), step))
    while reads:
        if not timeline.feed_plain(reads):
            timeline.feed(*reads.popleft())
    answer = timeline.finish(ENDS[len(data) % len(ENDS)], 10**6)
    assert answer.response_bytes == len(data)
    if answer.chunks is not None:
        columns = (getattr(answer.chunks, name) for name in ("ns", "delay_ns", "kind", "tokens", "read", "choice"))
        assert len({len(column) for column in columns}) == 1


def one_input(data: bytes) -> None:
    """Do what the first two bytes say with the rest."""
    if len(data) < 2:
        return
    endpoint, mode = ENDPOINTS[NAMES[data[0] % len(NAMES)]], data[1]
    (decode if mode % MODES in {EVENT, BODY} else read)(endpoint, mode % MODES if mode % MODES < 2 else mode, data[2:])


def seed(corpus: Path) -> None:
    """Fill an empty corpus with every golden answer, as a response and event by event, for every endpoint."""
    if any(corpus.iterdir()):
        return
    files = [*GOLDEN.glob("dialects/*/*.txt"), *GOLDEN.glob("data/*/*.txt"), *GOLDEN.glob("cases/http/*.http")]
    for number, path in enumerate(files):
        data = path.read_bytes()
        for place in range(len(NAMES)):
            (corpus / f"{number}-{place}-whole").write_bytes(bytes([place, WHOLE_READ]) + data[:4096])
            payload = data.partition(b"\r\n\r\n")[2].partition(b"\n\n")[0].partition(b"data:")[2]
            (corpus / f"{number}-{place}-event").write_bytes(bytes([place, number % 2]) + payload[:4096])


if __name__ == "__main__":
    folder = next((Path(word) for word in sys.argv[1:] if Path(word).is_dir()), None)
    if folder is not None:
        seed(folder)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
