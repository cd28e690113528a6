"""Rows of `engine`, written and read back by pyarrow."""

from pathlib import Path

import pyarrow.parquet as pq

from servebench.shards.engine_schema import ENGINE_SCHEMA, EngineRow, engine_table
from servebench.shards.parts import PartIdentity, write_table_part

IDENTITY = PartIdentity(
    run_id="20260101T000000Z-x-0000", worker="m0-00000000", epoch_monotonic_ns=5, epoch_unix_ns=7, boot_id="b"
)


def test_raw_and_canonical_rows_come_back_as_they_were(tmp_path: Path) -> None:
    raw = EngineRow(1_000, "http://a:1/metrics", "vllm", None, "vllm:num_requests_running", '{"engine":"0"}', 3.0)
    canonical = EngineRow(1_000, "http://a:1/metrics", "vllm", "running", None, None, 3.0)
    unknown = EngineRow(2_000, "http://b:1/metrics", None, None, "x", "{}", 0.5)
    table = engine_table([raw, canonical, unknown], run_id=IDENTITY.run_id)
    part = write_table_part(tmp_path, 0, table, IDENTITY)
    rows = pq.read_table(part.path).to_pylist()
    assert rows == [{"run_id": IDENTITY.run_id, **row._asdict()} for row in (raw, canonical, unknown)]


def test_an_empty_table_has_the_schema() -> None:
    assert engine_table([], run_id="r").schema == ENGINE_SCHEMA
