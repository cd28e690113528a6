"""Know how rows, chunks and tables look as pandas frames: one unit per column, named in it."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from servebench.analysis.chunks import PartPlace
from servebench.analysis.columns import chunk_columns, flat_floats, words
from servebench.analysis.curve import CurvePoint
from servebench.analysis.row_tables import SCALARS
from servebench.analysis.source import RunData
from servebench.analysis.table_rows import STATISTICS
from servebench.analysis.tables import Table
from servebench.core.outcomes import CHUNK_KINDS
from servebench.metrics import METRIC_BY_NAME, Metric
from servebench.metrics.formulas import REQUEST_FORMULAS
from servebench.shards.reader import load_part
from servebench.shards.schema import REQUESTS_SCHEMA


def requests_frame(run: RunData) -> pd.DataFrame:
    """Return one row per request row: every stored column but the chunk lists, and the metrics of each row.

    Metrics are in base units, which their names end in. Integers that may be null are pandas' nullable `Int64`; a
    metric that is undefined is NaN.
    Raises ShardError where a part changed since the run was read.
    """
    frame = run.stored(*SCALARS).to_pandas(types_mapper=_NULLABLE.get)
    columns = {_column_name(METRIC_BY_NAME[name]): formula(run.columns) for name, formula in REQUEST_FORMULAS.items()}
    return frame.assign(**columns)


def _column_name(metric: Metric) -> str:
    """Return name and base unit, such as `ttft_ns`; a name that says its unit stays as it is."""
    unit = {"1": "share", "tok/s": "tok_per_s"}.get(metric.base_unit, metric.base_unit.replace("/", "_per_"))
    return metric.name if unit in metric.name else f"{metric.name}_{unit}"


_NULLABLE = {
    pa.int64(): pd.Int64Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def chunks_frame(run: RunData) -> pd.DataFrame:
    """Return one row per event, in order of request and arrival; `chunk` counts events of a request from 0.

    Holds all events of the run in memory, about 80 bytes each.
    Raises ShardError where a part changed since the run was read.
    """
    frame = pd.concat(list(chunk_pieces(run)), ignore_index=True)
    frame = frame.sort_values(["seq", "attempt", "chunk"], ignore_index=True)
    for name in ("kind", "worker", "phase"):
        frame[name] = frame[name].astype("category")
    return frame


def chunk_pieces(run: RunData) -> Iterator[pd.DataFrame]:
    """Yield an empty frame, which has the columns, and then the events of each part.

    Raises ShardError where a part changed since the run was read.
    """
    yield _piece(run, None)
    for item in run.chunks.places:
        yield _piece(run, item)


def _piece(run: RunData, item: PartPlace | None) -> pd.DataFrame:
    """Return the events of one part; without one, the empty frame."""
    if item is None:
        table, place = REQUESTS_SCHEMA.empty_table(), np.empty(0, np.int64)
    else:
        table, place = run.chunks.axis.applied(load_part(item.path, run.manifest.run_id)).table, item.place
    chunks = chunk_columns(table)
    owner = chunks.request()
    kinds = np.array([kind.value for kind in CHUNK_KINDS], dtype=object)
    return pd.DataFrame(
        {
            "seq": run.seq[place][owner],
            "attempt": run.attempt[place][owner],
            "chunk": np.arange(len(owner)) - chunks.offsets[owner],
            "ns": chunks.ns.astype(np.int64),
            "delay_ns": pd.Series(flat_floats(table, "chunk_delay_ns")).astype("Int64"),
            "kind": kinds[chunks.kind],
            "tokens": pd.Series(chunks.tokens).astype("Int64"),
            "read": chunks.read,
            "choice": chunks.choice,
            "worker": words(table, "worker")[owner],
            "phase": words(table, "phase")[owner],
        }
    )


def table_frame(table: Table) -> pd.DataFrame:
    """Return the percentile table; NaN where undefined or where samples are too few."""
    frame = pd.DataFrame.from_records(table.records())
    return frame.astype(dict.fromkeys(STATISTICS, float))


def curve_frame(points: tuple[CurvePoint, ...]) -> pd.DataFrame:
    """Return the throughput-under-load curve, one row a level."""
    return pd.DataFrame.from_records([point.record() for point in points])
