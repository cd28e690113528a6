"""The hard cases of post-processing: their own columns are in seconds, so each is read through the adapter below.

A clock that is off by an hour (A17) shows as load that was dispatched an hour late, because intended times are those of
the plan on every worker. Rates are over declared windows; where a case has none, its phase is what the case says.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.builders import RunSpec, S, events, row, steady, write_part, write_run

from servebench.analysis.digest import Digest, examine
from servebench.analysis.merge import merge, summary_json
from servebench.analysis.render import as_text
from servebench.analysis.table_rows import TableRow, statistics_row
from servebench.analysis.tables import Table, percentile_table
from servebench.metrics import METRIC_BY_NAME
from servebench.shards.manifest import PhaseRecord
from servebench.shards.schema import REQUESTS_SCHEMA

CASES = Path(__file__).parent / "analysis"
EXPECTED: dict[str, dict[str, Any]] = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))
Record = dict[str, Any]
A_TICK_S = 1e-9
"""Windows are half-open: one that is to hold the last end is a nanosecond longer."""


def expected(case: str) -> dict[str, Any]:
    found: dict[str, Any] = EXPECTED[case]["expect"]
    return found


def ns(seconds: str | float | None) -> int | None:
    return None if seconds in {"", None} else round(float(seconds or 0.0) * S)


def adapted(record: Record, seq: int) -> Record:
    """Return a row of ours: the first token at t_first, all others at t_last."""
    first, last, tokens = ns(record["t_first"]), ns(record["t_last"]), int(record["output_tokens"] or 0)
    start, end = ns(record["t_start"]), ns(record["t_end"])
    made = row(seq, sent_ns=start, outcome="cancelled", measured=record.get("phase") != "warmup")
    stamps = [] if first is None else [first, *[last if last is not None else first] * (tokens - 1)]
    ok = record["outcome"] == "ok"
    made |= events(*((stamp, "content") for stamp in stamps))
    return made | {
        "worker": record["worker"],
        "phase": record.get("phase") or "measure",
        "outcome": "ok" if ok else "http_error",
        "error_class": None if ok else f"http_{record['status']}",
        "http_status": int(record["status"]),
        "output_tokens": tokens or None,
        "token_source": "usage" if ok else None,
        "end_ns": end,
    }


def from_csv(name: str) -> list[Record]:
    with (CASES / name).open(encoding="utf-8", newline="") as file:
        return [adapted(record, seq) | {"run": record["run_id"]} for seq, record in enumerate(csv.DictReader(file))]


def from_parquet(name: str) -> list[Record]:
    return [adapted(record, seq) for seq, record in enumerate(pq.read_table(CASES / name).to_pylist())]


def ours(rows: Iterable[Record]) -> list[Record]:
    return [{name: made[name] for name in REQUESTS_SCHEMA.names} for made in rows]


def run_of(folder: Path, rows: list[Record], *phases: PhaseRecord, parts: int = 1, **manifest: Any) -> Path:  # noqa: ANN401
    return write_run(folder, RunSpec(rows=ours(rows), phases=list(phases), parts=parts, manifest=manifest))


def look(folder: Path) -> Digest:
    return examine(folder).digest


def of(table: Table, metric: str, group: str = "all") -> TableRow:
    found = table.find(metric, group)
    assert found is not None
    return found


def test_a01_percentiles_of_nothing_one_two_three_and_a_hundred() -> None:
    samples = json.loads((CASES / "A01-samples.json").read_text())
    for name, wanted in expected("A01").items():
        values = np.array(samples[name], np.float64) * 1e9
        found = statistics_row(METRIC_BY_NAME["ttft"], (), values, all_quantiles=True)
        for statistic, value in wanted.items():
            got = getattr(found, statistic)
            seconds = got if statistic == "n" or got is None else got / 1e3
            assert seconds == (value if value is None else pytest.approx(value)), (name, statistic)


def test_a02_percentiles_are_those_of_the_times_and_not_of_rounded_ones() -> None:
    times = np.array(json.loads((CASES / "A02-times.json").read_text()), np.float64) * 1e6
    found = statistics_row(METRIC_BY_NAME["e2e"], (), times, all_quantiles=True)
    assert {name: getattr(found, name) for name in expected("A02")} == pytest.approx(expected("A02"))


def test_a03_a_run_in_which_everything_failed_has_its_numbers_and_no_nan(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", from_csv("A03-all-failed.csv"), steady("measure", 0, 1))
    found, wanted = look(folder), expected("A03")
    assert (found.counts.rows, found.counts.ok) == (wanted["requests"], wanted["ok"])
    assert of(found.table, "error_rate").mean == 100 * wanted["error_rate"]
    assert of(found.table, "request_throughput").mean == wanted["ok_req_per_s"]
    assert {q: getattr(of(found.table, "ttft"), q) for q in wanted["ttft"]} == wanted["ttft"]
    assert "NaN" not in summary_json(found).decode()
    assert "nan" not in as_text(found.table)
    assert found.manifest.verdict is not None
    assert not found.manifest.verdict.valid
    assert [(item.outcome, item.error_class, item.n) for item in found.outcomes] == [("http_error", "http_503", 20)]


def test_a04_fast_errors_do_not_improve_a_latency(tmp_path: Path) -> None:
    wanted = expected("A04")
    folder = run_of(
        tmp_path / "run", from_csv("A04-fast-errors.csv"), steady("measure", 0, wanted["window_s"] + A_TICK_S)
    )
    found = look(folder)
    assert (found.counts.rows, found.counts.ok) == (wanted["requests"], wanted["ok"])
    assert of(found.table, "error_rate").mean == pytest.approx(100 * wanted["error_rate"])
    assert of(found.table, "request_throughput").mean == pytest.approx(wanted["ok_req_per_s"], rel=1e-6)
    assert of(found.table, "output_token_throughput").mean == pytest.approx(wanted["output_tok_per_s"], rel=1e-6)
    assert of(found.table, "e2e").p50 == 1e3 * wanted["e2e_p50"]
    assert of(found.table, "ttft").p50 == 1e3 * wanted["ttft_p50"]


def straddling(request: Record, seq: int) -> Record:
    """Return a row of A06: what starts before the window is warm-up, what starts at its end comes after it."""
    start, stamps = ns(request["t_start"]) or 0, [ns(time) or 0 for time in request["token_times"]]
    phase = "before" if start < 0 else "measure" if start < 10 * S else "after"
    made = row(seq, sent_ns=start, outcome=request["outcome"], phase=phase, measured=phase == "measure")
    made |= events(*((stamp, "content") for stamp in stamps))
    return made | {"end_ns": ns(request["t_end"]), "output_tokens": len(stamps)}


def test_a06_tokens_count_where_they_arrive_and_latency_where_it_starts(tmp_path: Path) -> None:
    content, wanted = json.loads((CASES / "A06-straddle.json").read_text()), expected("A06")
    rows = [straddling(request, seq) for seq, request in enumerate(content["requests"])]
    phases = [
        steady("before", -2, 0, measured=False),
        steady("measure", *content["window"]),
        steady("after", 10, 20, measured=False),
    ]
    folder = run_of(tmp_path / "run", rows, *phases, stop_ns=20 * S)
    found = look(folder)
    assert of(found.table, "output_token_throughput", "measure").mean == pytest.approx(wanted["tok_per_s"])
    assert of(found.table, "request_throughput", "measure").mean == len(wanted["completed_in_window"]) / 10
    assert of(found.table, "e2e", "measure").n == len(wanted["latency_set"])
    assert found.counts.cancelled == len(wanted["cancelled"])
    assert found.counts.failed == 0
    assert found.counts.warmup == len(wanted["outside"]) + 1


def test_a07_warm_up_is_stored_counted_and_in_no_table(tmp_path: Path) -> None:
    wanted = expected("A07")
    phases = [steady("warmup", 0, 10, measured=False), steady("measure", 10, 30)]
    rows = [made | {"phase": made["phase"]} for made in from_csv("A07-warmup.csv")]
    folder = run_of(tmp_path / "run", rows, *phases, stop_ns=30 * S)
    examined = examine(folder)
    found = examined.digest
    assert (found.counts.rows, found.counts.warmup) == (wanted["measured"], wanted["warmup"])
    table = percentile_table(examined.run, all_quantiles=True)
    assert of(table, "ttft").p50 == pytest.approx(1e3 * wanted["ttft_p50"])
    assert of(table, "ttft").p99 == pytest.approx(1e3 * wanted["ttft_p99"])
    assert of(table, "request_throughput").mean == wanted["ok_req_per_s"]
    assert found.counts.seconds == wanted["window_s"]


def test_a08_a_part_that_was_cut_is_named_and_the_others_are_used(tmp_path: Path) -> None:
    rows = from_parquet("A08/good.parquet")
    folder = run_of(tmp_path / "run", rows, steady("measure", 0, 10))
    good = next((folder / "requests").iterdir()).read_bytes()
    (folder / "requests" / "killed-half.parquet").write_bytes(good[: len(good) // 2])
    (folder / "requests" / "killed-at-4.parquet").write_bytes((CASES / "A08" / "killed-at-4.parquet").read_bytes())
    merged = merge(folder)
    assert merged.rows == expected("A08")["rows"]
    assert merged.verdict is not None
    for name in expected("A08")["bad_files"]:
        assert any(name in reason for reason in merged.verdict.reasons)


def test_a10_strangers_are_ignored_and_broken_files_named(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", from_parquet("A10/good.parquet"), steady("measure", 0, 10))
    parts = folder / "requests"
    for name in ("zero-bytes.parquet", "lfs.parquet"):
        (parts / name).write_bytes((CASES / "A10" / name).read_bytes())
    for name in ("_SUCCESS", ".part-0.parquet.crc", "notes.txt", "x.parquet.tmp"):
        (parts / name).write_bytes(b"anything")
    write_part(parts / "zero-rows.parquet", [])
    merged = merge(folder)
    assert merged.rows == expected("A10")["rows"]
    assert merged.verdict is not None
    faults = [reason for reason in merged.verdict.reasons if "could not be used" in reason]
    assert len(faults) == 2
    for name in expected("A10")["bad_files"]:
        assert any(name in reason for reason in faults)


def test_a12_a_part_of_another_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    newer = [made | {"seq": 4 + k} for k, made in enumerate(from_parquet("A12/v2.parquet"))]
    folder = run_of(tmp_path / "run", newer, steady("measure", 0, 10), planned=10, planned_total=10)
    write_part(folder / "requests" / "old.parquet", ours(from_parquet("A12/v1.parquet")), version="0.9")
    merged = merge(folder)
    assert merged.rows == len(newer)
    assert merged.lost == [(0, 3)]
    assert merged.verdict is not None
    assert any("0.9" in reason and "1.x" in reason and "old.parquet" in reason for reason in merged.verdict.reasons)


def test_a14_parts_of_two_runs_are_never_one_run(tmp_path: Path) -> None:
    rows = from_csv("A14-two-runs.csv")
    for run, wanted in expected("A14").items():
        mine = [made for made in rows if made["run"] == run]
        start = min(made["sent_ns"] for made in mine)
        shifted = [
            made
            | {"seq": k, "sent_ns": made["sent_ns"] - start, "end_ns": made["end_ns"] - start}
            | {"chunk_ns": [stamp - start for stamp in made["chunk_ns"]]}
            | dict.fromkeys(("intended_ns", "dispatched_ns"), made["sent_ns"] - start)
            for k, made in enumerate(mine)
        ]
        folder = run_of(tmp_path / run, shifted, steady("measure", 0, 10.001))
        other = [made for made in rows if made["run"] != run]
        write_part(folder / "requests" / "other.parquet", ours(other), run_id="another")
        found = look(folder)
        assert found.counts.rows == wanted["rows"]
        assert of(found.table, "request_throughput").mean == pytest.approx(wanted["ok_req_per_s"], rel=1e-3)
        assert of(found.table, "ttft").p50 == pytest.approx(1e3 * wanted["ttft_p50"])
        assert found.manifest.verdict is not None
        assert any("another" in reason for reason in found.manifest.verdict.reasons)


def test_a17_a_clock_that_is_an_hour_ahead_makes_no_rate_and_no_valid_run(tmp_path: Path) -> None:
    wanted = expected("A17")
    rows = from_csv("A17-skew.csv")
    for made in rows:
        offset = wanted["clock_offset_s"][made["worker"]] * S
        made["intended_ns"] = made["sent_ns"] - offset
    window = steady("measure", 0, wanted["aligned_window_s"])
    skewed = look(run_of(tmp_path / "skewed", rows, window))
    assert of(skewed.table, "ttft").p50 == pytest.approx(1e3 * wanted["ttft_p50"])
    assert skewed.manifest.verdict is not None
    assert not skewed.manifest.verdict.valid
    assert any("dispatched more than" in reason for reason in skewed.manifest.verdict.reasons)
    for made in rows:
        shift = made["sent_ns"] - made["intended_ns"]
        made |= {name: made[name] - shift for name in ("dispatched_ns", "sent_ns", "end_ns")}
        made["chunk_ns"] = [stamp - shift for stamp in made["chunk_ns"]]
    last = max(made["end_ns"] for made in rows) / S
    assert last == pytest.approx(wanted["aligned_window_s"])
    aligned = look(run_of(tmp_path / "aligned", rows, steady("measure", 0, last + A_TICK_S)))
    assert of(aligned.table, "ttft").p50 == pytest.approx(1e3 * wanted["ttft_p50"])
    assert of(aligned.table, "request_throughput").mean == pytest.approx(wanted["aligned_ok_req_per_s"], rel=1e-6)


def test_a19_a_zero_that_stands_for_not_measured_is_rejected_and_counted(tmp_path: Path) -> None:
    wanted = expected("A19")
    folder = run_of(tmp_path / "run", from_csv("A19-sentinel.csv"), steady("measure", 0, 5))
    found = look(folder)
    ttft = of(found.table, "ttft")
    assert ttft.n == wanted["ttft_n"]
    assert ttft.p50 == pytest.approx(1e3 * wanted["ttft_p50"])
    assert ttft.max == pytest.approx(1e3 * wanted["ttft_max"])
    assert found.manifest.verdict is not None
    assert wanted["invalid"] == 1
    text = "1 answer holds times that cannot be"
    assert any(text in reason for reason in found.manifest.verdict.reasons)


def test_a22_a_second_analysis_over_leftovers_of_the_first_writes_the_same_bytes(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", from_csv("A07-warmup.csv"), steady("measure", 0, 30))
    merge(folder)
    written = [folder / "run.json", folder / "summary.json", *(folder / "tables").iterdir()]
    first = {path: path.read_bytes() for path in written}
    (folder / "summary.json.tmp").write_bytes(b"half a file")
    (folder / "tables" / "percentiles.csv").unlink()
    merge(folder)
    assert {path: path.read_bytes() for path in first} == first
