"""A part file is whole under its name, or not there."""

import hashlib
import random
import select
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.record_builders import EPOCH_NS, RUN_ID, WORKER, answer, chunks, identity, record

from servebench.core.errors import HarnessError
from servebench.shards.columns import PartBuffer
from servebench.shards.parts import write_part

NAME = f"part-{WORKER}-000000.parquet"


def buffer_of(rows: int, events: int = 2) -> PartBuffer:
    buffer = PartBuffer()
    for seq in range(rows):
        buffer.add(record(seq, answer=answer(chunks=chunks([EPOCH_NS + 7_919 * k * (seq + 1) for k in range(events)]))))
    return buffer


def test_a_part_is_named_after_its_worker_and_number_and_leaves_nothing_else(tmp_path: Path) -> None:
    written = write_part(tmp_path, 12, buffer_of(3), identity())
    assert [path.name for path in tmp_path.iterdir()] == ["part-w0-9f8e7d6c-000012.parquet"]
    assert (written.path.parent, written.rows, written.chunks) == (tmp_path, 3, 6)
    data = written.path.read_bytes()
    assert (written.bytes, written.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_a_part_says_whose_rows_it_holds(tmp_path: Path) -> None:
    metadata = pq.read_metadata(write_part(tmp_path, 0, buffer_of(1), identity()).path).metadata or {}
    assert {key.decode(): value.decode() for key, value in metadata.items() if key != b"ARROW:schema"} == {
        "run_id": RUN_ID,
        "worker": WORKER,
        "epoch_monotonic_ns": str(EPOCH_NS),
        "epoch_unix_ns": "1769860800000000000",
        "boot_id": "b-1",
        "schema_version": "1.0",
    }


def test_every_column_of_a_part_carries_its_unit_and_meaning(tmp_path: Path) -> None:
    schema = pq.read_schema(write_part(tmp_path, 0, buffer_of(1), identity()).path)
    metadata = {field.name: field.metadata or {} for field in schema}
    assert metadata["sent_ns"][b"unit"] == b"ns"
    assert all(found[b"description"] for found in metadata.values())


def test_chunk_stamps_are_stored_as_split_byte_streams(tmp_path: Path) -> None:
    group = pq.read_metadata(write_part(tmp_path, 0, buffer_of(50, events=40), identity()).path).row_group(0)
    columns = {group.column(k).path_in_schema: group.column(k) for k in range(group.num_columns)}
    assert "BYTE_STREAM_SPLIT" in columns["chunk_ns.list.element"].encodings
    assert {column.compression for column in columns.values()} == {"ZSTD"}


def test_a_part_is_never_overwritten(tmp_path: Path) -> None:
    before = write_part(tmp_path, 0, buffer_of(1), identity()).path.read_bytes()
    with pytest.raises(HarnessError, match=r"000000\.parquet: File exists; a part is never overwritten"):
        write_part(tmp_path, 0, buffer_of(2), identity())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {NAME: before}


def test_two_writers_of_one_part_do_not_touch_each_others_file(tmp_path: Path) -> None:
    other = tmp_path / f".{NAME}.tmp"
    other.write_bytes(b"half of another part")
    with pytest.raises(HarnessError, match="File exists"):
        write_part(tmp_path, 0, buffer_of(1), identity())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {other.name: b"half of another part"}


def test_a_folder_that_went_away_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"gone/part-.*: No such file or directory; leave the run folder in place"):
        write_part(tmp_path / "gone", 0, buffer_of(1), identity())


FULL_DISK = """
import resource, sys
from pathlib import Path
from servebench.core.errors import HarnessError
from servebench.shards.parts import write_part
from tests.record_builders import identity
from tests.unit.shards.test_part_files import buffer_of
folder = Path(sys.argv[1])
write_part(folder, 0, buffer_of(2), identity())
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    write_part(folder, 1, buffer_of(2000), identity())
except HarnessError as error:
    print(error)
"""


def test_no_space_leaves_the_finished_parts_and_no_half_one(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"cannot write {tmp_path / NAME.replace('000000', '000001')}: File too large; " + (
        "raise the file size limit (ulimit -f)\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert pq.read_table(tmp_path / NAME).num_rows == 2


ENDLESS = """
import sys
from pathlib import Path
from servebench.shards.parts import write_part
from tests.record_builders import identity
from tests.unit.shards.test_part_files import buffer_of
buffer = buffer_of(200, events=64)
for number in range(10_000):
    print(write_part(Path(sys.argv[1]), number, buffer, identity()).sha256, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_leaves_whole_parts_only(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline().strip() for _ in range(generator.randrange(1, 6))]
        # Let it get into the next part for a random while that no property of the writer decides.
        select.select([], [], [], generator.uniform(0, 0.02))
        writer.kill()
    parts = sorted(tmp_path.glob("*.parquet"))
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts]
    assert digests[: len(said)] == said
    assert [pq.read_table(path).num_rows for path in parts] == [200] * len(parts)
    assert len(list(tmp_path.glob(".*.tmp"))) <= 1


def test_what_a_killed_worker_left_unfinished_is_not_read_by_other_tools(tmp_path: Path) -> None:
    write_part(tmp_path, 0, buffer_of(3), identity())
    whole = (tmp_path / NAME).read_bytes()
    # The kill came between the last byte and the rename: the file is whole but was never promised.
    (tmp_path / f".{NAME.replace('000000', '000001')}.tmp").write_bytes(whole)
    assert pq.read_table(tmp_path).num_rows == 3
    assert len(pd.read_parquet(tmp_path)) == 3
