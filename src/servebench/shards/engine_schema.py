"""Know every column of `engine` and `hardware`: what a server or exporter said of itself, a row per number and second.

A row is either raw (`name` and `labels` as the page has them) or canonical (`series`); the other two are null then.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from servebench.shards.arrow import Column, fixed_column, word_column
from servebench.shards.schema import Column as ColumnSpec

LONG_WORD = pa.dictionary(pa.int32(), pa.utf8())
"""Label sets of a busy page outnumber what int16 can tell apart."""


class EngineRow(NamedTuple):
    """One number of one page; the fields are the columns of the same name."""

    t_ns: int
    source: str
    dialect: str | None
    series: str | None
    name: str | None
    labels: str | None
    value: float


ENGINE_COLUMNS: tuple[ColumnSpec, ...] = (
    ColumnSpec("run_id", LONG_WORD, "", "run that the row belongs to"),
    ColumnSpec("t_ns", pa.int64(), "ns", "middle of the request for the page, on the run clock"),
    ColumnSpec("source", LONG_WORD, "", "address of the page, without secrets"),
    ColumnSpec("dialect", LONG_WORD, "", "whose vocabulary the page speaks: vllm, sglang, …; null = none that we know"),
    ColumnSpec("series", LONG_WORD, "", "canonical name: running, waiting, kv_usage, …; null in raw rows"),
    ColumnSpec("name", LONG_WORD, "", "name on the page; null in canonical rows"),
    ColumnSpec("labels", LONG_WORD, "", "labels on the page as JSON object; null in canonical rows"),
    ColumnSpec("value", pa.float64(), "", "number on the page, in canonical rows in the unit of the series"),
)

ENGINE_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(column.name, column.type, metadata={"unit": column.unit, "description": column.meaning})
        for column in ENGINE_COLUMNS
    ]
)


def engine_table(rows: Sequence[EngineRow], *, run_id: str) -> pa.Table:
    """Return the rows with exactly ENGINE_SCHEMA."""
    columns: list[Column] = [word_column(np.zeros(len(rows), np.int32), [run_id], LONG_WORD)]
    for name in EngineRow._fields:
        cells = [getattr(row, name) for row in rows]
        kind = ENGINE_SCHEMA.field(name).type
        if kind == LONG_WORD:
            columns.append(_words(cells))
        else:
            columns.append(fixed_column(np.array(cells, np.int64 if kind == pa.int64() else np.float64), kind))
    return pa.Table.from_arrays(columns, schema=ENGINE_SCHEMA)


def _words(cells: Sequence[str | None]) -> Column:
    codes: dict[str | None, int] = {None: -1}
    found = [codes.setdefault(cell, len(codes) - 1) for cell in cells]
    words = [word for word in codes if word is not None]
    return word_column(np.array(found, np.int32), words, LONG_WORD)
