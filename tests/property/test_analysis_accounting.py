"""Planned = distinct seqs + lost, for any rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from servebench.analysis.accounting import RowKeys, account
from servebench.shards.manifest import Manifest, MembersRecord

BASE = {
    "run_id": "r",
    "schema_version": "1.0",
    "servebench_version": "0",
    "created_utc": "2026-01-01T00:00:00Z",
    "name": "n",
    "state": "closed",
    "workload": {},
    "workload_hash": "",
    "seed": 0,
    "schedule_hash": None,
    "target_url": "",
    "epoch_monotonic_ns": 0,
    "epoch_unix_ns": 0,
    "boot_id": "",
    "stop_cause": "finished",
}


def keys(seqs: set[int]) -> RowKeys:
    ordered = np.array(sorted(seqs), np.int64)
    times = (ordered * 1_000_000_000).astype(np.float64)
    return RowKeys(ordered, np.zeros(len(ordered), np.int64), times, np.full(len(ordered), "load", object))


def spread(lost: list[tuple[int, int]]) -> list[int]:
    return [seq for first, last in lost for seq in range(first, last + 1)]


@given(st.integers(0, 60), st.sets(st.integers(0, 59)), st.integers(1, 3))
def test_every_planned_seq_has_a_row_or_is_named_once(planned: int, present: set[int], workers: int) -> None:
    present = {seq for seq in present if seq < planned}
    members = [MembersRecord(from_ns=-(2**62), workers=[f"w{k}" for k in range(workers)])]
    manifest = Manifest(engine="plan", planned=planned, members=members, **BASE)  # type: ignore[arg-type] # fields by name
    books = account(manifest, keys(present))
    named = spread([(item.first, item.last) for item in books.lost])
    assert sorted([*present, *named]) == list(range(planned))
    assert books.planned == books.distinct + books.lost_count
    assert all(item.worker == f"w{seq % workers}" for item in books.lost for seq in range(item.first, item.last + 1))
    again = Manifest(engine="plan", planned=planned, members=members, lost_detail=list(books.lost), **BASE)  # type: ignore[arg-type] # fields by name
    assert account(again, keys(present)) == books
