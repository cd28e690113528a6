"""Know every column of `health`: the client's own state, one row per worker and second.

A row covers [t_ns - span_ns, t_ns) of the run clock; the last row of a worker covers less than a second. null means
"not known".
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from servebench.core.units import NS_PER_MS
from servebench.shards.arrow import Bools, Column, fixed_column, word_column
from servebench.shards.schema import WORD
from servebench.shards.schema import Column as ColumnSpec

SPOILED_LAG_NS = 20 * NS_PER_MS
SPOILED_CPU_SHARE = 0.85


class HealthRow(NamedTuple):
    """One second of one worker; the fields are the columns of the same name."""

    t_ns: int
    span_ns: int
    hub_lag_p50_ns: int | None
    hub_lag_p99_ns: int | None
    hub_lag_max_ns: int | None
    hub_lag_idle_ns: int | None
    cpu_share: float
    rss_bytes: int
    gc_pauses: int
    gc_pause_max_ns: int | None
    inflight: int
    sent: int
    reads: int
    read_delay_p99_ns: int | None
    dispatch_lag_p99_ns: int | None
    dispatch_lag_max_ns: int | None
    spoiled: bool


HEALTH_COLUMNS: tuple[ColumnSpec, ...] = (
    ColumnSpec("run_id", WORD, "", "run that the row belongs to"),
    ColumnSpec("worker", WORD, "", "worker incarnation that it describes"),
    ColumnSpec("t_ns", pa.int64(), "ns", "end of the second on the run clock"),
    ColumnSpec("span_ns", pa.int64(), "ns", "length of the second; the last of a worker is shorter"),
    ColumnSpec("hub_lag_p50_ns", pa.int64(), "ns", "median lateness of a 10 ms ticker, what a greenlet waits to run"),
    ColumnSpec("hub_lag_p99_ns", pa.int64(), "ns", "99th percentile of the ticker's lateness"),
    ColumnSpec("hub_lag_max_ns", pa.int64(), "ns", "largest lateness of the ticker"),
    ColumnSpec(
        "hub_lag_idle_ns",
        pa.int64(),
        "ns",
        "99th percentile of the calmest second before the run; null = too few ticks",
    ),
    ColumnSpec("cpu_share", pa.float64(), "1", "CPU time of the process over wall time; 1 = one core"),
    ColumnSpec("rss_bytes", pa.int64(), "bytes", "resident memory of the process"),
    ColumnSpec("gc_pauses", pa.int64(), "", "garbage collections"),
    ColumnSpec("gc_pause_max_ns", pa.int64(), "ns", "longest garbage collection; null = none ran"),
    ColumnSpec("inflight", pa.int64(), "", "requests open at the end of the second"),
    ColumnSpec("sent", pa.int64(), "", "requests sent in the second"),
    ColumnSpec("reads", pa.int64(), "", "reads from sockets in the second"),
    ColumnSpec(
        "read_delay_p99_ns", pa.int64(), "ns", "99th percentile of kernel stamp to read; null = no kernel stamp"
    ),
    ColumnSpec("dispatch_lag_p99_ns", pa.int64(), "ns", "99th percentile of dispatch lag; null = nothing was due"),
    ColumnSpec("dispatch_lag_max_ns", pa.int64(), "ns", "largest dispatch lag; null = nothing was due"),
    ColumnSpec("spoiled", pa.bool_(), "", "hub lag p99 over idle + 20 ms or CPU above 85 %: the client was the limit"),
)

HEALTH_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(column.name, column.type, metadata={"unit": column.unit, "description": column.meaning})
        for column in HEALTH_COLUMNS
    ]
)


def is_spoiled(hub_lag_p99_ns: int | None, hub_lag_idle_ns: int | None, cpu_share: float) -> bool:
    """Return whether the client itself was the limit in that second; an unknown idle level counts as 0."""
    lag_ns = 0 if hub_lag_p99_ns is None else hub_lag_p99_ns - (hub_lag_idle_ns or 0)
    return lag_ns > SPOILED_LAG_NS or cpu_share > SPOILED_CPU_SHARE


def health_table(rows: Sequence[HealthRow], *, run_id: str, worker: str) -> pa.Table:
    """Return the rows with exactly HEALTH_SCHEMA."""
    code = np.zeros(len(rows), np.int16)
    columns: list[Column] = [word_column(code, [run_id], WORD), word_column(code, [worker], WORD)]
    for name in HealthRow._fields:
        cells = [getattr(row, name) for row in rows]
        null: Bools = np.array([cell is None for cell in cells], np.bool_)
        kind = HEALTH_SCHEMA.field(name).type
        values = np.array([0 if cell is None else cell for cell in cells], _DTYPES[kind])
        columns.append(fixed_column(values, kind, null))
    return pa.Table.from_arrays(columns, schema=HEALTH_SCHEMA)


_DTYPES: dict[pa.DataType, type[np.generic]] = {
    pa.int64(): np.int64,
    pa.float64(): np.float64,
    pa.bool_(): np.bool_,
}
