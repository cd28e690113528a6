"""Print what reading a stream costs: decoder MB/s and ns per event, one event per read and 64 KiB reads.

    python -m tests.bench.bench_decode [seconds per row]

CPU time of this thread, best of many rounds, garbage collection off. The last rows are the floor: framing alone, and
JSON skipped but for one field, which no account of a stream can be cheaper than.
"""

import gc
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.http import ResponseParser
from servebench.wire.sse import EventDecoder
from servebench.wire.timeline import Timeline

EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"demo-7b-instruct","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,'
    b'"finish_reason":null}],"system_fp":"abcdefg"}\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
TOKENS = {
    "openai-completions": b'{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"demo-8b",'
    b'"choices":[{"index":0,"text":" token","logprobs":null,"finish_reason":null}]}',
    "openai-responses": b'{"type":"response.output_text.delta","sequence_number":17,"item_id":"msg_0123456789abcdef",'
    b'"output_index":0,"content_index":0,"delta":" token","logprobs":[]}',
    "anthropic-messages": b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" token"}}',
    "tgi-generate": b'{"index":17,"token":{"id":315,"text":" token","logprob":-0.51,"special":false},"top_tokens":[],'
    b'"generated_text":null,"details":null}',
    "triton-generate": b'{"context_logits":0.0,"cum_log_probs":0.0,"model_name":"ensemble","model_version":"1",'
    b'"sequence_end":false,"sequence_id":0,"sequence_start":false,"text_output":" token"}',
    "kserve-v2": b'{"model_name":"demo","id":"e8858c50-fb30-49e8-8cd5-e2df759d4d47","parameters":{},"outputs":[{'
    b'"name":"text","shape":[1,1],"datatype":"BYTES","parameters":{"content_type":"str"},"data":[" token"]}]}',
    "ollama-chat": b'{"model":"demo:8b","created_at":"2026-11-30T12:00:00.000000Z",'
    b'"message":{"role":"assistant","content":" token"},"done":false}',
}
"""A token's event in each other dialect, as its server writes it."""

EVENTS = 560
CHAT = ENDPOINTS["openai-chat"]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def timeline(reads: list[bytes], *, keep_text: bool = False) -> None:
    line = Timeline(CHAT, keep_text=keep_text)
    line.feed(HEAD, 0, -1)
    waiting = deque((read, stamp_ns, 5) for stamp_ns, read in enumerate(reads))
    while waiting:
        if not line.feed_plain(waiting):
            line.feed(*waiting.popleft())


def decoder(reads: list[bytes]) -> None:
    feed = EventDecoder().feed
    for read in reads:
        feed(read)


def framing(reads: list[bytes]) -> None:
    feed = ResponseParser().feed
    feed(HEAD)
    for read in reads:
        feed(read)


def dialect(payloads: list[bytes], decode: Callable[[bytes], object]) -> None:
    for payload in payloads:
        decode(payload)


class _Anything(msgspec.Struct, gc=False):
    model: str | None = None


def rows() -> dict[str, tuple[Callable[[], None], int]]:
    """Return what is measured, by name: the work and the events in it."""
    single, large = [CHUNK] * EVENTS, cut(CHUNK * EVENTS, 65536)
    bare, bare_large = [EVENT] * EVENTS, cut(EVENT * EVENTS, 65536)
    bits = cut(EVENT * (EVENTS // 20), 7)
    huge = {size: cut(b'data: {"x":"' + b"A" * size + b'"}\n\n', 1000) for size in (1 << 20, 1 << 22)}
    payloads = [EVENT[6:-2]] * EVENTS
    floor = msgspec.json.Decoder(_Anything).decode
    return {
        "timeline, one event per read": (lambda: timeline(single), EVENTS),
        "timeline, one event per read, text kept": (lambda: timeline(single, keep_text=True), EVENTS),
        "timeline, 64 KiB reads": (lambda: timeline(large), EVENTS),
        "event stream, one event per read": (lambda: decoder(bare), EVENTS),
        "event stream, 64 KiB reads": (lambda: decoder(bare_large), EVENTS),
        "event stream, 7-byte reads": (lambda: decoder(bits), EVENTS // 20),
        "event stream, 1 MiB event in 1000-byte reads": (lambda: decoder(huge[1 << 20]), 1),
        "event stream, 4 MiB event in 1000-byte reads": (lambda: decoder(huge[1 << 22]), 1),
        "dialect (typed JSON and meaning)": (lambda: dialect(payloads, CHAT.decode_event), EVENTS),
        **{
            f"dialect {name}": (partial(dialect, [payload] * EVENTS, ENDPOINTS[name].decode_event), EVENTS)
            for name, payload in TOKENS.items()
        },
        "floor: framing parser": (lambda: framing(single), EVENTS),
        "floor: JSON skipped, one field typed": (lambda: dialect(payloads, floor), EVENTS),
    }


def best_ns(work: Callable[[], None], seconds: float) -> int:
    """Return the least CPU time of one round, ns."""
    best, until = sys.maxsize, time.monotonic() + seconds
    while time.monotonic() < until:
        start = time.thread_time_ns()
        work()
        best = min(best, time.thread_time_ns() - start)
    return best


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
    gc.disable()
    sizes = {"1 MiB": 1 << 20, "4 MiB": 1 << 22} | {name: len(payload) * EVENTS for name, payload in TOKENS.items()}
    print(f"{'':46} {'ns/event':>10} {'MB/s':>8}   (event of {len(EVENT)} bytes)")
    for name, (work, events) in rows().items():
        spent = best_ns(work, seconds)
        size = next((size for word, size in sizes.items() if word in name), len(EVENT) * events)
        print(f"{name:46} {spent / events:10,.0f} {size / spent * 1000:8,.0f}")


if __name__ == "__main__":
    main()
