"""The live sketch: close to numpy's answer, mergeable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.loadgen.sketch import RELATIVE_ERROR, Rolling, Sketch

values_ns = st.lists(st.integers(1_000, 10**12), min_size=1, max_size=300)


@given(values_ns, st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_a_quantile_is_within_the_relative_error_of_the_order_statistic(values: list[int], q: float) -> None:
    sketch = Sketch()
    sketch.add_all(np.array(values, dtype=np.int64))
    exact = np.sort(values)[int(q * (len(values) - 1))]
    found = sketch.quantile_ns(q)
    assert found is not None
    assert abs(found - exact) <= exact * RELATIVE_ERROR * 1.01


@given(values_ns, values_ns)
def test_merging_equals_counting_together(first: list[int], second: list[int]) -> None:
    one, other, both = Sketch(), Sketch(), Sketch()
    one.add_all(np.array(first))
    other.add_all(np.array(second))
    for value in first + second:
        both.add(value)
    one.merge(other.take())
    assert one.counts == both.counts
    assert len(other) == 0


@given(
    steps=st.lists(st.lists(st.integers(1_000, 10**11), max_size=5), min_size=1, max_size=12), length=st.integers(1, 5)
)
def test_a_rolling_window_is_the_sketch_of_its_last_steps(steps: list[list[int]], length: int) -> None:
    rolling, counts = Rolling(length), []
    for values in steps:
        step = Sketch()
        step.add_all(np.array(values, np.int64))
        counts.append(step.take())
        rolling.push(counts[-1])
    expected = Sketch()
    for kept in counts[-length:]:
        expected.merge(kept)
    assert dict(rolling.sketch().counts) == dict(expected.counts), "no bucket is left over at 0"


def test_an_empty_sketch_has_no_quantile() -> None:
    assert Sketch().quantile_ns(0.5) is None


@pytest.mark.parametrize("ns", [0, -5, 1])
def test_values_below_a_microsecond_share_the_lowest_bucket(ns: int) -> None:
    sketch = Sketch()
    sketch.add(ns)
    assert sketch.counts == {0: 1}


@given(values_ns)
def test_many_quantiles_at_once_are_those_one_by_one(values: list[int]) -> None:
    sketch = Sketch()
    sketch.add_all(np.array(values, dtype=np.int64))
    quantiles = [0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0]
    assert sketch.quantiles_ns(quantiles) == [sketch.quantile_ns(q) for q in quantiles]
    assert Sketch().quantiles_ns(quantiles) == [None] * len(quantiles)
