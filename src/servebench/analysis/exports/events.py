"""Know the form in which the events of a run leave servebench: one row per event, Parquet or CSV."""

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from servebench.analysis.frames import chunk_pieces
from servebench.analysis.render import harmless
from servebench.analysis.source import RunData

TEXT_COLUMNS: tuple[str, ...] = ("kind", "worker", "phase")


def write_chunks(run: RunData, path: Path, form: Literal["parquet", "csv"]) -> int:
    """Write one row per event of every response, a part at a time; return how many.

    No text cell of a CSV file can be taken for a formula. Raises ShardError where a part changed since it was read.
    """
    temporary = path.with_name(path.name + ".tmp")
    rows = _parquet(run, temporary) if form == "parquet" else _csv(run, temporary)
    temporary.replace(path)
    return rows


def _parquet(run: RunData, path: Path) -> int:
    rows = 0
    schema = pa.Table.from_pandas(next(chunk_pieces(run)), preserve_index=False).schema
    texts = [schema.field(index).with_type(pa.utf8()) for index in map(schema.get_field_index, TEXT_COLUMNS)]
    for field in texts:
        schema = schema.set(schema.get_field_index(field.name), field)
    with pq.ParquetWriter(path, schema.remove_metadata(), compression="zstd") as writer:
        for piece in chunk_pieces(run):
            writer.write_table(pa.Table.from_pandas(piece, schema=schema.remove_metadata(), preserve_index=False))
            rows += len(piece)
    return rows


def _csv(run: RunData, path: Path) -> int:
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for index, piece in enumerate(chunk_pieces(run)):
            safe = piece.assign(**{name: piece[name].map(harmless, na_action="ignore") for name in TEXT_COLUMNS})
            safe.to_csv(file, index=False, header=index == 0, lineterminator="\r\n")
            rows += len(piece)
    return rows
