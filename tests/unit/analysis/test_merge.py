"""What `merge` makes of run folders whose rows are known; the expected counts are in the rows themselves."""

import json
from pathlib import Path

import pytest
from tests.builders import MS, RunSpec, S, busy_run, events, row, small_run, steady, write_part, write_run

from servebench.analysis.merge import merge
from servebench.core.errors import ShardError
from servebench.shards.manifest import MembersRecord, WorkerRecord


def ranges(folder: Path) -> list[list[int]]:
    found: list[list[int]] = json.loads((folder / "run.json").read_text())["lost"]
    return found


def test_a_complete_run_is_valid_and_planned_equals_rows(tmp_path: Path) -> None:
    merged = merge(small_run(tmp_path / "run", count=20))
    assert merged.state == "merged"
    assert (merged.planned, merged.rows, merged.lost) == (20, 20, [])
    assert merged.verdict is not None
    assert merged.verdict.status == "valid"
    assert merged.verdict.objectives == "none"


def test_missing_seqs_are_named_as_ranges(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq * S // 10) for seq in range(1000) if seq not in {3, 4, 5, 999}]
    spec = RunSpec(rows=rows, phases=[steady("load", 0, 100)], manifest={"planned": 1000, "planned_total": 1000})
    merged = merge(write_run(tmp_path / "run", spec))
    assert ranges(tmp_path / "run") == [[3, 5], [999, 999]]
    assert merged.rows == 996
    assert merged.verdict is not None
    assert merged.verdict.valid, "0.4 % lost is a mark"
    assert any("4 of 1,000" in reason for reason in merged.verdict.reasons)


def test_more_than_one_percent_lost_in_a_measured_phase_is_invalid(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq * S) for seq in range(98)]
    spec = RunSpec(rows=rows, phases=[steady("load", 0, 100)], manifest={"planned": 100, "planned_total": 100})
    verdict = merge(write_run(tmp_path / "run", spec)).verdict
    assert verdict is not None
    assert verdict.status == "invalid"
    assert any("2 of 100 requests of phase load were lost (2.0 %" in reason for reason in verdict.reasons)


def test_a_lost_seq_is_blamed_on_the_member_whose_turn_it_was(tmp_path: Path) -> None:
    members = [MembersRecord(from_ns=-(2**62), workers=["w0-aaaaaaaa", "w1-bbbbbbbb"])]
    workers = [
        WorkerRecord(worker="w0-aaaaaaaa", host="node", pid=1, boot_id="boot", state="closed"),
        WorkerRecord(worker="w1-bbbbbbbb", host="node", pid=2, boot_id="boot", state="lost"),
    ]
    rows = [row(seq, sent_ns=seq * S) for seq in range(0, 10, 2)]
    manifest = {"planned": 10, "planned_total": 10, "members": members, "workers": workers}
    merged = merge(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)], manifest=manifest)))
    assert {item.worker for item in merged.lost_detail} == {"w1-bbbbbbbb"}
    assert [item.first for item in merged.lost_detail] == [1, 3, 5, 7, 9]


def test_merging_twice_writes_the_same_bytes_and_leaves_parts_alone(tmp_path: Path) -> None:
    folder = busy_run(tmp_path / "run")
    parts = {path: path.read_bytes() for path in (folder / "requests").iterdir()}
    merge(folder)
    outputs = [folder / name for name in ("run.json", "summary.json", "summary.md")] + sorted(
        (folder / "tables").iterdir()
    )
    first = {path: path.read_bytes() for path in outputs}
    merge(folder)
    assert {path: path.read_bytes() for path in outputs} == first
    assert {path: path.read_bytes() for path in (folder / "requests").iterdir()} == parts
    assert len(first) == 8


@pytest.mark.parametrize("missing", [[], [4, 5]], ids=["no gap", "a gap"])
def test_a_run_whose_master_died_is_interrupted_with_what_the_rows_prove(tmp_path: Path, missing: list[int]) -> None:
    rows = [row(seq, sent_ns=seq * S) for seq in range(10) if seq not in missing]
    manifest = {"state": "running", "stop_cause": None, "stop_ns": None, "planned": None, "planned_total": 60}
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 60)], manifest=manifest))
    for _ in range(2):
        merged = merge(folder)
        assert (merged.planned, merged.planned_total, merged.rows) == (10, 60, 10 - len(missing))
        assert merged.lost == ([(4, 5)] if missing else [])
        assert merged.verdict is not None
        assert merged.verdict.status == "interrupted"


def test_a_user_stop_is_interrupted(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run", manifest={"stop_cause": "user", "planned_total": 60})
    verdict = merge(folder).verdict
    assert verdict is not None
    assert (verdict.valid, verdict.status) == (False, "interrupted")


def test_blocks_that_a_dead_worker_leased_are_lost_where_no_row_tells_of_them(tmp_path: Path) -> None:
    detail = [{"first": 10, "last": 19, "worker": "w1-bbbbbbbb", "cause": "unreported", "certain": False}]
    rows = [row(seq, sent_ns=seq * S, intended_ns=None) for seq in [*range(10), 12]]
    manifest = {"engine": "tokens", "planned": 10, "lost_detail": detail, "schedule_hash": None}
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("manual", 0, 20)], manifest=manifest))
    for _ in range(2):
        merged = merge(folder)
        assert merged.lost == [(10, 11), (13, 19)]
        assert merged.planned == 20
        assert not any(item.certain for item in merged.lost_detail)


def test_a_truncated_part_is_named_and_the_others_are_used(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run", count=20)
    bad = sorted((folder / "requests").iterdir())[0]
    bad.write_bytes(bad.read_bytes()[:200])
    merged = merge(folder)
    assert merged.rows == 10
    assert merged.verdict is not None
    assert any(bad.name in reason for reason in merged.verdict.reasons)


def test_a_part_copied_twice_makes_the_run_invalid(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run", count=20)
    part = sorted((folder / "requests").iterdir())[0]
    part.with_name("part-copy.parquet").write_bytes(part.read_bytes())
    verdict = merge(folder).verdict
    assert verdict is not None
    assert not verdict.valid
    assert any("10 rows repeat" in reason for reason in verdict.reasons)


def test_a_part_of_another_run_is_left_out_and_named(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run", count=20)
    write_part(folder / "requests" / "part-x.parquet", [row(5, sent_ns=0)], run_id="other")
    merged = merge(folder)
    assert merged.rows == 20
    assert merged.verdict is not None
    assert any("part-x.parquet" in reason and "other" in reason for reason in merged.verdict.reasons)


def test_a_run_in_which_everything_failed_is_invalid_but_written(tmp_path: Path) -> None:
    rows = [
        row(seq, sent_ns=seq * 10 * MS, outcome="http_error", http_status=503, error_class="http_503") | events()
        for seq in range(20)
    ]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 1)]))
    verdict = merge(folder).verdict
    assert verdict is not None
    assert verdict.status == "invalid"
    text = (folder / "summary.json").read_text()
    assert "NaN" not in text
    summary = json.loads(text)
    assert (summary["measured"]["failed"], summary["measured"]["ok"]) == (20, 0)
    ttft = next(item for item in summary["percentiles"] if item["metric"] == "ttft" and item["phase"] == "all")
    assert (ttft["n"], ttft["p50"], ttft["mean"], ttft["max"]) == (0, None, None, None)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="no run folder"):
        merge(tmp_path)


def test_the_markdown_summary_holds_verdict_objectives_and_table_and_no_markup_of_the_server(tmp_path: Path) -> None:
    folder = busy_run(tmp_path / "run", model="<img src=x>|*m*`")
    merge(folder)
    text = (folder / "summary.md").read_text(encoding="utf-8")
    assert text.startswith("**? VALID, objectives undecided**: chat-burst on &lt;img src=x&gt;")
    assert "<img" not in text
    assert "| TTFT p95 < 800 ms |" in text
    assert "| ttft | ms | all |" in text
    assert "nan" not in text
