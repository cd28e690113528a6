"""Know `conversations.parquet`: at which seqs of the plan conversations begin.

A conversation has one owner, so the turn of a worker goes by the number of the conversation and not by the seq. Rows
alone do not tell the number of one that has no row. Only a run whose plan has later turns has the file.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from servebench.core.errors import ShardError
from servebench.shards.arrow import fixed_column, values_of
from servebench.shards.manifest import write_atomic

NAME = "conversations.parquet"
COLUMN = "first_seq"


def write_conversations(folder: Path, first_seqs: npt.NDArray[np.int64]) -> None:
    """Write the seq that each conversation begins with, in order; conversation k is row k."""
    schema = pa.schema([pa.field(COLUMN, pa.int64(), nullable=False)])
    table = pa.Table.from_arrays([fixed_column(first_seqs, pa.int64())], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, column_encoding="DELTA_BINARY_PACKED")
    write_atomic(folder / NAME, sink.getvalue().to_pybytes())


def read_conversations(folder: Path) -> npt.NDArray[np.int64] | None:
    """Return the seq that each conversation begins with; None where the run has no such file.

    Raises ShardError where it cannot be used.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        first_seqs: npt.NDArray[np.int64] = values_of(pq.read_table(path, columns=[COLUMN])[COLUMN])
    except (pa.ArrowException, OSError, KeyError) as error:
        msg = f"{path} cannot be used: {error}"
        raise ShardError(msg) from error
    return first_seqs
