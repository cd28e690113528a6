"""Know how a table of request rows becomes the numpy columns that formulas read."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from servebench.core.errors import ShardError
from servebench.core.outcomes import CHUNK_KINDS, ChunkKind, Outcome
from servebench.metrics.columns import (
    FAILED_OUTCOMES,
    ChunkColumns,
    EventFacts,
    FloatArray,
    IntArray,
    RequestColumns,
    same_for_all,
)
from servebench.shards.arrow import nulls_of, values_of

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
REQUEST_COLUMNS: tuple[str, ...] = (*_NUMBERS, "output_tokens", "outcome", "accept_reason")
"""What `request_columns` reads."""
EVENT_COLUMNS: tuple[str, ...] = ("chunk_ns", "chunk_kind", "chunk_tokens", "chunk_read", "chunk_choice")
"""What `chunk_columns` reads; of these `chunk_ns` and `chunk_kind` must be there."""
_Int = TypeVar("_Int", np.int8, np.int32, np.int64)
_OTHER = CHUNK_KINDS.index(ChunkKind.OTHER)


def floats(table: pa.Table, name: str) -> FloatArray:
    """Return a numeric column as float64, null as NaN."""
    return _floats(table[name])


def _floats(column: "pa.Array[Any] | pa.ChunkedArray[Any]") -> FloatArray:
    # A stamp of 2**53 ns or more, of a clock that counts from 1970, loses its last digits instead of costing the run.
    found = values_of(column.cast(pa.float64(), safe=False))
    return np.where(nulls_of(column), np.nan, found) if column.null_count else found


def words(table: pa.Table, name: str) -> npt.NDArray[np.object_]:
    """Return any scalar column as Python strings, None where null."""
    column = table[name]
    if not pa.types.is_dictionary(column.type):
        found = np.empty(len(column), dtype=object)
        found[:] = column.cast(pa.utf8()).to_pylist()
        return found
    codes, known = word_codes(table, name)
    return np.array([*known, None], dtype=object)[codes]  # one Python string per word and not per row


def word_codes(table: pa.Table, name: str) -> tuple[IntArray, tuple[str, ...]]:
    """Return the code of each row's word, -1 where null, and the words; for a column of words."""
    # Part by part, as Arrow cannot put dictionaries together that have more words than their codes can number.
    places: dict[str, int] = {}
    found = [np.empty(0, np.int64)]
    for piece in table[name].chunks:
        if not isinstance(piece, pa.DictionaryArray):
            msg = f"a dictionary column holds {piece.type}"
            raise TypeError(msg)
        own = [places.setdefault(str(word), len(places)) for word in piece.dictionary.cast(pa.utf8()).to_pylist()]
        found.append(np.array([*own, -1], np.int64)[_codes(piece)])
    return np.concatenate(found), tuple(places)


def _codes(piece: "pa.DictionaryArray[Any, Any]") -> npt.NDArray[Any]:
    """Return the code of each word, one past the last where null."""
    codes = values_of(piece.indices)
    return np.where(nulls_of(piece.indices), len(piece.dictionary), codes) if piece.null_count else codes


def flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """Return a boolean column, null as False."""
    return np.equal(floats(table, name), 1.0).astype(np.bool_)


def list_offsets(table: pa.Table, name: str) -> IntArray:
    """Return where each row's list starts and ends in the flattened column, shape (rows + 1,); null lists are empty."""
    column = pc.list_value_length(table[name])
    lengths = np.where(nulls_of(column), 0, values_of(column))
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def flat_floats(table: pa.Table, name: str) -> FloatArray:
    """Return the elements of a list column as float64, null elements as NaN."""
    return _floats(pc.list_flatten(table[name]))


def flat_ints(table: pa.Table, name: str, dtype: type[_Int]) -> npt.NDArray[_Int]:
    """Return the elements of a list column that holds no null."""
    flat = pc.list_flatten(table[name])
    if flat.null_count:
        msg = f"column {name} has null elements"
        raise ShardError(msg)
    return np.asarray(values_of(flat), dtype=dtype)


def _kind_codes(table: pa.Table) -> npt.NDArray[np.int8]:
    """Return the code of each event's kind; a word of a later version, or none, counts as `other`."""
    known = {kind.value: code for code, kind in enumerate(CHUNK_KINDS)}
    found = [np.empty(0, np.int8)]
    flat: Any = pc.list_flatten(table["chunk_kind"])
    for piece in flat.chunks:
        words_of = [known.get(str(word), _OTHER) for word in piece.dictionary.to_pylist()]
        found.append(np.array([*words_of, _OTHER], np.int8)[_codes(piece)])
    return np.concatenate(found)


def chunk_columns(table: pa.Table) -> ChunkColumns:
    """Return the events of all rows.

    Without `chunk_read` all are of read 0, without `chunk_choice` of choice 0, without `chunk_tokens` nobody counted; a
    column of which every list is null counts as not there.
    Raises ShardError where an event has no time, read or choice, or a row's lists are not of one length.
    """
    offsets = list_offsets(table, "chunk_ns")
    has = {name for name in EVENT_COLUMNS if _has_lists(table, name)}
    for name in EVENT_COLUMNS:
        if name in has and not np.array_equal(list_offsets(table, name), offsets):
            msg = f"has rows whose lists chunk_ns and {name} differ in length"
            raise ShardError(msg)
    ns = flat_ints(table, "chunk_ns", np.int64).astype(np.float64)
    n = len(ns)
    return ChunkColumns(
        offsets=offsets,
        ns=ns,
        kind=_kind_codes(table) if "chunk_kind" in has else same_for_all(np.int8(_OTHER), n),
        choice=flat_ints(table, "chunk_choice", np.int8) if "chunk_choice" in has else same_for_all(np.int8(0), n),
        read=flat_ints(table, "chunk_read", np.int32) if "chunk_read" in has else same_for_all(np.int32(0), n),
        tokens=_token_counts(table) if "chunk_tokens" in has else same_for_all(np.float64("nan"), n),
    )


def _has_lists(table: pa.Table, name: str) -> bool:
    return name in table.column_names and table[name].null_count < len(table[name])


def _token_counts(table: pa.Table) -> FloatArray:
    found = flat_floats(table, "chunk_tokens")
    if (found < 0).any():
        msg = "has events with tokens below 0; null is what is not known"
        raise ShardError(msg)
    return found


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
        unchecked=np.isnan(numbers["accepted"]) & ~nulls_of(table["accept_reason"]),
        events=facts,
    )
