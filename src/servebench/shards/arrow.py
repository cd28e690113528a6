"""Know how memory becomes Arrow columns without `pa.array`, and Arrow columns numpy without `to_numpy`.

Both import pandas on their first call: 0.3-0.6 s under the GIL, in a worker that is timing streams or before a table
that somebody waits for. `pa.array` also walks what it is given. Here numpy packs and unpacks validity bits, and the
buffers are adopted as they are.
"""

from array import array
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Column: TypeAlias = "pa.Array[Any]"
Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


def fixed_column(values: Numbers, kind: pa.DataType, null: Bools | None = None) -> Column:
    """Return a column of fixed-width values; shape (n,), of the width that `kind` has.

    The values are adopted, not copied, where they are contiguous: they must not change afterwards.
    """
    validity, nulls = _validity(null)
    data = _bits(values != 0) if pa.types.is_boolean(kind) else _buffer(values)
    return pa.Array.from_buffers(kind, len(values), [validity, data], nulls)


def word_column(codes: Numbers, words: Sequence[str], kind: "pa.DictionaryType[Any, Any]") -> Column:
    """Return a dictionary column; codes of the kind's index type, below zero = null."""
    validity, nulls = _validity(codes < 0)
    data = _buffer(codes)
    return pa.DictionaryArray.from_buffers(kind, len(codes), [validity, data], text_column(words), nulls)


def text_column(texts: Sequence[str]) -> Column:
    """Return a few texts as a column; walks them."""
    column = TextBuffer()
    for text in texts:
        column.append(text)
    return column.column()


def list_column(offsets: "array[int]", values: Column, kind: pa.DataType, null: Bools | None = None) -> Column:
    """Return lists of the values between successive int32 offsets; shape (len(offsets) - 1,)."""
    validity, nulls = _validity(null)
    data = _buffer(np.asarray(offsets))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [validity, data], nulls, children=[values])


def values_of(column: "Column | pa.ChunkedArray[Any]") -> Numbers:
    """Return numbers or booleans, without a copy where they are one piece; what stands at a null is anything."""
    pieces = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [_values(piece) for piece in pieces]
    return found[0] if len(found) == 1 else np.concatenate([np.empty(0, column.type.to_pandas_dtype()), *found])


def nulls_of(column: "Column | pa.ChunkedArray[Any]") -> Bools:
    """Return which elements of a column are null."""
    null: Bools = values_of(column.is_null())
    return null


def _values(piece: Column) -> Numbers:
    data = piece.buffers()[1]
    rows = slice(piece.offset, piece.offset + len(piece))
    if data is None:
        return np.zeros(len(piece), piece.type.to_pandas_dtype())
    if pa.types.is_boolean(piece.type):
        return np.unpackbits(np.frombuffer(memoryview(data), np.uint8), bitorder="little")[rows].astype(np.bool_)
    found: Numbers = np.frombuffer(memoryview(data), piece.type.to_pandas_dtype())[rows]
    return found


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows; `Schema.empty_table` goes through `pa.array`."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


class TextBuffer:
    """Texts on their way to one utf8 column."""

    __slots__ = ("_data", "_null", "_offsets")

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets = array("i", [0])
        self._null = array("b")

    def append(self, text: str | None, limit_bytes: int | None = None) -> None:
        """Append a text, None as null; cut at a character after `limit_bytes`, lone surrogates as "?"."""
        if text is not None:
            data = text.encode("utf-8", "replace")
            if limit_bytes is not None and len(data) > limit_bytes:
                data = data[:limit_bytes].decode("utf-8", "ignore").encode()
            self._data += data
        self._offsets.append(len(self._data))
        self._null.append(text is None)

    def column(self) -> Column:
        """Return the texts so far; the buffer must not be filled any more."""
        validity, nulls = _validity(np.asarray(self._null).astype(np.bool_))
        buffers = [validity, _buffer(np.asarray(self._offsets)), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(pa.utf8(), len(self._null), buffers, nulls)


def encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: JSON escapes and undecodable bytes of the system may leave lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _buffer(values: Numbers) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values).data)


def _bits(values: Bools) -> pa.Buffer:
    return _buffer(np.packbits(values, bitorder="little"))


def _validity(null: Bools | None) -> tuple[pa.Buffer | None, int]:
    if null is None or not null.any():
        return None, 0
    return _bits(~null), int(null.sum())
