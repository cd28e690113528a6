"""Know how a table of request rows becomes the numpy columns that formulas read."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from servebench.core.errors import ShardError
from servebench.core.outcomes import CHUNK_KINDS, ChunkKind, Outcome
from servebench.metrics.columns import FAILED_OUTCOMES, ChunkColumns, EventFacts, FloatArray, IntArray, RequestColumns

_NUMBERS = (
    "intended_ns",
    "dispatched_ns",
    "connect_start_ns",
    "connect_end_ns",
    "sent_ns",
    "headers_ns",
    "end_ns",
    "input_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "accepted",
    "validated_ns",
)
_Int = TypeVar("_Int", np.int8, np.int32, np.int64)
_OTHER = CHUNK_KINDS.index(ChunkKind.OTHER)


def floats(table: pa.Table, name: str) -> FloatArray:
    """Return a numeric column as float64, null as NaN."""
    return np.asarray(table[name].cast(pa.float64()).to_numpy(), dtype=np.float64)


def words(table: pa.Table, name: str) -> npt.NDArray[np.object_]:
    """Return any scalar column as Python strings, None where null."""
    column = table[name]
    if not pa.types.is_dictionary(column.type):
        return np.asarray(column.cast(pa.utf8()).to_numpy(), dtype=object)
    pieces = [_decoded(piece) for piece in column.chunks]  # one Python string per word and not per row
    return np.concatenate([np.empty(0, object), *pieces])


def _decoded(column: "pa.Array[Any]") -> npt.NDArray[np.object_]:
    if not isinstance(column, pa.DictionaryArray):
        msg = f"a dictionary column holds {column.type}"
        raise TypeError(msg)
    known = np.array([*column.dictionary.cast(pa.utf8()).to_pylist(), None], dtype=object)
    codes = column.indices.fill_null(len(known) - 1)
    found: npt.NDArray[np.object_] = known[codes.to_numpy(zero_copy_only=False)]
    return found


def flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """Return a boolean column, null as False."""
    return np.equal(floats(table, name), 1.0).astype(np.bool_)


def list_offsets(table: pa.Table, name: str) -> IntArray:
    """Return where each row's list starts and ends in the flattened column, shape (rows + 1,); null lists are empty."""
    lengths = pc.fill_null(pc.list_value_length(table[name]), 0).to_numpy()
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def flat_floats(table: pa.Table, name: str) -> FloatArray:
    """Return the elements of a list column as float64, null elements as NaN."""
    return np.asarray(pc.list_flatten(table[name]).cast(pa.float64()).to_numpy(), dtype=np.float64)


def flat_ints(table: pa.Table, name: str, dtype: type[_Int]) -> npt.NDArray[_Int]:
    """Return the elements of a list column that holds no null."""
    flat = pc.list_flatten(table[name])
    if flat.null_count:
        msg = f"column {name} has null elements"
        raise ShardError(msg)
    return np.asarray(flat.to_numpy(), dtype=dtype)


def _kind_codes(table: pa.Table) -> npt.NDArray[np.int8]:
    """Return the code of each event's kind; a word of a later version, or none, counts as `other`."""
    known = {kind.value: code for code, kind in enumerate(CHUNK_KINDS)}
    found = [np.empty(0, np.int8)]
    flat: Any = pc.list_flatten(table["chunk_kind"])
    for piece in flat.chunks:
        words_of = [known.get(str(word), _OTHER) for word in piece.dictionary.to_pylist()]
        codes = piece.indices.fill_null(len(words_of)).to_numpy(zero_copy_only=False)
        found.append(np.array([*words_of, _OTHER], np.int8)[codes])
    return np.concatenate(found)


def chunk_columns(table: pa.Table) -> ChunkColumns:
    """Return the events of all rows; a table without `chunk_read` has all events in read 0.

    Raises ShardError where an event has no time, read or choice.
    """
    ns = flat_ints(table, "chunk_ns", np.int64).astype(np.float64)
    has_reads = "chunk_read" in table.column_names
    return ChunkColumns(
        offsets=list_offsets(table, "chunk_ns"),
        ns=ns,
        kind=_kind_codes(table),
        choice=flat_ints(table, "chunk_choice", np.int8),
        read=flat_ints(table, "chunk_read", np.int32) if has_reads else np.zeros(len(ns), np.int32),
        tokens=flat_floats(table, "chunk_tokens"),
    )


def request_columns(table: pa.Table, facts: EventFacts) -> RequestColumns:
    """Return the columns that formulas read, one row a request row; `facts` are of the events of the same rows."""
    outcome = words(table, "outcome")
    output_tokens = floats(table, "output_tokens")
    numbers: dict[str, Any] = {name: floats(table, name) for name in _NUMBERS}
    return replace(
        RequestColumns.blank(table.num_rows),
        **numbers,
        output_tokens=output_tokens,
        ok=np.asarray(outcome == Outcome.OK.value, dtype=bool),
        failed=np.isin(outcome.astype(str), [word.value for word in FAILED_OUTCOMES]),
        unchecked=np.isnan(numbers["accepted"]) & ~np.asarray(table["accept_reason"].is_null().to_numpy(), dtype=bool),
        events=facts,
    )
