"""Laws of percentiles and gaps that hold for any data."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.core.outcomes import TOKEN_KIND_CODES
from servebench.metrics import ChunkColumns, RequestColumns, formulas, percentile

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
    c = RequestColumns(
        intended_ns=np.full(n, np.nan),
        dispatched_ns=np.full(n, np.nan),
        sent_ns=np.zeros(n),
        end_ns=np.full(n, 100.0),
        input_tokens=np.full(n, np.nan),
        output_tokens=np.full(n, np.nan),
        ok=np.ones(n, bool),
        failed=np.zeros(n, bool),
        chunks=ChunkColumns(
            offsets=np.cumsum([0, *(len(stream) for stream in ordered)]),
            ns=np.array([e[0] for e in flat], dtype=np.float64),
            kind=np.array([e[1] for e in flat], dtype=np.int8),
            choice=np.array([e[2] for e in flat], dtype=np.int8),
            read=np.arange(len(flat), dtype=np.int32),
            tokens=np.full(len(flat), np.nan),
        ),
    )
    expected = []
    for index, stream in enumerate(ordered):
        for choice in range(3):
            times = [t for t, kind, which in stream if kind in TOKEN_KIND_CODES and which == choice]
            expected += [(index, later - earlier) for earlier, later in pairwise(times)]
    gaps = formulas.chunk_gaps(c)
    assert sorted(zip(gaps.request.tolist(), gaps.ns.tolist(), strict=True)) == sorted(expected)
    firsts = [next((t for t, kind, _ in stream if kind in TOKEN_KIND_CODES), np.nan) for stream in ordered]
    assert formulas.ttft_ns(c).tolist() == pytest.approx(firsts, nan_ok=True)
