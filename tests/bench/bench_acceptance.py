"""What checking answers beside the load costs the hub: its lag with and without, and with the same checks in a thread.

Run: `pytest tests/bench/bench_acceptance.py -s`. The rounds alternate, so that a busy machine is busy for all of them.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import numpy as np
import pytest
from gevent.threadpool import ThreadPool
from tests.record_builders import answer, record

from servebench.acceptance.given import Given
from servebench.acceptance.judge import Judge
from servebench.core.records import RequestRecord
from servebench.loadgen.worker.accepting import AnswerChecker
from servebench.workload.checks import Check, read_check

pytestmark = pytest.mark.bench

ROUNDS = 5
SECONDS = 1.5
PER_S = 40
PROBE_S = 0.001
ITEM = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
CHECKS = (
    {"json_schema": {"type": "object", "properties": {"items": {"type": "array", "items": ITEM}}}},
    {"forbids": ["cannot", "sorry"], "ignore_case": True},
    # Some ms of backtracking: what a careless pattern costs, and what keeps the interpreter to itself in a thread.
    {"regex": "^(?!.*(x+x+)+y$)"},
)
TEXT = json.dumps({"items": [{"id": n, "name": f"item {n}"} for n in range(60)], "tail": "x" * 14})


def checks() -> tuple[Check, ...]:
    return tuple(read_check(item, Path("/")) for item in CHECKS)


@contextmanager
def probing() -> Iterator[list[float]]:
    """Give a list that fills with how late the hub woke, in ms."""
    late: list[float] = []

    def probe() -> None:
        while True:
            due = time.perf_counter() + PROBE_S
            gevent.sleep(PROBE_S)
            late.append(1e3 * (time.perf_counter() - due))

    greenlet = gevent.spawn(probe)
    try:
        yield late
    finally:
        greenlet.kill()


def lag_ms(check: Callable[[RequestRecord], object]) -> tuple[float, float]:
    """Return p99 and largest lag of the hub while answers come at PER_S for SECONDS."""
    with probing() as late:
        made = [
            gevent.spawn_later(n / PER_S, check, record(n, answer=answer(text=TEXT)))
            for n in range(int(SECONDS * PER_S))
        ]
        gevent.joinall(made)
    return float(np.percentile(late, 99)), max(late)


def test_the_hub_lags_no_more_with_checks_than_without() -> None:
    checker = AnswerChecker(checks(), of_prompts=False)
    checker.open()
    judge, pool = Judge(checks()), ThreadPool(1)
    ways: dict[str, Callable[[RequestRecord], object]] = {
        "without checks": lambda _record: None,
        "in a process": lambda made: checker.checked(made, b""),
        "in a thread": lambda made: pool.apply(judge.verdict, (Given(text=made.answer.text or ""),)),
    }
    spent_ns = []
    for seq in range(20):
        found = checker.checked(record(seq, answer=answer(text=TEXT)), b"")
        assert found.accepted, found.accept_reason
        spent_ns.append((found.validated_ns or 0) - found.answer.end_ns)
    lags: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            lags[name].append(lag_ms(way))
    checker.close()
    pool.kill()
    print(f"\nchecks of one answer: {np.median(spent_ns) / 1e6:.2f} ms; {PER_S} answers/s")
    for name, found_lags in lags.items():
        p99, worst = np.median(np.array(found_lags), axis=0)
        print(f"hub lag {name:15s} p99 {p99:6.2f} ms  largest {worst:6.2f} ms (median of {ROUNDS})")
    p99 = {name: float(np.median([lag for lag, _ in found_lags])) for name, found_lags in lags.items()}
    assert p99["in a process"] < p99["in a thread"]
