"""What merge calls a request without a row: begun and not on disk (unflushed), or never begun (undispatched)."""

import numpy as np
import pytest

from servebench.analysis.accounting import RowKeys, account
from servebench.shards.manifest import LostRange, Manifest, MembersRecord, WorkerRecord

S = 1_000_000_000


def manifest(*workers: WorkerRecord) -> Manifest:
    """Return a run of 20 requests, one each second, shared by the workers in turn."""
    return Manifest(
        run_id="r",
        schema_version="1.0",
        servebench_version="0",
        created_utc="2026-01-01T00:00:00Z",
        name="n",
        state="closed",
        engine="plan",
        workload={},
        workload_hash="",
        seed=0,
        schedule_hash="h",
        target_url="",
        epoch_monotonic_ns=0,
        epoch_unix_ns=0,
        boot_id="",
        stop_cause="finished",
        planned=20,
        members=[MembersRecord(from_ns=0, workers=[worker.worker for worker in workers])],
        workers=list(workers),
    )


def worker(name: str, state: str, **more: int | None) -> WorkerRecord:
    return WorkerRecord(worker=name, host="h", pid=1, boot_id="b", state=state, **more)  # type: ignore[arg-type]


def all_but(missing: set[int]) -> RowKeys:
    seqs = np.array([seq for seq in range(20) if seq not in missing], np.int64)
    return RowKeys(
        seqs, np.zeros(len(seqs), np.int64), (seqs * S).astype(np.float64), np.full(len(seqs), "steady", object)
    )


def test_a_dead_workers_requests_before_its_last_word_are_unflushed_and_later_ones_undispatched() -> None:
    dead = worker("w1", "lost", last_heard_ns=9 * S + 100, due_seq=10)
    books = account(manifest(worker("w0", "closed", begun=10, rows=10), dead), all_but({7, 9, 11, 13}))
    assert books.lost == (
        LostRange(first=7, last=7, worker="w1", cause="unflushed"),
        LostRange(first=9, last=9, worker="w1", cause="unflushed"),
        # Due less than a lease after the last word: it may have begun.
        LostRange(first=11, last=11, worker="w1", cause="undispatched", certain=False),
        LostRange(first=13, last=13, worker="w1", cause="undispatched"),
    )


def test_what_a_slow_worker_had_not_come_to_by_its_last_word_is_not_called_begun() -> None:
    # It was 4 s behind: seq 3 was handed over, 5 was next.
    dead = worker("w1", "lost", last_heard_ns=9 * S + 100, due_seq=10, reached_seq=5)
    books = account(manifest(worker("w0", "closed", begun=10, rows=10), dead), all_but({3, 5, 7, 9, 13}))
    assert [(item.first, item.cause, item.certain) for item in books.lost] == [
        (3, "unflushed", True),
        (5, "undispatched", False),
        (7, "undispatched", False),
        (9, "undispatched", False),
        (13, "undispatched", True),
    ]


def test_a_worker_that_lacks_rows_at_its_end_lacks_only_what_it_had_come_to() -> None:
    books = account(manifest(worker("w0", "closed", begun=10, rows=9, reached_seq=10)), all_but({4, 15}))
    assert [(item.first, item.cause) for item in books.lost] == [(4, "unflushed"), (15, "undispatched")]


@pytest.mark.parametrize(("begun", "rows", "cause"), [(9, 9, "undispatched"), (10, 9, "unflushed")])
def test_what_a_worker_that_ended_in_order_lacks_depends_on_what_it_says_is_on_disk(
    begun: int, rows: int, cause: str
) -> None:
    books = account(manifest(worker("w0", "closed", begun=begun, rows=rows)), all_but({4}))
    assert books.lost == (LostRange(first=4, last=4, worker="w0", cause=cause),)


def test_a_worker_that_was_never_heard_of_leaves_the_cause_unknown() -> None:
    books = account(manifest(worker("w0", "lost")), all_but({4}))
    assert books.lost == (LostRange(first=4, last=4, worker="w0", cause="unknown"),)


def test_what_came_due_while_nobody_shared_the_load_was_never_sent() -> None:
    run = manifest(worker("w0", "closed", begun=14, rows=14))
    run.members = [
        MembersRecord(from_ns=0, first_seq=0, workers=["w0"]),
        MembersRecord(from_ns=5 * S, first_seq=5, workers=[]),
        MembersRecord(from_ns=11 * S, first_seq=11, workers=["w0"]),
    ]
    books = account(run, all_but(set(range(5, 11))))
    assert books.lost == (LostRange(first=5, last=10, worker=None, cause="undispatched"),)


def test_of_a_dead_workers_conversation_that_was_due_the_first_turn_had_begun_and_later_ones_may_not_have() -> None:
    dead = worker("w1", "lost", last_heard_ns=9 * S + 100, due_seq=12)
    starts = np.arange(0, 20, 4)  # five conversations of four turns: w1 has the second and the fourth
    run = manifest(worker("w0", "closed", begun=12, rows=12), dead)
    run.members[0].first_seq = 0
    books = account(run, all_but({4, 5, 6, 7, 12, 13, 14, 15}), starts)
    assert books.lost == (
        LostRange(first=4, last=4, worker="w1", cause="unflushed"),
        LostRange(first=5, last=7, worker="w1", cause="unflushed", certain=False),
        LostRange(first=12, last=15, worker="w1", cause="undispatched", certain=False),
    )
