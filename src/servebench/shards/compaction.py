"""Know how the small parts of a worker become few large ones, so that a long run is not thousands of files.

A compacted part is named after the first and the last part in it, and from the instant it has that name it stands for
them (`reader.part_paths`): a crash before its name changes nothing, one after it leaves files that no longer count and
that the next compaction removes. Rows stay in their order and are not changed.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from servebench.core.errors import ShardError
from servebench.shards.parts import PartIdentity, PartName, parse_part_name, write_table_part
from servebench.shards.reader import load_part, part_paths
from servebench.shards.schema import REQUESTS_SCHEMA, SCHEMA_VERSION

FULL_ROWS = 20_000
FULL_CHUNKS = 2_000_000
"""A part is full with so many rows or events: about 50 MB in memory, 6 MB on disk."""


class _Piece(NamedTuple):
    """One part that may be put together with its neighbours; `chunks` 0 where a table has none."""

    path: Path
    name: PartName
    identity: PartIdentity
    rows: int
    chunks: int


def compact(folder: Path, run_id: str, schema: pa.Schema = REQUESTS_SCHEMA) -> int:
    """Put neighbouring small parts of each worker together; return how many files are gone afterwards.

    Holds one full part in memory. A part that is damaged, of another run or version, or lacks columns stays as it is
    and ends the row of neighbours. Doing it again changes nothing. Raises HarnessError where the disk does not take it.
    """
    gone = _remove_replaced(folder)
    for group in _groups(folder, run_id):
        if len(group) > 1:
            gone += _replace(folder, group, run_id, schema)
    return gone


def _replace(folder: Path, group: Sequence[_Piece], run_id: str, schema: pa.Schema) -> int:
    try:
        table = pa.concat_tables([load_part(piece.path, run_id, schema=schema).table for piece in group])
    except ShardError:
        return 0
    last = group[-1].name.last
    # The dictionaries of words differ between parts; one row group wants one.
    write_table_part(folder, group[0].name.first, table.unify_dictionaries(), group[0].identity, last=last)
    for piece in group:
        piece.path.unlink()
    return len(group) - 1


def _groups(folder: Path, run_id: str) -> Iterator[list[_Piece]]:
    """Yield runs of neighbouring parts of one worker that together do not exceed a full part."""
    pieces = [_piece(path, run_id) for path in part_paths(folder)]
    for worker, found in groupby(pieces, key=lambda piece: piece.identity.worker if piece else None):
        group: list[_Piece] = []
        for piece in found if worker is not None else ():
            if piece is None:
                continue
            if group and not _fits(group, piece):
                yield group
                group = []
            group.append(piece)
        yield group


def _fits(group: Sequence[_Piece], piece: _Piece) -> bool:
    return (
        piece.name.first == group[-1].name.last + 1
        and sum(other.rows for other in group) + piece.rows <= FULL_ROWS
        and sum(other.chunks for other in group) + piece.chunks <= FULL_CHUNKS
    )


def _piece(path: Path, run_id: str) -> _Piece | None:
    """Return what the footer of a part says; None where it is not to be touched."""
    name = parse_part_name(path.name)
    try:
        with path.open("rb") as file:
            metadata = pq.ParquetFile(file).metadata
    except (pa.ArrowException, OSError, ValueError):
        return None
    stamped = {key.decode(): value.decode() for key, value in (metadata.metadata or {}).items()}
    try:
        identity = PartIdentity.from_metadata(stamped)
    except (KeyError, ValueError):
        return None
    if name is None or name.worker != identity.worker or identity.run_id != run_id:
        return None
    if stamped["schema_version"] != SCHEMA_VERSION:
        return None
    return _Piece(path, name, identity, metadata.num_rows, _chunks(metadata))


def _chunks(metadata: pq.FileMetaData) -> int:
    """Return how many values the lists of event times hold; an empty list counts as one."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    return sum(column.num_values for column in columns if column.path_in_schema == "chunk_ns.list.element")


def _remove_replaced(folder: Path) -> int:
    """Remove what a compaction that was interrupted left behind."""
    counted = set(part_paths(folder))
    replaced = [path for path in folder.glob("part-*.parquet") if path not in counted and parse_part_name(path.name)]
    for path in replaced:
        path.unlink()
    for path in folder.glob(".part-*-*-*-*.parquet.tmp"):
        name = parse_part_name(path.name.removeprefix(".").removesuffix(".tmp"))
        if name is not None and name.last > name.first:
            path.unlink()
    return len(replaced)
