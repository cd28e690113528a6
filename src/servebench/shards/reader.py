"""Know which files of a folder are parts of a run, and what is wrong with the others.

Hidden, temporary and non-Parquet files are none of our business. Everything else either gives rows of exactly the asked
schema or a fault with its reason; nothing is used in part, and no column goes without a word.
"""

import hashlib
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from servebench.core.errors import Fault, ShardError
from servebench.shards.arrow import empty_table
from servebench.shards.parts import parse_part_name
from servebench.shards.schema import REQUESTS_SCHEMA, SCHEMA_VERSION, version_numbers


class PartInfo(NamedTuple):
    """What the footer of a part says; `unknown` names columns that this version does not know and leaves out."""

    path: Path
    rows: int
    run_id: str
    worker: str
    schema_version: str
    unknown: tuple[str, ...]


class PartListing(NamedTuple):
    """The parts of a folder in order of their names, and a fault for each file that should be one and is not."""

    parts: tuple[PartInfo, ...]
    faults: tuple[Fault, ...]


class LoadedPart(NamedTuple):
    """The rows of one part with the sha256 of the bytes that they were read from."""

    info: PartInfo
    sha256: str
    table: pa.Table


class PartRows(NamedTuple):
    """The rows of all usable parts, part by part, and a fault for each file that could not be used."""

    table: pa.Table
    parts: tuple[LoadedPart, ...]
    faults: tuple[Fault, ...]


def part_paths(folder: Path) -> tuple[Path, ...]:
    """Return the Parquet files of a folder in order of their names, without hidden and temporary ones.

    Parts whose rows another one holds, by its name, are left out: a compaction was interrupted while removing them.
    Raises ShardError where the folder cannot be listed.
    """
    try:
        found = sorted(path for path in folder.iterdir() if path.match("[!.]*.parquet"))
    except OSError as error:
        msg = f"{folder} holds no parts: {error.strerror}"
        raise ShardError(msg) from error
    names = {path: parse_part_name(path.name) for path in found}
    large = [name for name in names.values() if name is not None and name.last > name.first]
    return tuple(path for path, name in names.items() if name is None or not any(other.covers(name) for other in large))


def list_parts(folder: Path, run_id: str | None = None, schema: pa.Schema = REQUESTS_SCHEMA) -> PartListing:
    """Return what the footers of a folder say; reads no rows, so damage inside a part shows when it is read.

    Raises ShardError where the folder cannot be listed, or holds several runs and `run_id` names none of them.
    """
    infos, faults = [], []
    for path in part_paths(folder):
        try:
            _refuse_special(path)
            with path.open("rb") as file:
                infos.append(_inspect(path, pq.ParquetFile(file), run_id, schema))
        except ShardError as error:
            faults.append(Fault(place=path.name, message=str(error)))
        except (pa.ArrowException, OSError, ValueError) as error:
            faults.append(Fault(place=path.name, message=_unreadable(error)))
    _refuse_mixture(folder, infos)
    return PartListing(tuple(infos), tuple(faults))


def iter_parts(
    folder: Path,
    run_id: str | None = None,
    columns: Sequence[str] | None = None,
    schema: pa.Schema = REQUESTS_SCHEMA,
) -> Iterator[LoadedPart | Fault]:
    """Yield each part of a folder, or the fault of a file that is none, in order of the names; holds one at a time.

    Raises ShardError as `part_paths` does.
    """
    for path in part_paths(folder):
        try:
            yield load_part(path, run_id, columns, schema)
        except ShardError as error:
            yield Fault(place=path.name, message=str(error))


def read_parts(
    folder: Path,
    run_id: str | None = None,
    columns: Sequence[str] | None = None,
    schema: pa.Schema = REQUESTS_SCHEMA,
) -> PartRows:
    """Return the rows of a folder, all columns or those that are named, in the order of the schema.

    Raises ShardError where the folder cannot be listed, or holds several runs and `run_id` names none of them.
    """
    found = list(iter_parts(folder, run_id, columns, schema))
    parts = tuple(part for part in found if isinstance(part, LoadedPart))
    _refuse_mixture(folder, [part.info for part in parts])
    tables = [empty_table(_subset(schema, columns)), *(part.table for part in parts)]
    return PartRows(pa.concat_tables(tables), parts, tuple(fault for fault in found if isinstance(fault, Fault)))


def load_part(
    path: Path,
    run_id: str | None = None,
    columns: Sequence[str] | None = None,
    schema: pa.Schema = REQUESTS_SCHEMA,
    unless_plain: Sequence[str] = (),
) -> LoadedPart:
    """Return one part with exactly the asked columns; one that an older minor version lacks is all null.

    List columns named in `unless_plain` are left out where the footer says that their elements are all null or all 0:
    decoding them takes as long as decoding any other.
    Raises ShardError where it is cut or damaged, of another run, of a schema that this version does not read, or lacks
    a column that its version has. The message says the reason and not the path.
    """
    try:
        _refuse_special(path)
        data = path.read_bytes()
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        info = _inspect(path, file, run_id, schema)
        wanted = _subset(schema, columns)
        present = set(file.schema_arrow.names)
        plain = {name for name in unless_plain if name in present and _is_plain(file.metadata, name)}
        wanted = pa.schema([field for field in wanted if field.name not in plain])
        stored = file.read(columns=[name for name in wanted.names if name in present])
        table = _conform(stored, wanted)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ShardError(_unreadable(error)) from error
    return LoadedPart(info, hashlib.sha256(data).hexdigest(), table)


def size_of(path: Path) -> int:
    """Return the bytes of a file, 0 where it cannot be looked at: whoever reads it says why."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def file_sha256(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_special(path: Path) -> None:
    """Raise ShardError for what a reader would wait at for ever: a pipe, a socket, a device."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        msg = "unreadable: a pipe, socket or device and no file"
        raise ShardError(msg)


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


def _inspect(path: Path, file: pq.ParquetFile, run_id: str | None, schema: pa.Schema) -> PartInfo:
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


def _subset(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the fields that are named; a name that the schema lacks is the caller's mistake: KeyError."""
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        msg = f"no such columns: {', '.join(unknown)}"
        raise KeyError(msg)
    return pa.schema([field for field in schema if field.name in columns])


def _conform(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    arrays = []
    for field in wanted:
        if field.name not in table.column_names:
            arrays.append(pa.nulls(table.num_rows, field.type))
        elif table.schema.field(field.name).type == field.type:
            arrays.append(table[field.name])
        else:
            msg = f"has column {field.name} as {table.schema.field(field.name).type}, not {field.type}"
            raise ShardError(msg)
    return pa.Table.from_arrays(arrays, schema=wanted)


def _refuse_mixture(folder: Path, infos: Sequence[PartInfo]) -> None:
    runs = sorted({info.run_id for info in infos})
    if len(runs) > 1:
        msg = f"{folder} holds parts of {len(runs)} runs: {', '.join(runs)}; choose one of them"
        raise ShardError(msg)


def _unreadable(error: Exception) -> str:
    """Return the first line of what the system or Arrow says."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"unreadable: {reason.splitlines()[0] if reason else type(error).__name__}"
