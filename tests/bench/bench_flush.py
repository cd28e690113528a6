"""What recording costs: CPU per request and chunk, bytes per chunk, and how long a flush keeps open streams waiting.

Run: `pytest tests/bench/bench_flush.py -s`. The streams are made up (20 ms a token with the jitter of an engine's
steps, read delays of tens of us with a long tail); the entropy of those two decides the size on disk.
"""

import gc
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import gevent
import numpy as np
import pytest
from tests.record_builders import EPOCH_NS, answer, identity, record

from servebench.core.outcomes import Outcome
from servebench.core.records import Chunks, RequestRecord
from servebench.loadgen.worker.recorder import Recorder
from servebench.shards.columns import PartBuffer
from servebench.shards.parts import write_part

pytestmark = pytest.mark.bench

REQUESTS = 2_000
CHUNKS = 256
ROUNDS = 5
PROBE_NS = 1_000_000


def stream(generator: np.random.Generator, seq: int) -> RequestRecord:
    """Return a request with a role event, CHUNKS - 4 tokens, finish, usage and done."""
    jitter_ns = np.abs(generator.normal(0, 300_000, CHUNKS))
    first_ns = EPOCH_NS + seq * 3_000_000 + 500_000_000
    ns = np.sort(first_ns + np.arange(CHUNKS) * 20_000_000 + jitter_ns).astype(np.int64)
    kind = np.zeros(CHUNKS, np.int8)
    kind[[0, -3, -2, -1]] = [4, 5, 6, 8]
    events = Chunks(
        ns=array("q", ns.tobytes()),
        delay_ns=array("i", generator.lognormal(np.log(40_000), 0.8, CHUNKS).astype(np.int32).tobytes()),
        kind=array("b", kind.tobytes()),
        tokens=array("i", (kind == 0).astype(np.int32).tobytes()),
        read=array("i", np.arange(CHUNKS, dtype=np.int32).tobytes()),
        choice=array("b", bytes(CHUNKS)),
    )
    return record(seq, answer=answer(outcome=Outcome.OK, end_ns=int(ns[-1]), output_tokens=CHUNKS - 4, chunks=events))


@pytest.fixture(scope="module")
def records() -> list[RequestRecord]:
    generator = np.random.default_rng(7)
    return [stream(generator, seq) for seq in range(REQUESTS)]


@contextmanager
def probing() -> Iterator[list[int]]:
    """Note how late a greenlet runs that wants to run every ms: what a token that arrives then would wait."""
    late: list[int] = []

    def probe() -> None:
        due_ns = time.monotonic_ns()
        while True:
            due_ns += PROBE_NS
            gevent.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            late.append(max(0, time.monotonic_ns() - due_ns))

    greenlet = gevent.spawn(probe)
    gevent.sleep(0.05)
    late.clear()
    yield late
    greenlet.kill()


def buffer_of(records: list[RequestRecord]) -> PartBuffer:
    buffer = PartBuffer()
    for made in records:
        buffer.add(made)
    return buffer


def lateness_of(work: Callable[[], object]) -> tuple[float, float]:
    """Return p99 and maximum in ms of the probe's lateness while the work goes on."""
    with probing() as late:
        work()
        gevent.sleep(0.02)
        return float(np.quantile(late, 0.99)) / 1e6, max(late) / 1e6


def test_a_flush_beside_the_hub_keeps_streams_waiting_less_than_one_on_it(
    tmp_path: Path, records: list[RequestRecord]
) -> None:
    beside, on_hub, idle = [], [], []
    recorder = Recorder(tmp_path, identity(), max_rows=REQUESTS)
    write_part(tmp_path, 900, buffer_of(records[:50]), identity())
    gc.collect()
    gc.freeze()
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as in a worker
    try:
        for number in range(ROUNDS):
            idle.append(lateness_of(partial(gevent.sleep, 0.2)))
            buffer = buffer_of(records)
            on_hub.append(lateness_of(partial(write_part, tmp_path, 901 + number, buffer, identity())))
            for made in records:
                recorder.add(made)

            def flushed(count: int = number + 1) -> None:
                while len(recorder.parts) < count:
                    gevent.sleep(0.001)

            beside.append(lateness_of(flushed))
    finally:
        sys.setswitchinterval(switch_s)
        gc.unfreeze()
        recorder.close()
    print(f"\nhub lateness, ms, median of {ROUNDS}, {REQUESTS} requests x {CHUNKS} chunks a flush")
    for name, rows in (("idle", idle), ("flush beside the hub", beside), ("flush on the hub", on_hub)):
        p99, longest = np.median(rows, axis=0)
        print(f"  {name:22s} p99 {p99:6.2f}  max {longest:6.2f}")
    assert np.median(beside, axis=0)[1] < np.median(on_hub, axis=0)[1] / 2


def test_a_chunk_takes_about_three_bytes(tmp_path: Path, records: list[RequestRecord]) -> None:
    written = write_part(tmp_path, 0, buffer_of(records), identity())
    print(f"\n{written.bytes / written.chunks:.2f} bytes a chunk, all columns of the requests included")
    assert written.bytes <= 3.05 * written.chunks


def cpu_us(work: Callable[[], object]) -> float:
    """Return the median CPU time of the work per request."""
    took_ns = []
    for _ in range(ROUNDS):
        began_ns = time.process_time_ns()
        work()
        took_ns.append(time.process_time_ns() - began_ns)
    return float(np.median(took_ns)) / 1e3 / REQUESTS


def test_recording_a_request_costs_less_than_walking_its_chunks(records: list[RequestRecord]) -> None:
    def walk() -> None:
        kept = Chunks.empty()
        for made in records:
            events = made.answer.chunks
            assert events is not None
            for name in ("ns", "delay_ns", "kind", "tokens", "read", "choice"):
                append = getattr(kept, name).append
                for value in getattr(events, name):
                    append(value)

    add_us, walk_us = cpu_us(partial(buffer_of, records)), cpu_us(walk)
    print(f"\nadd: {add_us:.1f} us a request of {CHUNKS} chunks; a Python loop over them {walk_us:.1f} us")
    assert add_us < walk_us / 2
