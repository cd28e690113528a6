"""Know how one part file comes to be: whole under its name, or not there at all.

The rows go to `.<name>.tmp`, which is opened exclusively, fsynced and renamed; then the folder is fsynced. A Parquet
file without its footer is unreadable, so one flush is one file, and a kill costs what was not flushed yet, never a part
that has its name.
"""

import errno
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from servebench.shards.columns import PartBuffer
from servebench.shards.manifest import sync_folder
from servebench.shards.refusals import refused
from servebench.shards.schema import SCHEMA_VERSION

COMPRESSION_LEVEL = 3

_ENCODINGS = {
    "chunk_ns.list.element": "BYTE_STREAM_SPLIT",
    "chunk_delay_ns.list.element": "BYTE_STREAM_SPLIT",
    "chunk_read.list.element": "DELTA_BINARY_PACKED",
}
"""Measured on 2,000 requests x 256 chunks of 20 ms: 3.0 bytes a chunk, all columns together; dictionaries take 4.1."""


class PartIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose rows a part holds; stored in the file metadata, so that a part is usable without its run folder.

    `epoch_monotonic_ns` is 0 of the run clock on this worker's CLOCK_MONOTONIC, `epoch_unix_ns` the same moment in
    wall-clock time; `boot_id` says whose monotonic clock it was.
    """

    run_id: str
    worker: str
    epoch_monotonic_ns: int
    epoch_unix_ns: int
    boot_id: str

    def metadata(self) -> dict[str, str]:
        """Return the key-value metadata of a part."""
        return {"schema_version": SCHEMA_VERSION, **{name: str(getattr(self, name)) for name in self.__struct_fields__}}

    @classmethod
    def from_metadata(cls, stamped: Mapping[str, str]) -> "PartIdentity":
        """Return the identity that `metadata` was made of. Raises KeyError or ValueError where it is none."""
        return cls(
            run_id=stamped["run_id"],
            worker=stamped["worker"],
            epoch_monotonic_ns=int(stamped["epoch_monotonic_ns"]),
            epoch_unix_ns=int(stamped["epoch_unix_ns"]),
            boot_id=stamped["boot_id"],
        )


class WrittenPart(NamedTuple):
    """A part that has its name; `chunks` counts stream events (0 where a table has none), `bytes` is the file size."""

    path: Path
    rows: int
    sha256: str
    chunks: int
    bytes: int


class PartName(NamedTuple):
    """What a file name says: a worker's part `first`, or with `last` > `first` all of those put together."""

    worker: str
    first: int
    last: int

    def covers(self, other: "PartName") -> bool:
        """Whether this part holds the rows of another one."""
        return self != other and self.worker == other.worker and self.first <= other.first and other.last <= self.last


# The incarnation may be all digits, so a worker's name is spelled out.
_PART_NAME = re.compile(r"part-(w\d+-[0-9a-f]{8})-(\d{6,})(?:-(\d{6,}))?\.parquet")


def part_name(worker: str, number: int, last: int | None = None) -> str:
    """Return the file name of a worker's `number`-th part, or of the parts up to `last` put together."""
    return f"part-{worker}-{number:06d}{'' if last is None else f'-{last:06d}'}.parquet"


def parse_part_name(name: str) -> PartName | None:
    """Return what a file name says, None where it is no part's."""
    found = _PART_NAME.fullmatch(name)
    if found is None:
        return None
    first = int(found[2])
    return PartName(found[1], first, int(found[3] or first))


def write_part(folder: Path, number: int, buffer: PartBuffer, identity: PartIdentity) -> WrittenPart:
    """Write the rows of a buffer as one part of `requests`; blocks, and holds the GIL only for moments.

    Raises HarnessError with path, reason and way out; then no file of that part is left.
    """
    table = buffer.to_table(
        run_id=identity.run_id, worker=identity.worker, epoch_monotonic_ns=identity.epoch_monotonic_ns
    )
    return write_table_part(folder, number, table, identity)._replace(chunks=buffer.chunk_count)


def write_table_part(
    folder: Path, number: int, table: pa.Table, identity: PartIdentity, last: int | None = None
) -> WrittenPart:
    """Write a table of any schema as one part, or as the parts up to `last` put together; see `write_part`."""
    path = folder / part_name(identity.worker, number, last)
    data = encode_part(table, identity)
    try:
        _create(path, data)
    except OSError as error:
        raise refused(path, error) from error
    return WrittenPart(
        path=path, rows=table.num_rows, sha256=hashlib.sha256(data).hexdigest(), chunks=0, bytes=len(data)
    )


def encode_part(table: pa.Table, identity: PartIdentity) -> memoryview:
    """Return the bytes of a part file.

    They are built in memory (a few MB) because a Parquet writer on a Python file would take the GIL at every write.
    """
    leaves = [f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in table.schema]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(identity.metadata()),
        sink,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        # The stub knows only bool here; pyarrow documents a list of leaf paths as well.
        use_dictionary=[leaf for leaf in leaves if leaf not in _ENCODINGS],  # type: ignore[arg-type]
        column_encoding={leaf: encoding for leaf, encoding in _ENCODINGS.items() if leaf in leaves},
        write_page_checksum=True,
    )
    return memoryview(sink.getvalue())


def _create(path: Path, data: memoryview) -> None:
    # Hidden: pandas, Arrow and Spark read every other file of a folder, and what a killed worker left must not count.
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("xb") as file:
        # The exclusive temporary name is the lock under which the final name is looked at: rename would overwrite it.
        try:
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)
