"""Columns that a reading does not keep are read again, and large parts a piece at a time, with the same result."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import busy_run, query

from servebench.analysis.row_tables import KEPT, SCALARS
from servebench.analysis.source import load_run
from servebench.analysis.tables import percentile_table
from servebench.core.errors import ShardError
from servebench.shards.open_part import open_part


def test_every_stored_column_comes_in_the_order_of_the_run(tmp_path: Path) -> None:
    run = load_run(busy_run(tmp_path / "run"))
    columns = ", ".join(SCALARS)
    expected = query(f"select {columns} from read_parquet('{run.folder}/requests/*.parquet') order by seq, attempt")
    found = run.stored(*SCALARS)
    assert found.column_names == list(SCALARS)
    assert list(zip(*(found[name].to_pylist() for name in SCALARS), strict=True)) == expected


def test_only_what_is_always_looked_at_is_kept(tmp_path: Path) -> None:
    run = load_run(busy_run(tmp_path / "run"))
    assert run.table.column_names == list(KEPT)
    assert run.stored("model") == run.table.select(["model"])


def test_a_part_that_changed_since_is_not_read_again(tmp_path: Path) -> None:
    run = load_run(busy_run(tmp_path / "run"))
    path = next((run.folder / "requests").iterdir())
    table = pq.read_table(path)
    pq.write_table(table, path)
    with pytest.raises(ShardError, match="changed while the run was read"):
        run.stored("request_bytes")


def test_a_part_in_pieces_is_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = busy_run(tmp_path / "run")
    whole = load_run(folder)
    monkeypatch.setattr("servebench.analysis.chunks.KEPT_EVENTS", 1)
    monkeypatch.setattr("servebench.analysis.source.KEPT_EVENTS", 1)
    monkeypatch.setattr("servebench.analysis.chunks.PIECE_EVENTS", 50)
    pieces = load_run(folder)
    assert not pieces.chunks.kept
    assert percentile_table(pieces) == percentile_table(whole)
    assert pieces.flow.per_second.tolist() == whole.flow.per_second.tolist()
    assert np.array_equal(pieces.columns.events.longest_gap_ns, whole.columns.events.longest_gap_ns, equal_nan=True)


def test_nothing_is_used_of_a_part_that_is_damaged_behind_its_first_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = busy_run(tmp_path / "run")
    path = sorted((folder / "requests").iterdir())[0]
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=table.num_rows // 2 + 1, write_page_checksum=True)
    group = pq.ParquetFile(path).metadata.row_group(1)
    leaves = [group.column(k) for k in range(group.num_columns)]
    times = next(leaf for leaf in leaves if leaf.path_in_schema.startswith("chunk_ns"))
    data = bytearray(path.read_bytes())
    data[(times.dictionary_page_offset or times.data_page_offset) + times.total_compressed_size - 8] ^= 0xFF
    path.write_bytes(data)
    monkeypatch.setattr("servebench.analysis.chunks.KEPT_EVENTS", 1)
    monkeypatch.setattr("servebench.analysis.chunks.PIECE_EVENTS", 50)
    run = load_run(folder)
    assert [fault.split(" ")[0] for fault in run.faults] == [f"requests/{path.name}"]
    assert len(run.seq) == sum(shard.rows for shard in run.shards)
    sql = "select count(*) from (select unnest(chunk_kind) as kind from '{}') where kind = 'content'"
    told = [query(sql.format(run.folder / shard.path))[0][0] for shard in run.shards]
    assert run.columns.events.token_events.sum() == sum(told)
    assert run.flow.per_second.sum() == pytest.approx(run.columns.events.tokens.sum(), rel=1e-5)


def test_a_part_with_a_column_of_another_type_is_refused_whether_or_not_that_column_is_read(tmp_path: Path) -> None:
    folder = busy_run(tmp_path / "run")
    path = sorted((folder / "requests").iterdir())[0]
    table = pq.read_table(path)
    place = table.schema.get_field_index("request_bytes")
    table = table.set_column(place, "request_bytes", table["request_bytes"].cast(pa.float64()))
    pq.write_table(table, path)
    with pytest.raises(ShardError, match="has column request_bytes as double, not int64"):
        open_part(path)
