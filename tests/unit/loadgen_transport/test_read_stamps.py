"""When a read arrived, by clocks that the tests move."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.loadgen.transport.stamps import ReadClock

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND


class Clocks:
    """A monotonic clock that tests set, and a wall clock a fixed way off it."""

    def __init__(self) -> None:
        self.ns = 5 * SECOND
        self.wall_offset_ns = EPOCH

    def monotonic_ns(self) -> int:
        return self.ns

    def realtime_ns(self) -> int:
        return self.ns + self.wall_offset_ns

    def kernel(self, ns: int) -> list[tuple[int, int, bytes]]:
        """Return what the kernel attaches to a segment that came at monotonic `ns`."""
        return [(1, 35, struct.pack("qq", *divmod(ns + self.wall_offset_ns, SECOND)))]


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def read_clock(clocks: Clocks) -> ReadClock:
    return ReadClock(clocks.monotonic_ns, clocks.realtime_ns)


def test_a_kernel_stamp_is_mapped_to_the_monotonic_clock(clocks: Clocks) -> None:
    clock = read_clock(clocks)
    clocks.ns += 4_000
    assert clock.stamp(clocks.kernel(clocks.ns - 3_000), 10) == (clocks.ns - 3_000, 3_000)


def test_without_a_kernel_stamp_the_time_of_the_read_counts(clocks: Clocks) -> None:
    assert read_clock(clocks).stamp([], 10) == (clocks.ns, -1)


@pytest.mark.parametrize(
    ("since_poll_ns", "delay_ns", "accepted"),
    [
        (0, 0, True),
        (0, -1, False),
        (0, SECOND, True),
        (0, SECOND + 1, False),
        (3 * SECOND, 4 * SECOND, True),
        (3 * SECOND, 4 * SECOND + 1, False),
    ],
)
def test_a_stamp_is_believed_up_to_a_second_before_the_previous_poll(
    clocks: Clocks, since_poll_ns: int, delay_ns: int, accepted: bool
) -> None:
    clock = read_clock(clocks)
    clocks.ns += since_poll_ns
    clock.begin_batch()
    stamp_ns, _ = clock.stamp(clocks.kernel(clocks.ns - delay_ns), 1)
    assert stamp_ns == (clocks.ns - delay_ns if accepted else clocks.ns)
    stats = clock.take()
    assert (stats.kernel_stamped, stats.rejected) == ((1, 0) if accepted else (0, 1))


@pytest.mark.parametrize("step_ns", [5 * SECOND, -5 * SECOND])
def test_a_step_of_the_wall_clock_between_arrival_and_read_is_refused(clocks: Clocks, step_ns: int) -> None:
    clock = read_clock(clocks)
    before = clocks.kernel(clocks.ns)
    clocks.ns += 1_000
    clocks.wall_offset_ns += step_ns
    clock.begin_batch()
    assert clock.stamp(before, 1) == (clocks.ns, -1)
    assert clock.take().rejected == 1


def test_a_step_between_batches_moves_no_stamp(clocks: Clocks) -> None:
    clock = read_clock(clocks)
    clocks.wall_offset_ns -= 3600 * SECOND
    clock.begin_batch()
    clocks.ns += 2_000
    assert clock.stamp(clocks.kernel(clocks.ns - 500), 1) == (clocks.ns - 500, 500)


def test_a_delay_beyond_int32_is_capped_and_its_stamp_is_not(clocks: Clocks) -> None:
    clock = read_clock(clocks)
    clocks.ns += 10 * SECOND
    clock.begin_batch()
    assert clock.stamp(clocks.kernel(clocks.ns - 9 * SECOND), 1) == (clocks.ns - 9 * SECOND, 2**31 - 1)


def test_an_interrupted_sample_of_the_clocks_is_taken_again(clocks: Clocks) -> None:
    interruptions = [40_000, 0]

    def realtime_ns() -> int:
        wall = clocks.realtime_ns()
        clocks.ns += interruptions.pop(0) if interruptions else 0
        return wall

    clock = ReadClock(clocks.monotonic_ns, realtime_ns)
    assert clock.stamp(clocks.kernel(clocks.ns - 700), 1) == (clocks.ns - 700, 700)


@given(delays=st.lists(st.integers(0, SECOND), min_size=1, max_size=200))
def test_the_statistics_of_an_interval_are_numpys(delays: list[int]) -> None:
    clocks = Clocks()
    clock = read_clock(clocks)
    for delay in delays:
        clock.stamp(clocks.kernel(clocks.ns - delay), 3)
    clock.stamp([], 4)
    stats = clock.take()
    assert (stats.reads, stats.kernel_stamped, stats.missing) == (len(delays) + 1, len(delays), 1)
    assert stats.bytes == 3 * len(delays) + 4
    assert (stats.delay_p50_ns, stats.delay_p99_ns) == tuple(round(q) for q in np.percentile(delays, (50, 99)))
    assert (stats.delay_max_ns, stats.delay_sum_ns) == (max(delays), sum(delays))


def test_an_interval_without_reads_has_no_delay(clocks: Clocks) -> None:
    clock = read_clock(clocks)
    clock.stamp(clocks.kernel(clocks.ns), 1)
    clock.take()
    stats = clock.take()
    assert (stats.reads, stats.bytes, stats.delay_sum_ns) == (0, 0, 0)
    assert (stats.delay_p50_ns, stats.delay_p99_ns, stats.delay_max_ns) == (None, None, None)


def test_an_interval_that_nobody_takes_keeps_its_counts_and_bounded_memory(clocks: Clocks) -> None:
    clock = read_clock(clocks)
    for _ in range(5):
        clock.begin_batch()
        for _ in range(40_000):
            clock.stamp(clocks.kernel(clocks.ns), 1)
    stats = clock.take()
    assert stats.kernel_stamped == stats.reads == stats.bytes == 200_000
