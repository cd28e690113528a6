"""Pings become a correction, and rows are put on the master's clock by it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.shards.clock import MASTER_CLOCK, MAX_KNOTS, Correction, fit, shifted
from servebench.shards.clock_schema import CLOCK_SCHEMA, ClockRow, clock_table

S = 1_000_000_000
MS = 1_000_000


def pings(
    seconds: float, error_ns: object, rng: np.random.Generator, *, least_ns: int = 200_000, every_ns: int = 500 * MS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pings of a worker whose clock is off by `error_ns(t)`, over ways of random and unequal length."""
    assert callable(error_ns)
    sent = np.arange(0, int(seconds * S), every_ns)
    there = least_ns + rng.exponential(2 * MS, len(sent)).astype(np.int64)
    back = least_ns + rng.exponential(5 * MS, len(sent)).astype(np.int64)
    master = sent + there + np.array([error_ns(t) for t in sent + there], np.int64)
    return sent, master, sent + there + back


@given(st.integers(0, 2**32 - 1), st.integers(-(10**15), 10**15), st.floats(-100e-6, 100e-6))
def test_the_true_error_lies_within_the_bound_at_each_knot(seed: int, offset_ns: int, drift: float) -> None:
    found = fit(*pings(120, lambda t: offset_ns + round(drift * t), np.random.default_rng(seed)))
    truth = offset_ns + drift * found.t_ns
    # A ping's middle may lie some ms beside the instant that the master saw: 100 ppm of 50 ms is 5 us.
    assert np.all(np.abs(found.correction_ns - truth) <= found.bound_ns + 10_000)


def test_a_drift_of_50_ppm_over_an_hour_is_followed_within_the_bound_between_knots_too() -> None:
    found = fit(*pings(3600, lambda t: 7 * S + 50e-6 * t, np.random.default_rng(3)))
    t = np.arange(60, 3540) * S
    assert np.max(np.abs(found.at(t) - (7 * S + 50e-6 * t))) <= max(found.bound_ns)
    assert max(found.bound_ns) < 2 * MS


def test_a_day_of_pings_becomes_few_knots() -> None:
    found = fit(*pings(86_400, lambda t: 20e-6 * t, np.random.default_rng(4)))
    assert len(found.t_ns) <= MAX_KNOTS + 1
    assert np.all(np.diff(found.t_ns) > 0)


def test_answers_that_a_partition_held_back_for_10_s_do_not_bend_the_fit() -> None:
    sent, master, received = pings(60, lambda _: 0, np.random.default_rng(5))
    held = (sent > 20 * S) & (sent < 32 * S)
    received[held] = 32 * S
    found = fit(sent, master, received)
    assert np.max(np.abs(found.correction_ns)) < 2 * MS


def test_pings_in_any_order_give_the_same_fit() -> None:
    columns = pings(60, lambda t: 5 + 1e-6 * t, np.random.default_rng(6))
    order = np.random.default_rng(7).permutation(len(columns[0]))
    assert fit(*columns).knots() == fit(*(column[order] for column in columns)).knots()


def test_a_worker_without_knots_has_the_masters_clock() -> None:
    assert Correction.from_knots([]).knots() == MASTER_CLOCK
    assert Correction.from_knots([]).zero


def test_outside_the_knots_the_nearest_one_holds() -> None:
    correction = Correction.from_knots([[10, 100, 1], [20, 200, 1]])
    assert correction.at(np.array([-5, 10, 15, 20, 99])).tolist() == [100, 100, 150, 200, 200]


def rows() -> pa.Table:
    return pa.table(
        {
            "seq": pa.array([0, 1, 2, 3], pa.int64()),
            "intended_ns": pa.array([10, None, 30, None], pa.int64()),
            "sent_ns": pa.array([11, 21, None, None], pa.int64()),
            "chunk_ns": pa.array([[12, 13], [], None, None], pa.list_(pa.int64())),
        }
    )


def test_all_times_of_a_row_move_together_and_null_stays_null() -> None:
    correction = Correction.from_knots([[0, 1000, 1], [100, 2000, 1]])
    moved = shifted(rows(), correction, ("intended_ns", "sent_ns", "chunk_ns"), ("sent_ns", "intended_ns"))
    assert moved.to_pydict() == {
        "seq": [0, 1, 2, 3],
        "intended_ns": [1120, None, 1330, None],
        "sent_ns": [1121, 1231, None, None],
        "chunk_ns": [[1122, 1123], [], None, None],
    }
    assert moved.schema == rows().schema


def test_a_zero_correction_returns_the_very_table() -> None:
    table = rows()
    assert shifted(table, Correction.from_knots([]), ("sent_ns",), ("sent_ns",)) is table


@pytest.mark.parametrize("count", [0, 1, 3])
def test_clock_rows_become_a_table_of_the_schema(count: int) -> None:
    made = [ClockRow(sent_ns=n, master_ns=n + 5, received_ns=n + 9) for n in range(count)]
    table = clock_table(made, run_id="r", worker="w0-00000001")
    assert table.schema == CLOCK_SCHEMA
    assert table["master_ns"].to_pylist() == [n + 5 for n in range(count)]
