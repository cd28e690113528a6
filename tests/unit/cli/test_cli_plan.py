"""`servebench plan` shows what would be sent: in words, as JSON, and as a table with nulls where nothing is planned."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from servebench.cli.main import cli
from servebench.core.errors import InputError

TALK = """\
name: talk
prompts:
  source: {kind: mt-bench}
  conversation: {turns: {from: prompt}, think_time: 2s}
load:
  kind: open
  phases: [{name: main, shape: steady, rate_per_s: 5, duration: 20s, arrivals: {process: constant}}]
"""
CLOSED = """\
name: closed
prompts: {source: {kind: mt-bench}}
load: {kind: closed, users: 32, think_time: 500ms, requests: 1000, warmup_requests: 64}
"""


def planned(tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    (tmp_path / "w.yaml").write_text(text, encoding="utf-8")
    found = CliRunner().invoke(cli, ["plan", str(tmp_path / "w.yaml"), *options], prog_name="servebench")
    return found.exit_code, found.output


def test_conversations_are_counted_apart_from_their_later_turns(tmp_path: Path) -> None:
    code, output = planned(tmp_path, TALK)
    assert code == 0
    assert "100 conversations; 100 later turns follow the answer before them." in output
    assert "prefix cache" not in output


def test_later_turns_have_no_planned_time_in_the_table(tmp_path: Path) -> None:
    code, _ = planned(tmp_path, TALK, "--out", str(tmp_path / "plan.parquet"))
    table = pq.read_table(tmp_path / "plan.parquet")
    assert code == 0
    assert table.num_rows == 200
    assert [at is None for at in table["intended_ns"].to_pylist()] == [turn != 0 for turn in table["turn"].to_pylist()]


def test_closed_load_is_told_without_a_schedule(tmp_path: Path) -> None:
    code, output = planned(tmp_path, CLOSED)
    assert code == 0
    assert "closed load, 32 users, 1,000 requests" in output
    assert "64 requests of warm-up" in output
    code, output = planned(tmp_path, CLOSED, "--json")
    assert code == 0
    assert json.loads(output)["think_time_s"] == 0.5


def test_closed_load_has_no_table_to_write(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(CLOSED, encoding="utf-8")
    arguments = ["plan", str(tmp_path / "w.yaml"), "--out", str(tmp_path / "plan.parquet")]
    with pytest.raises(InputError, match="no schedule"):
        CliRunner().invoke(cli, arguments, prog_name="servebench", catch_exceptions=False)
    assert not (tmp_path / "plan.parquet").exists()


def test_a_trace_s_prefixes_and_oddities_are_told(tmp_path: Path) -> None:
    text = (
        "name: m\nprompts: {source: {kind: trace}, input_tokens: {from: trace, max: 8192, over: drop}}\n"
        "load: {kind: replay, phases: [{name: rows, shape: replay, trace: {kind: mooncake}, length: 2m}]}\n"
    )
    code, output = planned(tmp_path, text)
    assert code == 0
    assert "of all input tokens repeat the beginning of an earlier prompt" in output
    assert "ticks of 3,000 ms; spread: true would undo them" in output
    code, output = planned(tmp_path, text, "--json")
    assert 0.1 < json.loads(output)["prefix_reuse"] < 0.9
