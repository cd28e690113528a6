"""Know every column of `clock`: how a worker compared its clock with the master's, one row per answered ping.

A worker that shares the master's clock (same boot) sends no pings and has no such parts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from servebench.shards.arrow import Column, fixed_column, word_column
from servebench.shards.schema import WORD
from servebench.shards.schema import Column as ColumnSpec


class ClockRow(NamedTuple):
    """One answered ping; the fields are the columns of the same name."""

    sent_ns: int
    master_ns: int
    received_ns: int


CLOCK_COLUMNS: tuple[ColumnSpec, ...] = (
    ColumnSpec("run_id", WORD, "", "run that the row belongs to"),
    ColumnSpec("worker", WORD, "", "worker incarnation that asked"),
    ColumnSpec("sent_ns", pa.int64(), "ns", "when the worker asked, on its own run clock"),
    ColumnSpec("master_ns", pa.int64(), "ns", "when the master answered, on the master's run clock"),
    ColumnSpec("received_ns", pa.int64(), "ns", "when the worker had the answer, on its own run clock"),
)

CLOCK_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(column.name, column.type, metadata={"unit": column.unit, "description": column.meaning})
        for column in CLOCK_COLUMNS
    ]
)


def clock_table(rows: Sequence[ClockRow], *, run_id: str, worker: str) -> pa.Table:
    """Return the rows with exactly CLOCK_SCHEMA."""
    code = np.zeros(len(rows), np.int16)
    columns: list[Column] = [word_column(code, [run_id], WORD), word_column(code, [worker], WORD)]
    numbers = np.array(rows, np.int64).reshape(len(rows), len(ClockRow._fields))
    columns += [fixed_column(np.ascontiguousarray(numbers[:, place]), pa.int64()) for place in range(numbers.shape[1])]
    return pa.Table.from_arrays(columns, schema=CLOCK_SCHEMA)
