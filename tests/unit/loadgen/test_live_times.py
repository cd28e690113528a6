"""Latencies that are counted together are those of the answers, counted here one by one."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record_builders import chunks

from servebench.core.outcomes import CHUNK_KINDS
from servebench.loadgen.sketch import Sketch
from servebench.loadgen.worker.live_times import MOST_FRESH, Ended, LiveTimes
from servebench.workload.model import Objective, limit_key

CONTENT, REASONING, ROLE, USAGE = (CHUNK_KINDS.index(kind) for kind in ("content", "reasoning", "role", "usage"))
SPOKEN = {CONTENT, REASONING}

events = st.lists(
    st.tuples(st.sampled_from([CONTENT, REASONING, ROLE, USAGE]), st.integers(1_000, 10**9)), min_size=0, max_size=12
)


@st.composite
def answers(draw: st.DrawFn) -> Ended:
    sent_ns, said = draw(st.integers(0, 10**12)), draw(events)
    stamps = (sent_ns + np.cumsum([after for _, after in said], dtype=np.int64)).tolist()
    return Ended(
        sent_ns=sent_ns,
        end_ns=(stamps[-1] if stamps else sent_ns) + draw(st.integers(1, 10**6)),
        chunks=draw(st.sampled_from([None, chunks(stamps, kind=[kind for kind, _ in said])])),
        output_tokens=draw(st.sampled_from([None, 0, 1, 2, 9])),
        measured=draw(st.booleans()),
    )


def one_by_one(ended: list[Ended]) -> dict[str, list[tuple[float, bool]]]:
    """Return the values of each metric, and whether each is of a measured request."""
    found: dict[str, list[tuple[float, bool]]] = {"ttft": [], "tpot": [], "chunk_gap": [], "e2e": []}
    for answer in ended:
        found["e2e"].append((answer.end_ns - answer.sent_ns, answer.measured))
        if answer.chunks is None:
            continue
        spoken = [at for at, kind in zip(answer.chunks.ns, answer.chunks.kind, strict=True) if kind in SPOKEN]
        if not spoken:
            continue
        found["ttft"].append((spoken[0] - answer.sent_ns, answer.measured))
        found["chunk_gap"] += [(b - a, answer.measured) for a, b in pairwise(spoken)]
        if answer.output_tokens is not None and answer.output_tokens >= 2 and spoken[-1] > spoken[0]:
            found["tpot"].append(((spoken[-1] - spoken[0]) / (answer.output_tokens - 1), answer.measured))
    return found


@given(st.lists(answers(), max_size=8), st.lists(answers(), max_size=8))
def test_the_sketches_of_a_second_hold_what_ended_in_it(first: list[Ended], second: list[Ended]) -> None:
    times = LiveTimes()
    for ended in (first, second):
        for answer in ended:
            times.add(answer)
        taken = times.take()
        for name, values in one_by_one(ended).items():
            expected = Sketch()
            for value, _ in values:
                expected.add(value)
            assert taken[name] == dict(expected.counts), name


@given(st.lists(answers(), max_size=12), st.sampled_from(["ttft", "tpot", "e2e"]), st.integers(1_000, 10**9))
def test_measured_values_above_a_limit_are_counted(ended: list[Ended], metric: str, limit: int) -> None:
    objective = Objective(metric=metric, quantile=0.95, limit=limit)
    times = LiveTimes([objective])
    for answer in ended:
        times.add(answer)
    above = sum(measured and value > limit for value, measured in one_by_one(ended)[metric])
    assert times.beyond.get(limit_key(objective), 0) == above


def test_however_many_end_in_a_second_each_is_counted_once() -> None:
    times, ended = LiveTimes(), 5 * MOST_FRESH + 3
    for number in range(ended):
        times.add(Ended(0, 1_000_000 * (number + 1), chunks([500_000, 900_000]), 2, measured=True))
    assert {name: sum(counts.values()) for name, counts in times.take().items()} == {
        "ttft": ended,
        "tpot": ended,
        "chunk_gap": ended,
        "e2e": ended,
    }


def test_nothing_ended_is_nothing_counted() -> None:
    assert LiveTimes().take() == {"ttft": {}, "tpot": {}, "chunk_gap": {}, "e2e": {}}


def test_an_objective_without_quantile_is_not_judged_here() -> None:
    times = LiveTimes([Objective(metric="error_rate", quantile=None, limit=0.01)])
    times.add(Ended(0, 10**9, None, None, measured=True))
    assert not times.beyond


@pytest.mark.parametrize("tokens", [None, 1])
def test_without_two_tokens_there_is_no_time_per_token(tokens: int | None) -> None:
    times = LiveTimes()
    times.add(Ended(0, 5_000, chunks([1_000, 5_000]), tokens, measured=True))
    taken = times.take()
    assert taken["tpot"] == {}
    assert sum(taken["chunk_gap"].values()) == 1
