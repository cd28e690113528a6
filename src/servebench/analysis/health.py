"""Know what the client's own health parts say: its lag and load over time, and which seconds it spoiled."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servebench.analysis.columns import flags, floats, words
from servebench.analysis.time_axis import TimeAxis
from servebench.core.errors import ShardError
from servebench.metrics.columns import BoolArray, FloatArray, Window
from servebench.shards.arrow import empty_table
from servebench.shards.health_schema import HEALTH_SCHEMA
from servebench.shards.reader import read_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One element per worker and second; `t_ns` is its end, NaN = not known. Empty without health parts."""

    t_ns: FloatArray
    worker: npt.NDArray[np.object_]
    hub_lag_p99_ns: FloatArray
    cpu_share: FloatArray
    read_delay_p99_ns: FloatArray
    rss_bytes: FloatArray
    spoiled: BoolArray


def read_health(folder: Path, run_id: str, axis: TimeAxis | None = None) -> Health:
    """Return the health rows of a run folder; a part that cannot be read, and a missing folder, give none."""
    try:
        parts = read_parts(folder / "health", run_id, schema=HEALTH_SCHEMA).parts
        tables = [(axis or TimeAxis()).applied(part, ("t_ns",), ("t_ns",)).table for part in parts]
        table = pa.concat_tables([empty_table(HEALTH_SCHEMA), *tables])
    except ShardError:
        table = empty_table(HEALTH_SCHEMA)
    # Arrow does not sort by a dictionary column.
    plain = table.set_column(table.schema.get_field_index("worker"), "worker", table["worker"].cast(pa.utf8()))
    table = plain.sort_by([("t_ns", "ascending"), ("worker", "ascending")])
    return Health(
        t_ns=floats(table, "t_ns"),
        worker=words(table, "worker"),
        hub_lag_p99_ns=floats(table, "hub_lag_p99_ns"),
        cpu_share=floats(table, "cpu_share"),
        read_delay_p99_ns=floats(table, "read_delay_p99_ns"),
        rss_bytes=floats(table, "rss_bytes"),
        spoiled=flags(table, "spoiled"),
    )


def spoiled_seconds(health: Health, window: Window) -> int:
    """Return in how many seconds of a window at least one worker was itself the limit."""
    inside = (health.t_ns > window.start_ns) & (health.t_ns <= window.end_ns) & health.spoiled
    return len(np.unique(np.ceil(health.t_ns[inside] / 1e9)))


def spoiled_rows(health: Health, worker: npt.NDArray[np.object_], sent_ns: FloatArray) -> BoolArray:
    """Return which rows were sent in a second in which their own worker was the limit; a row never sent was not."""
    found = np.zeros(len(sent_ns), bool)
    for name in set(health.worker[health.spoiled].tolist()):
        mine = health.spoiled & np.equal(health.worker, name)
        seconds = np.unique(np.ceil(health.t_ns[mine] / 1e9)) - 1
        found |= np.equal(worker, name) & np.isin(sent_ns // 1e9, seconds)
    return found
