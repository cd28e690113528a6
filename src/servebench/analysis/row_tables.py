"""Know how the scalar columns of many parts become one table in the order of the run, a column at a time."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from servebench.analysis.chunks import ChunkSource
from servebench.analysis.time_axis import ANCHORS
from servebench.metrics.columns import IntArray
from servebench.shards.arrow import empty_table, fixed_column
from servebench.shards.reader import LoadedPart
from servebench.shards.schema import REQUESTS_SCHEMA

SCALARS: tuple[str, ...] = tuple(f.name for f in REQUESTS_SCHEMA if not pa.types.is_list(f.type))
"""Columns that have one value a row."""
KEPT: tuple[str, ...] = (
    "session",
    "turn",
    "prompt_id",
    "planned_input_tokens",
    "max_tokens",
    "outcome",
    "error_class",
    "error_message",
    "streamed",
    "model",
    "token_source",
    "output_tokens_counted",
    "counted_source",
    "accept_reason",
)
"""What every merge looks at; a reading keeps these as they were stored. Others are read again when asked for."""


def in_order(tables: list[pa.Table], names: Sequence[str], order: IntArray) -> pa.Table:
    """Return some columns of all tables, numbered one after the other, in an order of these numbers.

    Empties the list, column by column: a large run has no room for all of it twice.
    """
    nothing = empty_table(pa.schema([REQUESTS_SCHEMA.field(name) for name in names]))
    pieces = {name: [table.select([name]) for table in (nothing, *tables)] for name in names}
    tables.clear()
    places = fixed_column(order, pa.int64())
    found = [pa.concat_tables(pieces.pop(name)).take(places).combine_chunks()[name] for name in names]
    return pa.Table.from_arrays(found, schema=nothing.schema)


def stored(source: ChunkSource, names: Sequence[str]) -> pa.Table:
    """Return some columns of all rows of a run, read from its parts once more, in order of (seq, attempt).

    Raises ShardError where a part is not what it was when the run was read.
    """
    wanted = tuple(dict.fromkeys((*names, *ANCHORS)))
    tables = []
    for item in source.places:
        part = item.open_again(source.run_id)
        tables.append(source.axis.applied(LoadedPart(part.info, part.sha256, part.read(wanted))).table)
    places = np.concatenate([np.empty(0, np.int64), *(part.place for part in source.places)])
    return in_order(tables, names, np.argsort(places))
