"""Know every column of `spans`: the steps of answers that a user's own code makes, one row per step and per answer."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from servebench.shards.arrow import Column, encodable, fixed_column, word_column
from servebench.shards.schema import WORD
from servebench.shards.schema import Column as ColumnSpec

WHOLE = 0
"""`number` of the row of the answer itself; its steps count from 1."""


class SpanRow(NamedTuple):
    """One step of an answer, or the answer itself; times monotonic ns, the other fields as the columns say."""

    answer_id: int
    number: int
    parent: int | None
    answer: str
    span: str
    start_ns: int
    end_ns: int
    error: str | None
    request_id: str | None


SPAN_COLUMNS: tuple[ColumnSpec, ...] = (
    ColumnSpec("run_id", WORD, "", "run that the row belongs to"),
    ColumnSpec("worker", WORD, "", "process that made the answer"),
    ColumnSpec("answer_id", pa.int64(), "", "number of the answer; with worker and number the key of a row"),
    ColumnSpec("number", pa.int32(), "", "0 = the answer itself, its steps from 1 in the order they began"),
    ColumnSpec("parent", pa.int32(), "", "number of the step around this one; null for the answer itself"),
    ColumnSpec("answer", WORD, "", "name of the answer"),
    ColumnSpec("span", WORD, "", "name of the step; that of the answer where number is 0"),
    ColumnSpec("start_ns", pa.int64(), "ns", "when it began, from the start of the process's recording"),
    ColumnSpec("end_ns", pa.int64(), "ns", "when it ended"),
    ColumnSpec("error", WORD, "", "class of what it raised; null = it ended well"),
    ColumnSpec("request_id", WORD, "", "row of `requests` that the answer is; null = the file was run by locust alone"),
)

SPAN_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(column.name, column.type, metadata={"unit": column.unit, "description": column.meaning})
        for column in SPAN_COLUMNS
    ]
)


def span_table(rows: Sequence[SpanRow], *, run_id: str, worker: str, epoch_monotonic_ns: int) -> pa.Table:
    """Return the rows with exactly SPAN_SCHEMA; at most 32,767 of them, as words are int16 codes."""
    code = np.zeros(len(rows), np.int16)
    parent = np.array([-1 if row.parent is None else row.parent for row in rows], np.int32)
    columns: dict[str, Column] = {
        "run_id": word_column(code, [run_id], WORD),
        "worker": word_column(code, [worker], WORD),
        "answer_id": fixed_column(np.array([row.answer_id for row in rows], np.int64), pa.int64()),
        "number": fixed_column(np.array([row.number for row in rows], np.int32), pa.int32()),
        "parent": fixed_column(parent, pa.int32(), parent < 0),
        "start_ns": _stamps([row.start_ns for row in rows], epoch_monotonic_ns),
        "end_ns": _stamps([row.end_ns for row in rows], epoch_monotonic_ns),
        "answer": _words([row.answer for row in rows]),
        "span": _words([row.span for row in rows]),
        "error": _words([row.error for row in rows]),
        "request_id": _words([row.request_id for row in rows]),
    }
    return pa.Table.from_arrays([columns[field.name] for field in SPAN_SCHEMA], schema=SPAN_SCHEMA)


def _stamps(values: list[int], epoch_ns: int) -> Column:
    return fixed_column(np.array(values, np.int64) - epoch_ns, pa.int64())


def _words(texts: list[str | None] | list[str]) -> Column:
    known: dict[str, int] = {}
    codes = [-1 if text is None else known.setdefault(encodable(text), len(known)) for text in texts]
    return word_column(np.array(codes, np.int16), tuple(known), WORD)
