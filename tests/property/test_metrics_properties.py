"""Laws of percentiles and gaps that hold for any data."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.core.outcomes import TOKEN_KIND_CODES
from servebench.metrics import ChunkColumns, RequestColumns, formulas, percentile
from servebench.metrics.events import chunk_gaps, event_facts
from servebench.metrics.exact import Finder, Tally
from servebench.metrics.quantiles import of_sorted

samples = st.lists(st.floats(0, 1e15), min_size=1, max_size=200).map(lambda v: np.array(v, dtype=np.float64))
event = st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 2))
streams = st.lists(st.lists(event, max_size=12), min_size=1, max_size=8)


@given(samples, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_rise_with_q_and_stay_within_the_samples(values: npt.NDArray[np.float64], a: float, b: float) -> None:
    low, high = percentile(values, min(a, b)), percentile(values, max(a, b))
    slack = 1e-9 * max(1.0, float(values.max()))
    assert values.min() - slack <= low <= high + slack
    assert high <= values.max() + slack


@given(streams)
def test_gaps_equal_those_of_a_plain_loop_over_each_choice(streams: list[list[tuple[int, int, int]]]) -> None:
    ordered = [sorted(stream, key=lambda e: e[0]) for stream in streams]
    flat = [e for stream in ordered for e in stream]
    n = len(ordered)
    chunks = ChunkColumns(
        offsets=np.cumsum([0, *(len(stream) for stream in ordered)]),
        ns=np.array([e[0] for e in flat], dtype=np.float64),
        kind=np.array([e[1] for e in flat], dtype=np.int8),
        choice=np.array([e[2] for e in flat], dtype=np.int8),
        read=np.arange(len(flat), dtype=np.int32),
        tokens=np.full(len(flat), np.nan),
    )
    c = replace(
        RequestColumns.blank(n),
        sent_ns=np.zeros(n),
        ok=np.ones(n, bool),
        events=event_facts(chunks, np.full(n, np.nan)),
    )
    expected = []
    for index, stream in enumerate(ordered):
        for choice in range(3):
            times = [t for t, kind, which in stream if kind in TOKEN_KIND_CODES and which == choice]
            expected += [(index, later - earlier) for earlier, later in pairwise(times)]
    gaps = chunk_gaps(chunks, c.ok)
    assert sorted(zip(gaps.request.tolist(), gaps.ns.tolist(), strict=True)) == sorted(expected)
    firsts = [next((t for t, kind, _ in stream if kind in TOKEN_KIND_CODES), np.nan) for stream in ordered]
    assert formulas.ttft_ns(c).tolist() == pytest.approx(firsts, nan_ok=True)


LAST_CELL = 2**44
"""What is longer, 4.9 hours, shares a cell, so that one count alone says little about it."""
whole = st.lists(st.integers(0, 2**45), min_size=1, max_size=300).map(lambda v: np.array(v, dtype=np.float64))
ties = st.lists(st.sampled_from([0, 1, 1024, 1025, 5_000_000]), min_size=1, max_size=300).map(
    lambda v: np.array(v, dtype=np.float64)
)


@given(whole | ties, st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(1, 5), st.randoms())
def test_counting_twice_gives_numpys_quantiles_to_the_last_bit(
    values: npt.NDArray[np.float64], quantiles: list[float], parts: int, random: Random
) -> None:
    pieces = np.array_split(values, parts)
    tallies = [Tally() for _ in pieces]
    for tally, piece in zip(tallies, pieces, strict=True):
        tally.add(piece)
    random.shuffle(tallies)
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    finder = Finder(total, quantiles)
    random.shuffle(pieces)
    for piece in pieces:
        finder.add(piece)
    assert finder.found().tolist() == np.quantile(values, quantiles).tolist()
    assert (total.n, total.min, total.max) == (len(values), values.min(), values.max())
    assert total.mean == sum(map(int, values)) / len(values)
    if values.max() < LAST_CELL:
        assert total.about(np.array([0.5])) == pytest.approx(
            np.quantile(values, [0.5], method="lower"), rel=3e-4, abs=1
        )


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_quantiles_of_sorted_values_equal_numpys_to_the_last_bit(values: list[int], quantiles: list[float]) -> None:
    ordered = np.sort(np.array(values, np.float64))
    assert of_sorted(ordered, quantiles).tolist() == np.quantile(ordered, quantiles).tolist()
