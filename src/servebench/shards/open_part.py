"""Know one part file: whose it is, whether it is whole, and how its rows are decoded, all at once or some at a time."""

import hashlib
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from servebench.core.errors import ShardError
from servebench.shards.schema import REQUESTS_SCHEMA, SCHEMA_VERSION, version_numbers


class PartInfo(NamedTuple):
    """What the footer of a part says; `unknown` names columns that this version does not know and leaves out."""

    path: Path
    rows: int
    run_id: str
    worker: str
    schema_version: str
    unknown: tuple[str, ...]


class OpenPart(NamedTuple):
    """One part in memory as its file is, checked as far as the footer says; rows are decoded when they are asked for.

    List columns named in `unless_plain` are left out where the footer says that their elements are all null or all 0:
    decoding them takes as long as decoding any other.
    """

    info: PartInfo
    sha256: str
    file: pq.ParquetFile
    schema: pa.Schema

    def read(self, columns: Sequence[str] | None = None, unless_plain: Sequence[str] = ()) -> pa.Table:
        """Return all rows with exactly the asked columns; one that an older minor version lacks is all null.

        Raises ShardError where the part is damaged. The message says the reason and not the path.
        """
        wanted, present = self._wanted(columns, unless_plain)
        try:
            return _conform(self.file.read(columns=present), wanted)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ShardError(unreadable(error)) from error

    def pieces(self, rows: int, columns: Sequence[str], unless_plain: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield the same, at most so many rows at a time, in less memory and no more CPU time.

        Raises ShardError where the damage begins: what came before it must not be used either.
        """
        wanted, present = self._wanted(columns, unless_plain)
        try:
            for batch in self.file.iter_batches(rows, columns=present, use_threads=False):
                yield _conform(pa.Table.from_batches([batch]), wanted)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ShardError(unreadable(error)) from error

    def _wanted(self, columns: Sequence[str] | None, unless_plain: Sequence[str]) -> tuple[pa.Schema, list[str]]:
        names = set(self.file.schema_arrow.names)
        plain = {name for name in unless_plain if name in names and _is_plain(self.file.metadata, name)}
        wanted = pa.schema([field for field in subset(self.schema, columns) if field.name not in plain])
        return wanted, [name for name in wanted.names if name in names]

    def elements(self, name: str) -> int:
        """Return how many elements all lists of a column have together; an empty or null list counts as one."""
        groups = [self.file.metadata.row_group(place) for place in range(self.file.metadata.num_row_groups)]
        leaves = [group.column(place) for group in groups for place in range(group.num_columns)]
        return sum(leaf.num_values for leaf in leaves if _is_leaf(leaf, name))


def open_part(path: Path, run_id: str | None = None, schema: pa.Schema = REQUESTS_SCHEMA) -> OpenPart:
    """Return one part, read into memory and checked against its run and schema.

    Raises ShardError where it is cut, of another run, of a schema that this version does not read, or lacks a column
    that its version has. The message says the reason and not the path.
    """
    try:
        refuse_special(path)
        data = path.read_bytes()
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        info = inspect(path, file, run_id, schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ShardError(unreadable(error)) from error
    return OpenPart(info, hashlib.sha256(data).hexdigest(), file, schema)


def refuse_special(path: Path) -> None:
    """Raise ShardError for what a reader would wait at for ever: a pipe, a socket, a device."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        msg = "unreadable: a pipe, socket or device and no file"
        raise ShardError(msg)


def inspect(path: Path, file: pq.ParquetFile, run_id: str | None, schema: pa.Schema) -> PartInfo:
    """Return what the footer says.

    Raises ShardError for what is not ours, of another run or version, or has not the columns of its version.
    """
    stamped = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    version = stamped.get("schema_version")
    if version is None:
        msg = "was not written by servebench: no schema_version in its metadata"
        raise ShardError(msg)
    info = PartInfo(
        path=path,
        rows=file.metadata.num_rows,
        run_id=stamped.get("run_id", ""),
        worker=stamped.get("worker", ""),
        schema_version=version,
        unknown=tuple(name for name in file.schema_arrow.names if name not in schema.names),
    )
    if run_id is not None and info.run_id != run_id:
        msg = f'belongs to run "{info.run_id}", not to {run_id}'
        raise ShardError(msg)
    _check_version(version, file.schema_arrow.names, schema)
    _check_types(file.schema_arrow, schema)
    return info


def _check_version(version: str, names: Sequence[str], schema: pa.Schema) -> None:
    """Refuse another major version, and a column missing where only an older minor version may lack it."""
    (major, minor), (own_major, own_minor) = version_numbers(version), version_numbers(SCHEMA_VERSION)
    if major != own_major:
        msg = f"has schema version {version}; this servebench reads {own_major}.x"
        raise ShardError(msg)
    missing = [name for name in schema.names if name not in names]
    if missing and minor >= own_minor:
        msg = f"lacks the columns {', '.join(missing)} of schema version {version}"
        raise ShardError(msg)


def subset(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the fields that are named; a name that the schema lacks is the caller's mistake: KeyError."""
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        msg = f"no such columns: {', '.join(unknown)}"
        raise KeyError(msg)
    return pa.schema([field for field in schema if field.name in columns])


def _check_types(found: pa.Schema, wanted: pa.Schema) -> None:
    for field in wanted:
        if field.name in found.names and found.field(field.name).type != field.type:
            msg = f"has column {field.name} as {found.field(field.name).type}, not {field.type}"
            raise ShardError(msg)


def _conform(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    present = set(table.column_names)
    arrays = [table[f.name] if f.name in present else pa.nulls(table.num_rows, f.type) for f in wanted]
    return pa.Table.from_arrays(arrays, schema=wanted)


def _is_plain(metadata: pq.FileMetaData, name: str) -> bool:
    """Return whether the elements of a list column are all null, or all 0; False where the footer does not say."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    leaves = [group.column(place) for group in groups for place in range(group.num_columns)]
    # A list that is empty or null counts as one null, as it does in the times of events, which are never null.
    times = [leaf.statistics for leaf in leaves if _is_leaf(leaf, "chunk_ns")]
    found = [leaf for leaf in leaves if _is_leaf(leaf, name)]
    return all(
        _says_plain(leaf, told.null_count if told is not None else None)
        for leaf, told in zip(found, times, strict=True)
    )


def _is_leaf(leaf: pq.ColumnChunkMetaData, name: str) -> bool:
    return leaf.path_in_schema.split(".")[0] == name


def _says_plain(leaf: pq.ColumnChunkMetaData, empty: int | None) -> bool:
    told = leaf.statistics
    if told is None:
        return False
    all_zero = told.has_min_max and told.min == 0 and told.max == 0 and told.null_count == empty
    return told.null_count == leaf.num_values or all_zero


def unreadable(error: Exception) -> str:
    """Return the first line of what the system or Arrow says."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"unreadable: {reason.splitlines()[0] if reason else type(error).__name__}"
