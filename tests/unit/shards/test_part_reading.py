"""Which files are parts, and what is said about the others."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.record_builders import RUN_ID, expected_row, identity, record

from servebench.core.errors import Fault, ShardError
from servebench.shards import open_part
from servebench.shards.columns import PartBuffer
from servebench.shards.parts import write_part
from servebench.shards.reader import LoadedPart, file_sha256, iter_parts, list_parts, load_part, read_parts
from servebench.shards.schema import REQUESTS_SCHEMA

GOOD = "part-w0-9f8e7d6c-000000.parquet"


def write(folder: Path, seqs: range, number: int = 0, run_id: str = RUN_ID, worker: str = "w0-9f8e7d6c") -> Path:
    buffer = PartBuffer()
    for seq in seqs:
        buffer.add(record(seq))
    return write_part(folder, number, buffer, identity(run_id, worker)).path


def rewrite(path: Path, table: pa.Table, **metadata: str) -> None:
    """Replace a part by a table, with the part's metadata and changes to it."""
    stamped = pq.read_metadata(path).metadata or {}
    kept = {key.decode(): value.decode() for key, value in stamped.items() if key != b"ARROW:schema"}
    pq.write_table(table.replace_schema_metadata(kept | metadata), path)


def test_parts_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path, range(2, 4), number=1)
    write(tmp_path, range(2))
    write(tmp_path, range(4, 5), worker="w1-00000000")
    read = read_parts(tmp_path)
    assert read.table["seq"].to_pylist() == [0, 1, 2, 3, 4]
    assert [(part.info.worker, part.info.rows) for part in read.parts] == [
        ("w0-9f8e7d6c", 2),
        ("w0-9f8e7d6c", 2),
        ("w1-00000000", 1),
    ]
    assert read.table.schema.equals(REQUESTS_SCHEMA)


def test_a_loaded_part_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, range(3))
    assert load_part(path).sha256 == file_sha256(path)
    assert load_part(path).table.to_pylist() == [expected_row(record(seq)) for seq in range(3)]


def test_pandas_reads_a_folder_of_parts_without_us(tmp_path: Path) -> None:
    write(tmp_path, range(3))
    write(tmp_path, range(3, 5), number=1)
    frame = pd.read_parquet(tmp_path)
    assert frame["seq"].tolist() == [0, 1, 2, 3, 4]
    assert frame["outcome"].tolist() == ["ok"] * 5
    assert frame["chunk_kind"][4].tolist() == ["content", "content"]


@pytest.mark.parametrize(
    ("name", "elements", "left_out"),
    [
        ("chunk_tokens", [None, None], True),
        ("chunk_tokens", [None, 3], False),
        ("chunk_tokens", [0, None], False),
        ("chunk_choice", [0, 0], True),
        ("chunk_choice", [0, 1], False),
        ("chunk_choice", [0, None], False),
    ],
)
def test_a_list_column_is_left_out_only_where_its_elements_are_all_null_or_all_0(
    tmp_path: Path, name: str, elements: list[int | None], left_out: bool
) -> None:
    path = write(tmp_path, range(2))
    table = load_part(path).table
    place, kind = table.schema.get_field_index(name), table.schema.field(name).type
    rewrite(path, table.set_column(place, name, pa.array([elements, elements], kind)))
    whole, less = load_part(path).table, load_part(path, unless_plain=[name]).table
    assert less == (whole.drop_columns([name]) if left_out else whole)


def test_named_columns_come_alone_and_in_the_order_of_the_schema(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    assert read_parts(tmp_path, columns=["outcome", "seq"]).table.column_names == ["seq", "outcome"]


def test_a_column_that_the_schema_lacks_is_the_callers_mistake(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    with pytest.raises(KeyError, match="no such columns: outcom"):
        read_parts(tmp_path, columns=["outcom"])


def test_strangers_are_ignored_and_broken_parts_are_named(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    write(tmp_path, range(0), number=1)
    for name in ("_SUCCESS", ".part-0.parquet", ".part-0.parquet.crc", "notes.txt", "x.parquet.tmp"):
        (tmp_path / name).write_bytes(b"PAR1")
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "lfs.parquet").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\n")
    listed = list_parts(tmp_path)
    assert [(info.path.name, info.rows) for info in listed.parts] == [(GOOD, 10), (GOOD.replace("00.p", "01.p"), 0)]
    assert [fault.place for fault in listed.faults] == ["empty.parquet", "lfs.parquet"]
    assert all(fault.message.startswith("unreadable: Parquet") for fault in listed.faults)
    read = read_parts(tmp_path)
    assert (read.table.num_rows, [fault.place for fault in read.faults]) == (10, ["empty.parquet", "lfs.parquet"])


@pytest.mark.parametrize("kept", [4, 8, 100, 5_000, -9, -8, -1])
def test_a_cut_part_is_named_wherever_it_was_cut(tmp_path: Path, kept: int) -> None:
    write(tmp_path, range(5), number=1)
    path = write(tmp_path, range(5))
    path.write_bytes(path.read_bytes()[:kept])
    for faults in (list_parts(tmp_path).faults, read_parts(tmp_path).faults):
        [fault] = faults
        assert fault.place == GOOD
        assert fault.message.startswith("unreadable: ")
    assert read_parts(tmp_path).table.num_rows == 5


def test_a_flipped_byte_of_a_page_is_noticed_by_its_checksum(tmp_path: Path) -> None:
    path = write(tmp_path, range(5))
    column = pq.read_metadata(path).row_group(0).column(2)
    data = bytearray(path.read_bytes())
    first = column.data_page_offset if column.dictionary_page_offset is None else column.dictionary_page_offset
    data[first + column.total_compressed_size - 1] ^= 0xFF
    path.write_bytes(data)
    [fault] = read_parts(tmp_path).faults
    assert fault.place == GOOD
    assert "CRC checksum verification failed" in fault.message


def test_a_zeroed_tail_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, range(5))
    path.write_bytes(path.read_bytes()[:-200] + bytes(200))
    assert [fault.place for fault in read_parts(tmp_path).faults] == [GOOD]


def test_a_part_of_another_run_is_named_when_the_run_is_known(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    write(tmp_path, range(2), run_id="20260131T130000Z-chat-0000", worker="w1-00000000")
    read = read_parts(tmp_path, RUN_ID)
    assert read.table.num_rows == 2
    assert [str(fault) for fault in read.faults] == [
        f'part-w1-00000000-000000.parquet  belongs to run "20260131T130000Z-chat-0000", not to {RUN_ID}'
    ]


def test_parts_of_two_runs_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    write(tmp_path, range(2), run_id="20260131T130000Z-chat-0000", worker="w1-00000000")
    for read in (list_parts, read_parts):
        with pytest.raises(ShardError, match="parts of 2 runs: 20260131T120000Z-chat-3f2c, 20260131T130000Z-chat-0000"):
            read(tmp_path)


def test_a_parquet_file_that_we_did_not_write_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"seq": [1]}), tmp_path / "other.parquet")
    assert [str(fault) for fault in list_parts(tmp_path).faults] == [
        "other.parquet  was not written by servebench: no schema_version in its metadata"
    ]


@pytest.mark.parametrize("version", ["2.0", "0.9"])
def test_another_major_version_is_refused_naming_both(tmp_path: Path, version: str) -> None:
    path = write(tmp_path, range(2))
    rewrite(path, pq.read_table(path), schema_version=version)
    assert [fault.message for fault in read_parts(tmp_path).faults] == [
        f"has schema version {version}; this servebench reads 1.x"
    ]


def test_a_version_that_is_none_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, range(2))
    rewrite(path, pq.read_table(path), schema_version="new")
    assert 'schema version "new", which is none' in read_parts(tmp_path).faults[0].message


def test_a_column_that_an_older_minor_version_lacks_reads_as_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, range(2))
    rewrite(path, pq.read_table(path).drop_columns(["cached_tokens"]))
    monkeypatch.setattr(open_part, "SCHEMA_VERSION", "1.1")
    read = read_parts(tmp_path)
    assert read.faults == ()
    assert read.table["cached_tokens"].to_pylist() == [None, None]
    assert read.table.schema.equals(REQUESTS_SCHEMA)


def test_a_column_that_its_own_version_has_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path, range(2))
    rewrite(path, pq.read_table(path).drop_columns(["cached_tokens"]))
    assert [fault.message for fault in read_parts(tmp_path).faults] == [
        "lacks the columns cached_tokens of schema version 1.0"
    ]


def test_a_column_that_we_do_not_know_is_left_out_and_named(tmp_path: Path) -> None:
    path = write(tmp_path, range(2))
    rewrite(path, pq.read_table(path).append_column("retries", pa.array([1, 2])), schema_version="1.7")
    read = read_parts(tmp_path)
    assert read.table.schema.equals(REQUESTS_SCHEMA)
    assert read.parts[0].info.unknown == ("retries",)


def test_a_column_of_another_type_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, range(2))
    table = pq.read_table(path)
    at = table.column_names.index("seq")
    rewrite(path, table.set_column(at, "seq", pa.array(["0", "1"])))
    assert [fault.message for fault in read_parts(tmp_path).faults] == ["has column seq as string, not int64"]


def test_parts_are_yielded_one_by_one_with_the_faults_between_them(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    (tmp_path / "part-w0-9f8e7d6c-000001.parquet").write_bytes(b"PAR1")
    write(tmp_path, range(3), number=2)
    found = [part.info.rows if isinstance(part, LoadedPart) else part.place for part in iter_parts(tmp_path)]
    assert found == [2, "part-w0-9f8e7d6c-000001.parquet", 3]


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"requests holds no parts: No such file or directory"):
        list_parts(tmp_path / "requests")


def test_a_folder_without_parts_has_no_rows_and_no_faults(tmp_path: Path) -> None:
    read = read_parts(tmp_path)
    assert (read.table.num_rows, read.parts, read.faults) == (0, (), ())
    assert read.table.schema.equals(REQUESTS_SCHEMA)


def test_a_folder_with_the_name_of_a_part_is_named(tmp_path: Path) -> None:
    (tmp_path / GOOD).mkdir()
    assert list_parts(tmp_path).faults == (Fault(place=GOOD, message="unreadable: Is a directory"),)
