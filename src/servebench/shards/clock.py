"""Know how far a worker's run clock was off the master's over time, and how rows are put on the master's.

A correction is what is ADDED to a time of the worker's parts to get the run time of the master. It is fitted after the
run: in each window the ping with the least round trip counts, the correction is linear between those (drift), constant
before the first and after the last.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from servebench.core.errors import ShardError
from servebench.core.units import NS_PER_S
from servebench.shards.arrow import Bools, Column, fixed_column, list_column, nulls_of, values_of

IntArray = npt.NDArray[np.int64]

WINDOW_NS = 10 * NS_PER_S
MAX_KNOTS = 256
"""A long run has longer windows: drift is slow, and `run.json` stays small with hundreds of workers."""
POOR = 4
"""A window whose best bound is this many times the median one says nothing that its neighbours do not say better."""

MOST_NS = 90 * 86_400 * NS_PER_S
"""No run lasts longer, and no run clock is further off."""
MASTER_CLOCK: list[list[int]] = [[0, 0, 0]]
"""Knots of a worker that shares the master's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Knots in order of time: at `t_ns` of the worker's run clock add `correction_ns`, right within +- `bound_ns`."""

    t_ns: IntArray
    correction_ns: IntArray
    bound_ns: IntArray

    @classmethod
    def from_knots(cls, knots: Sequence[Sequence[int]]) -> "Correction":
        """Return the correction that `run.json` holds for a worker; no knots = none.

        Raises ShardError where they are no knots, not in order of time, or put a clock months away.
        """
        if any(len(knot) != len(MASTER_CLOCK[0]) or any(abs(ns) > MOST_NS for ns in knot) for knot in knots):
            msg = "run.json: a knot of clock is [t_ns, correction_ns, bound_ns], each less than 90 days"
            raise ShardError(msg)
        columns = np.array(list(knots) or MASTER_CLOCK, np.int64)
        if (np.diff(columns[:, 0]) < 0).any():
            msg = "run.json: the knots of clock are in order of t_ns"
            raise ShardError(msg)
        return cls(t_ns=columns[:, 0], correction_ns=columns[:, 1], bound_ns=columns[:, 2])

    def knots(self) -> list[list[int]]:
        """Return the form of `run.json`."""
        return [list(map(int, knot)) for knot in zip(self.t_ns, self.correction_ns, self.bound_ns, strict=True)]

    @property
    def zero(self) -> bool:
        """Whether it changes nothing."""
        return not self.correction_ns.any()

    def at(self, t_ns: IntArray) -> IntArray:
        """Return what to add at times of the worker's run clock."""
        found: IntArray = np.rint(np.interp(t_ns, self.t_ns, self.correction_ns)).astype(np.int64)
        return found


def fit(sent_ns: IntArray, master_ns: IntArray, received_ns: IntArray) -> Correction:
    """Return the correction that pings tell; the arrays are the columns of `clock` in any order, at least one row.

    The true correction at a knot lies within its bound, half the round trip, however unequal the two ways were.
    """
    middle, trip = (sent_ns + received_ns) // 2, received_ns - sent_ns
    window = _windows(middle)
    # Sorted by window, then round trip, then time: the first of each window is its best.
    order = np.lexsort((middle, trip, window))
    best = order[np.unique(window[order], return_index=True)[1]]
    bound = (trip[best] + 1) // 2
    best = best[bound <= POOR * np.median(bound)]
    return Correction(t_ns=middle[best], correction_ns=(master_ns - middle)[best], bound_ns=(trip[best] + 1) // 2)


def shifted(table: pa.Table, correction: Correction, times: Sequence[str], anchors: Sequence[str]) -> pa.Table:
    """Return a table on the master's run clock: one correction per row, so that no span within a row changes.

    `times` are the columns that hold run times, int64 or lists of int64; `anchors` those of them that say when the row
    was, the first that is not null counts. A row that has none is left as it is.
    """
    if correction.zero or not table.num_rows:
        return table
    by = np.zeros(table.num_rows, np.int64)
    known = np.zeros(table.num_rows, bool)
    for name in anchors:
        column = table[name].combine_chunks()
        here: Bools = ~known & ~nulls_of(column)
        by[here] = correction.at(values_of(column))[here]
        known |= here
    for place, name in enumerate(table.column_names):
        if name in times:
            table = table.set_column(place, table.schema.field(name), _moved(table[name].combine_chunks(), by))
    return table


def _windows(t_ns: IntArray) -> IntArray:
    span_ns = int(t_ns.max() - t_ns.min())
    found: IntArray = (t_ns - t_ns.min()) // max(WINDOW_NS, -(-span_ns // MAX_KNOTS))
    return found


def _moved(column: "pa.Array[Any]", by: IntArray) -> Column:
    """Return a column with `by[row]` added to each of its values; null stays null."""
    null: Bools = nulls_of(column)
    if not pa.types.is_list(column.type):
        return fixed_column(values_of(column) + by, column.type, null)
    sizes = pc.list_value_length(column)
    lengths = np.where(nulls_of(sizes), 0, values_of(sizes))
    flat = values_of(pc.list_flatten(column)) + np.repeat(by, lengths)
    offsets = array("i", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32).tobytes())
    return list_column(offsets, fixed_column(flat, pa.int64()), column.type, null)
