"""Experiments and the search for capacity as a user starts them, on simulated engines whose difference is known."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from tests.commands import command, environment, free_port, servebench

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PATIENCE_S = 880.0

ROOT = Path(__file__).parents[2]
CLIENT_FAULTS = ("the client was too slow", "spoiled by this client", "sent other than planned", "INVALID")


WORKLOAD = """\
name: short
seed: 1
prompts:
  source: {kind: mt-bench}
  input_tokens: {from: fixed, tokens: 16}
  output_tokens: {from: fixed, tokens: 8}
load:
  kind: open
  arrivals: {process: constant}
  phases: [{name: steady, shape: steady, rate_per_s: 10, duration: 3s}]
"""


def test_variants_are_started_measured_in_turns_and_compared(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(WORKLOAD)
    port = free_port()
    lines = [f"name: pace\nworkload: short.yaml\nurl: http://127.0.0.1:{port}\nrepeats: 3\nvariants:"]
    for name, step in (("base", "4000000"), ("slow", "12000000")):
        server = json.dumps(command("sim", "--port", str(port), "--model", "tiny", "--set", f"step_base_ns={step}"))
        hook = json.dumps([sys.executable, "-c", f"open('hooks.txt', 'a').write('{name} ')"])
        lines.append(f"  - name: {name}\n    command: {server}\n    before: {hook}\n    declared: {{step_ns: {step}}}")
    lines.append('compare: {primary: tpot.p50, require: ["tpot.p50<+50%"]}\n')
    (tmp_path / "plan.yaml").write_text("\n".join(lines))
    done = servebench(tmp_path, "experiment", "plan.yaml", timeout_s=PATIENCE_S)
    said = done.stdout + done.stderr
    assert (tmp_path / "hooks.txt").read_text() == "base slow slow base base slow "
    folder = next((tmp_path / "runs").glob("*-pace-*"))
    for name, least_ms, most_ms in (("base", 4.0, 12.0), ("slow", 12.0, None)):
        runs = sorted(path.parent for path in (folder / name).glob("*/run.json"))
        manifests = [json.loads((run / "run.json").read_text()) for run in runs]
        assert sorted(manifest["seed"] for manifest in manifests) == [0, 1, 2]
        found = (
            duckdb.connect()
            .execute(
                f"select median((end_ns - sent_ns) / 1e6 / 8), count(*) from '{folder}/{name}/*/requests/*.parquet'"
            )
            .fetchall()
        )
        assert found[0][1] == sum(manifest["rows"] for manifest in manifests)
        assert sum(manifest["planned"] for manifest in manifests) == 90
        assert found[0][1] > 45
        assert found[0][0] > least_ms
        assert most_ms is None or found[0][0] < most_ms
    if done.returncode == 3:  # a machine too busy to measure: nothing is compared, and each run says why
        assert any(word in said for word in CLIENT_FAULTS), said
        return
    assert done.returncode == 1, said
    assert "worse" in done.stdout
    assert "REJECTED" in done.stdout
    assert (folder / "comparison.txt").read_text().strip() == done.stdout.strip()


def test_a_variant_that_does_not_come_up_ends_the_experiment_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(WORKLOAD)
    broken = json.dumps([sys.executable, "-c", "print('no such model: x'); raise SystemExit(7)"])
    (tmp_path / "plan.yaml").write_text(
        f"name: broken\nworkload: short.yaml\nurl: http://127.0.0.1:{free_port()}\n"
        f"variants:\n  - {{name: base, command: {broken}}}\n  - {{name: other}}\n"
    )
    done = servebench(tmp_path, "experiment", "plan.yaml", timeout_s=PATIENCE_S)
    assert done.returncode == 2
    assert "variant base: its command ended with exit code 7" in done.stderr
    assert "no such model: x" in done.stderr


def test_a_dry_run_says_every_run_and_makes_none(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(WORKLOAD)
    (tmp_path / "plan.yaml").write_text(
        "name: dry\nworkload: short.yaml\nurl: http://127.0.0.1:9\nrepeats: 2\ncache: [cold, as-declared]\n"
        "variants: [{name: a}, {name: b}]\n"
    )
    done = servebench(tmp_path, "experiment", "plan.yaml", "--dry-run", timeout_s=PATIENCE_S)
    assert done.returncode == 0
    assert len(re.findall(r"^ +\d+  [ab]  \(seed [01]", done.stdout, re.MULTILINE)) == 8
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def engine() -> Iterator[str]:
    """Give the address of an engine with two places, each taken for 40 ms by an answer: 50 requests a second."""
    knobs = ("max_num_seqs=2", "step_base_ns=5000000", "decode_ns_per_sequence=0", "prefill_ns_per_token=0", "jitter=0")
    arguments = [part for knob in knobs for part in ("--set", knob)]
    with subprocess.Popen(
        command("sim", "--model", "tiny", *arguments), stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
        process.send_signal(signal.SIGTERM)


def test_a_capacity_is_found_below_saturation_and_written_down(tmp_path: Path, engine: str) -> None:
    done = servebench(
        tmp_path,
        "capacity",
        "--url",
        engine,
        "--slo",
        "ttft.p90=150ms",
        "--input-tokens",
        "16",
        "--output-tokens",
        "8",
        "--probes",
        "4",
        "--start",
        "32",
        "--requests",
        "200",
        timeout_s=PATIENCE_S,
    )
    assert done.returncode in {0, 3}, done.stdout + done.stderr
    folder = next((tmp_path / "runs").glob("*-capacity-*"))
    found = json.loads((folder / "capacity.json").read_text())[0]
    assert len(found["probes"]) >= 1
    for probe in found["probes"]:
        if probe["spoiled"] is None:
            assert probe["shares"]["TTFT p90 < 150 ms"]["n"] > 150
            rows = (
                duckdb.connect()
                .execute(f"select count(*) from '{folder}/{probe['run']}/requests/*.parquet'")
                .fetchall()
            )
            assert rows[0][0] > probe["shares"]["TTFT p90 < 150 ms"]["n"]
    if any(probe["spoiled"] for probe in found["probes"]):
        return
    assert found["status"] in {"found", "not resolved"}
    assert 20 < found["lo"] < found["hi"] < 70
    assert "CAPACITY" in done.stdout


def test_an_objective_that_one_user_misses_ends_the_search_at_once(tmp_path: Path, engine: str) -> None:
    done = servebench(
        tmp_path, "capacity", "--url", engine, "--slo", "e2e.p95=10ms", "--output-tokens", "8", timeout_s=PATIENCE_S
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NO CAPACITY: request p95 < 10 ms is missed at" in done.stdout
    assert len(list((tmp_path / "runs").glob("*-capacity-*/*/run.json"))) == 1


def test_an_interrupted_search_ends_with_what_it_has(tmp_path: Path, engine: str) -> None:
    arguments = command("capacity", "--url", engine, "--slo", "ttft.p95=150ms", "--output-tokens", "8")
    arguments += ["--start", "20", "--requests", "200"]
    words = tmp_path / "words.txt"
    with words.open("wb") as stderr:
        process = subprocess.Popen(
            arguments, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=stderr, env=environment(), start_new_session=True
        )
    while "probe 1" not in words.read_text():
        assert process.poll() is None, words.read_text()
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert json.loads(next((tmp_path / "runs").glob("*/capacity.json")).read_text())[0]["status"]
