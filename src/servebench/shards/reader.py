"""Know which files of a folder are parts of a run, and what is wrong with the others.

Hidden, temporary and non-Parquet files are none of our business. Everything else either gives rows of exactly the asked
schema or a fault with its reason; nothing is used in part, and no column goes without a word.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from servebench.core.errors import Fault, ShardError
from servebench.shards.arrow import empty_table
from servebench.shards.open_part import PartInfo, inspect, open_part, refuse_special, subset, unreadable
from servebench.shards.parts import parse_part_name
from servebench.shards.schema import REQUESTS_SCHEMA


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
            refuse_special(path)
            with path.open("rb") as file:
                infos.append(inspect(path, pq.ParquetFile(file), run_id, schema))
        except ShardError as error:
            faults.append(Fault(place=path.name, message=str(error)))
        except (pa.ArrowException, OSError, ValueError) as error:
            faults.append(Fault(place=path.name, message=unreadable(error)))
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
    tables = [empty_table(subset(schema, columns)), *(part.table for part in parts)]
    return PartRows(pa.concat_tables(tables), parts, tuple(fault for fault in found if isinstance(fault, Fault)))


def load_part(
    path: Path,
    run_id: str | None = None,
    columns: Sequence[str] | None = None,
    schema: pa.Schema = REQUESTS_SCHEMA,
    unless_plain: Sequence[str] = (),
) -> LoadedPart:
    """Return one part with exactly the asked columns; see `OpenPart`.

    Raises ShardError as `open_part` does, or where it is damaged.
    """
    part = open_part(path, run_id, schema)
    return LoadedPart(part.info, part.sha256, part.read(columns, unless_plain))


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


def _refuse_mixture(folder: Path, infos: Sequence[PartInfo]) -> None:
    runs = sorted({info.run_id for info in infos})
    if len(runs) > 1:
        msg = f"{folder} holds parts of {len(runs)} runs: {', '.join(runs)}; choose one of them"
        raise ShardError(msg)
