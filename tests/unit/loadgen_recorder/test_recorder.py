"""Finished requests become parts, none is lost, and failures are told."""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import gevent
import pyarrow.parquet as pq
import pytest
from gevent import monkey
from tests.record_builders import EPOCH_NS, answer, chunks, expected_row, identity, record

from servebench.core.errors import HarnessError
from servebench.core.records import RequestRecord
from servebench.loadgen.part_writer import PartWriter
from servebench.loadgen.worker import recorder as recorder_module
from servebench.loadgen.worker.recorder import Recorder
from servebench.shards.parts import WrittenPart

S = 1_000_000_000


def ended(seq: int, after_s: float = 0.0) -> RequestRecord:
    end_ns = EPOCH_NS + round(after_s * S)
    return record(seq, answer=answer(end_ns=end_ns, chunks=chunks([end_ns])))


def seqs_of(parts: tuple[WrittenPart, ...]) -> list[list[int | None]]:
    return [pq.read_table(part.path)["seq"].to_pylist() for part in parts]


def test_a_part_is_written_when_it_has_its_rows_and_the_rest_at_close(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity(), max_rows=3)
    for seq in range(7):
        recorder.add(ended(seq))
    parts = recorder.close()
    assert seqs_of(parts) == [[0, 1, 2], [3, 4, 5], [6]]
    assert [part.path.name for part in parts] == [f"part-w0-9f8e7d6c-00000{k}.parquet" for k in range(3)]
    assert (recorder.rows, recorder.dropped, recorder.failure) == (7, 0, None)


def test_rows_are_what_was_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity())
    records = [ended(seq, after_s=seq) for seq in range(5)]
    for made in records:
        recorder.add(made)
    [part] = recorder.close()
    assert pq.read_table(part.path).to_pylist() == [expected_row(made) for made in records]


def test_a_part_is_written_when_its_first_row_is_old_enough(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity(), max_age_s=5.0)
    recorder.add(ended(0, after_s=10))
    recorder.add(ended(1, after_s=14))
    recorder.tick(EPOCH_NS + 15 * S - 1)
    recorder.add(ended(2, after_s=14.9))
    recorder.tick(EPOCH_NS + 15 * S)
    recorder.add(ended(3, after_s=15.1))
    recorder.tick(EPOCH_NS + 20 * S)
    assert seqs_of(recorder.close()) == [[0, 1, 2], [3]]


def test_a_part_is_written_when_its_events_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_CHUNKS", 4)
    recorder = Recorder(tmp_path, identity())
    for seq in range(3):
        recorder.add(record(seq, answer=answer(chunks=chunks([EPOCH_NS] * 2))))
    assert seqs_of(recorder.close()) == [[0, 1], [2]]


def test_a_tick_without_rows_writes_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity())
    recorder.tick(EPOCH_NS + 100 * S)
    assert recorder.close() == ()
    assert list(tmp_path.iterdir()) == []


def test_parts_appear_while_the_hub_does_other_things(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity(), max_rows=2)
    recorder.add(ended(0))
    recorder.add(ended(1))
    assert recorder.parts == ()
    while not recorder.parts:
        gevent.sleep(0)
    assert seqs_of(recorder.parts) == [[0, 1]]
    recorder.close()


def test_greenlets_that_record_at_once_lose_no_row(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity(), max_rows=30)

    def send(first: int) -> None:
        for seq in range(first, first + 20):
            recorder.add(ended(seq))
            gevent.sleep(0)

    gevent.joinall([gevent.spawn(send, first) for first in range(0, 200, 20)], raise_error=True)
    parts = seqs_of(recorder.close())
    assert sorted(seq for part in parts for seq in part if seq is not None) == list(range(200))
    assert [len(part) for part in parts] == [30] * 6 + [20]
    assert recorder.failure is None


def test_a_failed_write_is_told_and_other_parts_stay_readable(tmp_path: Path) -> None:
    folder = tmp_path / "requests"
    folder.mkdir()
    (folder / "part-w0-9f8e7d6c-000001.parquet").write_bytes(b"of somebody else")
    recorder = Recorder(folder, identity(), max_rows=1)
    for seq in range(3):
        recorder.add(ended(seq))
    assert seqs_of(recorder.close()) == [[0], [2]]
    assert str(recorder.failure).startswith(f"cannot write {folder}/part-w0-9f8e7d6c-000001.parquet: File exists; ")


def test_a_disk_that_cannot_follow_is_told_and_costs_no_row(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity(), max_rows=2)
    # The hub never runs in this loop, so no part is written: what a disk that hangs looks like from here.
    for seq in range(16):
        recorder.add(ended(seq))
    assert recorder.failure is None
    for seq in range(16, 23):
        recorder.add(ended(seq))
    assert "8 parts wait" in str(recorder.failure)
    assert seqs_of(recorder.close()) == [*([seq, seq + 1] for seq in range(0, 16, 2)), list(range(16, 23))]
    assert (recorder.rows, recorder.dropped) == (23, 0)


def test_a_slow_disk_gets_few_large_parts_and_no_queue_of_small_ones(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity(), max_age_s=5.0)
    # The hub never runs in this loop: the first part is being written all the time.
    first_s = (time.monotonic_ns() - EPOCH_NS) / S - 10
    for seq in range(30):
        recorder.add(ended(seq, after_s=first_s + seq))
        recorder.tick(EPOCH_NS + round((first_s + seq + 6) * S))
    assert recorder.failure is None
    assert seqs_of(recorder.close()) == [[0], list(range(1, 30))]


def test_a_disk_that_hangs_is_told_after_a_minute_and_rows_are_kept(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity(), max_rows=1)
    recorder.add(ended(0))
    now_ns = time.monotonic_ns()
    recorder.tick(now_ns + 59 * S)
    assert recorder.failure is None
    recorder.tick(now_ns + 61 * S)
    assert str(recorder.failure).startswith(f"{tmp_path} took no part for 60 s; check that disk")
    assert seqs_of(recorder.close()) == [[0]]


def test_a_request_that_ends_after_the_close_is_refused_aloud(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity())
    recorder.close()
    with pytest.raises(HarnessError, match="3f2c0000-4-0 ended after its recorder was closed"):
        recorder.add(ended(4))


def test_closing_twice_gives_the_same_parts(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, identity())
    recorder.add(ended(0))
    assert recorder.close() == recorder.close()


@pytest.mark.parametrize("max_rows", [0, -1, 32_768])
def test_a_part_size_that_no_buffer_holds_is_refused(tmp_path: Path, max_rows: int) -> None:
    with pytest.raises(ValueError, match="must be 1 to 32767"):
        Recorder(tmp_path, identity(), max_rows=max_rows)


def written(number: int) -> WrittenPart:
    return WrittenPart(path=Path(f"part-{number}"), rows=1, sha256="", chunks=0, bytes=0)


def test_jobs_run_one_after_the_other_in_order_and_submitting_never_waits() -> None:
    # A native lock even where another test made Locust patch `threading`: gevent's would switch in the pool's thread.
    gate = monkey.get_original("_thread", "allocate_lock")()
    gate.acquire()
    writer, began = PartWriter(max_pending=3), list[int]()

    def job(number: int) -> WrittenPart:
        began.append(number)
        with gate:
            return written(number)

    for number in range(3):
        writer.submit(partial(job, number))
    assert writer.full
    while not began:
        gevent.sleep(0)
    assert began == [0]
    gate.release()
    writer.close()
    assert (began, writer.parts, writer.full) == ([0, 1, 2], [written(0), written(1), written(2)], False)


def test_an_error_that_nobody_foresaw_is_a_failure_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    writer = PartWriter()

    def broken() -> WrittenPart:
        raise ZeroDivisionError("by zero")

    writer.submit(broken)
    writer.submit(lambda: written(1))
    writer.close()
    assert "cannot record: ZeroDivisionError: by zero" in str(writer.failure)
    assert writer.parts == [written(1)]
    assert capfd.readouterr().err == ""


def test_a_writer_that_was_ended_from_outside_says_so_and_does_not_spin() -> None:
    writer = PartWriter()
    writer.submit(lambda: written(0))
    assert writer._drainer is not None
    writer._drainer.kill()
    with gevent.Timeout(30):
        writer.close()
    assert str(writer.failure) == "1 parts were not written: their writer was ended"


def test_a_worker_that_records_loads_no_pandas(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from servebench.loadgen.worker.health import HealthGauges, HealthMonitor
from servebench.loadgen.worker.recorder import Recorder
from tests.record_builders import identity, record
for name in ("requests", "health"):
    (Path(sys.argv[1]) / name).mkdir()
recorder = Recorder(Path(sys.argv[1]) / "requests", identity())
health = HealthMonitor(Path(sys.argv[1]) / "health", identity(), lambda: HealthGauges(0, 0, 0, None, None, None))
health.start()
recorder.add(record())
while health.last is None:
    __import__("gevent").sleep(0.01)
print(len(recorder.close()), len(health.stop()), sorted({"pandas", "pyarrow.compute"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "1 1 []\n"
