"""Know how Arrow reads a large CSV trace: batch by batch into columns of numbers, every row checked on the way.

Of the text no more than some blocks is held at a time: a row costs 16 bytes. `to_numpy` and `pa.array` are not called:
they import pandas, 50 MB that no worker needs.
"""

from array import array
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from servebench.core.units import NS_PER_S
from servebench.workload.rows import MAX_TOKENS, Rows, Tokens
from servebench.workload.trace_layout import FARTHEST_S, Found, Layout, seconds_to_ns

_BLOCK_BYTES = 262_144
"""Arrow keeps some thirty blocks of its own in flight: of 4 MB each they would be most of what a worker holds."""


def read_large(stream: BinaryIO, layout: Layout, found: Found) -> Rows | None:
    """Return the rows of a CSV without its header; None where a field is not what it should be, or a row is short.

    The stream is read from where it stands, maybe more than once, and left anywhere.
    """
    begin = stream.tell()
    kinds: list[pa.DataType] = [pa.timestamp("ns"), pa.timestamp("ns", "UTC")] if layout.dated else [pa.float64()]
    for kind in kinds:
        stream.seek(begin)
        columns = _Columns(dated=layout.dated, sessions=found.session is not None)
        try:
            if all(columns.take(batch) for batch in _batches(stream, found, kind)):
                return columns.rows()
        except pa.ArrowInvalid:
            continue
        return None
    return None


def _batches(stream: BinaryIO, found: Found, time: pa.DataType) -> arrow_csv.CSVStreamingReader:
    # Names of our own: those of the file may be double or empty.
    names = [f"c{index}" for index in range(len(found.names))]
    wanted = {"time": found.time, "input": found.input, "output": found.output}
    types = {"time": time, "input": pa.int64(), "output": pa.int64()}
    if found.session is not None:
        wanted["session"], types["session"] = found.session, pa.utf8()
    for column, index in wanted.items():
        names[index] = column
    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES, use_threads=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types, include_columns=list(wanted), null_values=[], strings_can_be_null=False
        ),
    )


class _Columns:
    """The columns of the batches so far; numbers grow in place."""

    def __init__(self, *, dated: bool, sessions: bool) -> None:
        self._dated = dated
        self._times: array[int] | array[float] = array("q") if dated else array("d")
        self._inputs, self._outputs = array("i"), array("i")
        self._names: list[pa.DictionaryArray[Any, Any]] | None = [] if sessions else None

    def take(self, batch: pa.RecordBatch) -> bool:
        """Add the rows of a batch; False where a number is none that a trace may have."""
        times = _numbers(batch.column("time"), np.int64 if self._dated else np.float64)
        if not bool((np.abs(times) <= FARTHEST_S * (NS_PER_S if self._dated else 1)).all()):
            return False
        self._times.frombytes(times.tobytes())
        for name, column in (("input", self._inputs), ("output", self._outputs)):
            tokens = _numbers(batch.column(name), np.int64)
            if bool(((tokens < 0) | (tokens > MAX_TOKENS)).any()):
                return False
            column.frombytes(tokens.astype(np.int32).tobytes())
        if self._names is not None:
            self._names.append(_plain(batch.column("session")).dictionary_encode())
        return True

    def rows(self) -> Rows:
        """Return all rows; the columns are adopted, not copied."""
        times = np.asarray(self._times)
        return Rows(
            time_ns=times if self._dated else seconds_to_ns(times),
            input_tokens=np.asarray(self._inputs),
            output_tokens=np.asarray(self._outputs),
            session=None if self._names is None else _sessions(self._names),
        )


def _numbers(column: "pa.Array[Any]", kind: type[np.int32 | np.int64 | np.float64]) -> npt.NDArray[Any]:
    """Return the values of a column without nulls, which the options of the reader exclude."""
    data = column.buffers()[1]
    if data is None:
        return np.empty(0, kind)
    return np.frombuffer(memoryview(data), kind)[column.offset : column.offset + len(column)]


def _plain(names: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return names without the blanks and quotes around them, as a field read by itself has none."""
    return pc.utf8_trim_whitespace(pc.utf8_trim(pc.utf8_trim_whitespace(names), '"'))


def _sessions(names: "list[pa.DictionaryArray[Any, Any]]") -> Tokens:
    """Return a number for each name, -1 for the empty one."""
    if not names:
        return np.empty(0, np.int32)
    # One chunk, whose type the stubs do not know, holds the dictionary that all of them share.
    chunks: list[Any] = pa.chunked_array(names).unify_dictionaries().chunks
    codes = np.concatenate([_numbers(chunk.indices, np.int32) for chunk in chunks])
    blank = np.flatnonzero(_numbers(pc.utf8_length(chunks[0].dictionary), np.int32) == 0)
    return np.where(np.isin(codes, blank), np.int32(-1), codes)
