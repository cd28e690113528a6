"""Know how Arrow reads a large CSV trace: columns at once, in batches, with every row checked afterwards."""

import io

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from servebench.core.units import NS_PER_S
from servebench.workload.rows import MAX_TOKENS, Rows
from servebench.workload.trace_layout import FARTHEST_S, Found, Layout, seconds_to_ns

_BLOCK_BYTES = 8_000_000


def read_large(body: bytes, layout: Layout, found: Found) -> Rows | None:
    """Return the rows of a CSV without its header; None where a field is not what it should be, or a row is short."""
    kinds: list[pa.DataType] = [pa.timestamp("ns"), pa.timestamp("ns", "UTC")] if layout.dated else [pa.float64()]
    for kind in kinds:
        table = _table(body, found, kind)
        if table is not None:
            return _rows(table, layout)
    return None


def _table(body: bytes, found: Found, time: pa.DataType) -> pa.Table | None:
    # Names of our own: those of the file may be double or empty.
    names = [f"c{index}" for index in range(len(found.names))]
    wanted = {"time": found.time, "input": found.input, "output": found.output}
    types = {"time": time, "input": pa.int64(), "output": pa.int64()}
    if found.session is not None:
        wanted["session"], types["session"] = found.session, pa.utf8()
    for column, index in wanted.items():
        names[index] = column
    try:
        reader = arrow_csv.open_csv(
            io.BytesIO(body),
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES, use_threads=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, include_columns=list(wanted), null_values=[], strings_can_be_null=False
            ),
        )
        return reader.read_all()
    except pa.ArrowInvalid:
        return None


def _rows(table: pa.Table, layout: Layout) -> Rows | None:
    tokens = [table.column(name).to_numpy() for name in ("input", "output")]
    if any(bool(((column < 0) | (column > MAX_TOKENS)).any()) for column in tokens):
        return None
    if layout.dated:
        time_ns = table.column("time").cast(pa.int64()).to_numpy()
        if not bool((np.abs(time_ns) <= FARTHEST_S * NS_PER_S).all()):
            return None
    else:
        times_s = table.column("time").to_numpy()
        if not bool((np.abs(times_s) <= FARTHEST_S).all()):
            return None
        time_ns = seconds_to_ns(times_s)
    session = None
    if "session" in table.column_names:
        codes = table.column("session").combine_chunks().dictionary_encode()
        blank = [index for index, name in enumerate(codes.dictionary.to_pylist()) if not str(name).strip().strip('"')]
        numbers = codes.indices.to_numpy()
        session = np.where(np.isin(numbers, blank), -1, numbers).astype(np.int32)
    return Rows(
        time_ns=time_ns,
        input_tokens=tokens[0].astype(np.int32),
        output_tokens=tokens[1].astype(np.int32),
        session=session,
    )
