"""Small parts become large ones without a row changed, lost or counted twice, whenever it is interrupted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.record_builders import RUN_ID, identity, record

from servebench.shards import compaction
from servebench.shards.clock_schema import CLOCK_SCHEMA, ClockRow, clock_table
from servebench.shards.columns import PartBuffer
from servebench.shards.compaction import compact
from servebench.shards.parts import parse_part_name, part_name, write_part, write_table_part
from servebench.shards.reader import part_paths, read_parts

WORKER = "w0-9f8e7d6c"


def write(folder: Path, number: int, seqs: range, run_id: str = RUN_ID, worker: str = WORKER) -> Path:
    buffer = PartBuffer()
    for seq in seqs:
        buffer.add(record(seq))
    return write_part(folder, number, buffer, identity(run_id, worker)).path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_neighbouring_parts_of_each_worker_become_one_with_the_same_rows(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, number, range(10 * number, 10 * number + 10))
    write(tmp_path, 0, range(50, 60), worker="w1-00000000")
    write(tmp_path, 1, range(60, 70), worker="w1-00000000")
    before = read_parts(tmp_path).table
    assert compact(tmp_path, RUN_ID) == 5
    assert names(tmp_path) == [
        f"part-{WORKER}-000000-000004.parquet",
        "part-w1-00000000-000000-000001.parquet",
    ]
    after = read_parts(tmp_path, RUN_ID)
    assert not after.faults
    assert after.table.to_pylist() == before.to_pylist()
    assert pq.read_metadata(tmp_path / names(tmp_path)[0]).num_row_groups == 1


def test_doing_it_again_changes_no_byte(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number, range(3 * number, 3 * number + 3))
    compact(tmp_path, RUN_ID)
    (path,) = tmp_path.iterdir()
    data, stamp = path.read_bytes(), path.stat().st_mtime_ns
    assert compact(tmp_path, RUN_ID) == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (data, stamp)


def test_later_parts_join_what_was_put_together_before(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, number, range(number, number + 1))
        compact(tmp_path, RUN_ID)
    assert names(tmp_path) == [part_name(WORKER, 0, 3)]
    assert read_parts(tmp_path).table["seq"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("limit", "files"), [("FULL_ROWS", 3), ("FULL_CHUNKS", 3)])
def test_no_part_grows_past_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, files: int) -> None:
    for number in range(6):
        write(tmp_path, number, range(10 * number, 10 * number + 10))
    chunks = sum(len(events or ()) for events in read_parts(tmp_path).table["chunk_ns"].to_pylist())
    monkeypatch.setattr(compaction, limit, 20 if limit == "FULL_ROWS" else chunks // 3)
    compact(tmp_path, RUN_ID)
    assert len(names(tmp_path)) == files
    assert read_parts(tmp_path).table["seq"].to_pylist() == list(range(60))


@pytest.mark.parametrize("left", [1, 2, 3])
def test_parts_that_an_interrupted_compaction_left_do_not_count_and_go_the_next_time(tmp_path: Path, left: int) -> None:
    paths = [write(tmp_path, number, range(10 * number, 10 * number + 10)) for number in range(3)]
    kept = {path: path.read_bytes() for path in paths[:left]}
    compact(tmp_path, RUN_ID)
    for path, data in kept.items():
        path.write_bytes(data)
    assert read_parts(tmp_path).table["seq"].to_pylist() == list(range(30))
    assert compact(tmp_path, RUN_ID) == left
    assert names(tmp_path) == [part_name(WORKER, 0, 2)]


def test_a_temporary_file_of_a_killed_compaction_is_in_nobodys_way(tmp_path: Path) -> None:
    write(tmp_path, 0, range(3))
    write(tmp_path, 1, range(3, 6))
    (tmp_path / f".{part_name(WORKER, 0, 1)}.tmp").write_bytes(b"PAR1 cut")
    assert compact(tmp_path, RUN_ID) == 1
    assert read_parts(tmp_path).table["seq"].to_pylist() == list(range(6))


def test_strangers_and_damaged_parts_stay_and_end_the_row_of_neighbours(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, number, range(10 * number, 10 * number + 10))
    cut = tmp_path / part_name(WORKER, 2)
    cut.write_bytes(cut.read_bytes()[:-20])
    stranger = write(tmp_path, 9, range(5), run_id="20260131T120000Z-other-0000")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "spare.parquet").write_bytes(b"")
    compact(tmp_path, RUN_ID)
    kept = {part_name(WORKER, 0, 1), cut.name, part_name(WORKER, 3, 4), stranger.name, "notes.txt", "spare.parquet"}
    assert set(names(tmp_path)) == kept


def test_a_part_damaged_inside_keeps_its_neighbours_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, 0, range(10))
    damaged = write(tmp_path, 1, range(10, 20))
    column = pq.read_metadata(damaged).row_group(0).column(2)
    data = bytearray(damaged.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    damaged.write_bytes(data)
    compact(tmp_path, RUN_ID)
    assert names(tmp_path) == [part_name(WORKER, 0), part_name(WORKER, 1)]


def test_tables_of_any_schema_are_put_together(tmp_path: Path) -> None:
    for number in range(3):
        rows = [ClockRow(sent_ns=number, master_ns=number, received_ns=number)]
        table = clock_table(rows, run_id=RUN_ID, worker=WORKER)
        write_table_part(tmp_path, number, table, identity())
    compact(tmp_path, RUN_ID, CLOCK_SCHEMA)
    read = read_parts(tmp_path, schema=CLOCK_SCHEMA)
    assert read.table["sent_ns"].to_pylist() == [0, 1, 2]
    assert isinstance(read.table, pa.Table)


def test_names_say_worker_and_numbers() -> None:
    assert parse_part_name("part-w0-9f8e7d6c-000001.parquet") == (WORKER, 1, 1)
    assert parse_part_name("part-w0-9f8e7d6c-000001-1000002.parquet") == (WORKER, 1, 1_000_002)
    assert parse_part_name("x.parquet") is None


def test_a_folder_that_was_compacted_in_part_lists_each_row_once(tmp_path: Path) -> None:
    write(tmp_path, 0, range(3))
    compacted = write(tmp_path, 1, range(3))
    compacted.rename(tmp_path / part_name(WORKER, 0, 1))
    write(tmp_path, 2, range(3))
    assert [path.name for path in part_paths(tmp_path)] == [part_name(WORKER, 0, 1), part_name(WORKER, 2)]
