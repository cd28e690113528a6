"""Know how a coarse clock shows in recorded times, and how to undo it.

Mooncake's conversation trace stands on ticks of 3 s: replayed as it is, it makes a volley of about 10 requests every
3 s that the service never saw. Spread evenly at random over its tick, the same trace has gaps of CV 1.
"""

from typing import NamedTuple

import numpy as np

from servebench.workload.rows import Ints

FEWEST_ROWS = 20
MOST_ALONE = 0.5


class Ticks(NamedTuple):
    """How many rows have the time of another one, and the usual distance between two different times."""

    equal: int
    tick_ns: int


def ticks_of(times_ns: Ints) -> Ticks | None:
    """Return the ticks of sorted times; None where at least half of the rows stand alone, or there are few."""
    if len(times_ns) < FEWEST_ROWS:
        return None
    different, counts = np.unique(times_ns, return_counts=True)
    equal = int(counts[counts > 1].sum())
    if equal <= MOST_ALONE * len(times_ns) or len(different) < 2:
        return None
    return Ticks(equal, int(np.median(np.diff(different))))


def spread(times_ns: Ints, tick_ns: int, draws: np.random.Generator) -> Ints:
    """Return sorted times with those of one tick spread at random over it, in their order.

    No row passes into the next tick.
    """
    different, counts = np.unique(times_ns, return_counts=True)
    room_ns = np.minimum(np.diff(different, append=different[-1] + tick_ns), tick_ns)
    # Sorting shares within groups: a group's number plus a share in [0, 1) sorts by group first.
    group = np.repeat(np.arange(len(different)), counts)
    shares = np.sort(group + draws.random(len(times_ns))) - group
    spreaded: Ints = times_ns + (shares * np.repeat(room_ns, counts)).astype(np.int64)
    return spreaded
