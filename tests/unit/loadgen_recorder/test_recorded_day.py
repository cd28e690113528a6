"""A day of load in seconds: the real recorder by a clock of the test, then compaction, merge and the drift in it."""

from pathlib import Path

import gevent
import numpy as np
from tests.builders import RunSpec, row, steady, write_run
from tests.record_builders import EPOCH_NS, answer, ask, chunks, identity, record

from servebench.analysis.digest import examine
from servebench.analysis.merge import compact_parts
from servebench.core.records import RequestRecord, SendStamps
from servebench.loadgen.worker.recorder import Recorder
from servebench.shards.manifest import Manifest, read_manifest, write_manifest

S, MS = 10**9, 10**6
DAY_S = 24 * 3600
EVERY_S = 10
FLUSH_S = 900
GROWTH = 0.15


def request(seq: int, rng: np.random.Generator) -> RequestRecord:
    """Return a request of the day; the time to its first token grows by GROWTH until the evening."""
    sent_ns = EPOCH_NS + seq * EVERY_S * S
    share = seq * EVERY_S / DAY_S
    first_ns = sent_ns + int(100 * MS * (1 + GROWTH) ** share * rng.lognormal(0, 0.1))
    stamps = [first_ns, first_ns + 20 * MS, first_ns + 40 * MS]
    return record(
        seq,
        ask=ask(seq, phase="soak", intended_ns=seq * EVERY_S * S),
        stamps=SendStamps(dispatched_ns=sent_ns, sent_ns=sent_ns, send_end_ns=sent_ns),
        answer=answer(headers_ns=first_ns, end_ns=stamps[-1], output_tokens=3, chunks=chunks(stamps)),
    )


def record_a_day(folder: Path) -> int:
    """Record a request every 10 s and look at the clock as often, for 24 hours; return the number of parts."""
    rng = np.random.default_rng(5)
    recorder = Recorder(folder, identity(), max_age_s=FLUSH_S)
    for seq in range(DAY_S // EVERY_S):
        recorder.add(request(seq, rng))
        recorder.tick(EPOCH_NS + (seq + 1) * EVERY_S * S)
        while recorder.writing:  # a disk that needs no minutes of that day
            gevent.sleep(0.001)
    parts = recorder.close()
    assert recorder.failure is None
    return len(parts)


def day_manifest(folder: Path) -> Manifest:
    """Return the manifest of a run of one worker and one phase of 24 hours, as the master closes it."""
    spec = RunSpec(rows=[row(0, sent_ns=0)], phases=[steady("soak", 0, DAY_S, shape="soak")])
    write_run(folder, spec)
    manifest = read_manifest(folder)
    manifest.planned = manifest.planned_total = DAY_S // EVERY_S
    manifest.run_id = identity().run_id
    return manifest


def test_a_day_becomes_few_files_without_a_row_less_and_its_drift_is_found(tmp_path: Path) -> None:
    run = tmp_path / identity().run_id
    manifest = day_manifest(run)
    for part in (run / "requests").iterdir():
        part.unlink()
    write_manifest(run, manifest)
    parts = record_a_day(run / "requests")
    assert parts >= 0.9 * DAY_S / FLUSH_S

    compact_parts(run)
    assert len(list((run / "requests").iterdir())) == 1, "a full part holds 20,000 rows"
    digest = examine(run).digest
    assert (digest.manifest.planned, digest.manifest.rows, digest.manifest.lost) == (8_640, 8_640, [])
    drift = next(item for item in digest.findings.drift if (item.metric, item.quantile) == ("ttft", "p50"))
    assert drift.lo is not None
    assert drift.hi is not None
    assert drift.lo < GROWTH < drift.hi
    assert drift.hours == 24
