"""Know how rows, chunks and tables look as pandas frames: one unit per column, named in it."""

import numpy as np
import pandas as pd
import pyarrow as pa

from servebench.analysis.columns import flat_floats, words
from servebench.analysis.curve import CurvePoint
from servebench.analysis.samples import sample_all
from servebench.analysis.source import RunData
from servebench.analysis.tables import STATISTICS, Table
from servebench.core.outcomes import CHUNK_KINDS
from servebench.metrics import METRIC_BY_NAME
from servebench.shards.schema import REQUESTS_SCHEMA


def requests_frame(run: RunData) -> pd.DataFrame:
    """Return one row per request row: every stored column but the chunk lists, and the metrics of each row in ns.

    Integers that may be null are pandas' nullable `Int64`; a metric that is undefined is NaN.
    """
    scalar = [field.name for field in REQUESTS_SCHEMA if not pa.types.is_list(field.type)]
    frame = run.table.select(scalar).to_pandas(types_mapper=_NULLABLE.get)
    for name, samples in sample_all(run.columns).items():
        metric = METRIC_BY_NAME[name]
        if metric.kind == "request":
            column = np.full(len(frame), np.nan)
            column[samples.row] = samples.values  # noqa: PD011 - a NamedTuple's field
            frame[f"{name}_{metric.base_unit.replace('/', '_per_')}"] = column
    return frame


_NULLABLE = {
    pa.int64(): pd.Int64Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def chunks_frame(run: RunData) -> pd.DataFrame:
    """Return one row per event, in order of request and arrival; `chunk` counts events of a request from 0."""
    chunks = run.columns.chunks
    owner = chunks.request()
    return pd.DataFrame(
        {
            "seq": run.seq[owner],
            "attempt": run.attempt[owner],
            "chunk": np.arange(len(owner)) - chunks.offsets[owner],
            "ns": chunks.ns.astype(np.int64),
            "delay_ns": pd.Series(flat_floats(run.table, "chunk_delay_ns")).astype("Int64"),
            "kind": pd.Categorical.from_codes(chunks.kind, categories=pd.Index([kind.value for kind in CHUNK_KINDS])),
            "tokens": pd.Series(chunks.tokens).astype("Int64"),
            "read": chunks.read,
            "choice": chunks.choice,
            "worker": pd.Categorical(words(run.table, "worker")[owner]),
            "phase": pd.Categorical(run.phase[owner]),
        }
    )


def table_frame(table: Table) -> pd.DataFrame:
    """Return the percentile table; NaN where undefined or where samples are too few."""
    frame = pd.DataFrame.from_records(table.records())
    return frame.astype(dict.fromkeys(STATISTICS, float))


def curve_frame(points: tuple[CurvePoint, ...]) -> pd.DataFrame:
    """Return the throughput-under-load curve, one row a level."""
    return pd.DataFrame.from_records([point.record() for point in points])
