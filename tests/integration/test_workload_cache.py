"""What a plan says of the prefix cache is what an engine with one reports: trace blocks, sessions, cold and warm."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.commands import command, environment
from tests.servers.simulator import StartSim, sim_starter

from servebench.workload.load import load_workload
from servebench.workload.prompts import PromptSet
from servebench.workload.reuse import reuse_by_phase
from servebench.workload.schedule import plan

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
SESSIONS = """\
name: sessions
prompts:
  source: {kind: trace}
  input_tokens: {from: trace}
  output_tokens: {from: fixed, tokens: 4}
  conversation: {turns: {from: trace}, pacing: trace}
load:
  kind: replay
  phases: [{name: rag, shape: replay, trace: {kind: ragpulse}, length: 30m, speed: 300}]
"""
LONG = """\
name: long
prompts:
  source: {kind: trace}
  input_tokens: {from: trace, max: 8192, over: drop}
  output_tokens: {from: fixed, tokens: 4}
load:
  kind: replay
  phases: [{name: chat, shape: replay, trace: {kind: mooncake}, length: 60s, speed: 8, spread: true}]
"""
WARM = """\
name: warmed
target: {cache: {state: warm, rate_per_s: 30, duration: 3s}}
prompts:
  source: {kind: mt-bench}
  input_tokens: {from: fixed, tokens: 900}
  output_tokens: {from: fixed, tokens: 4}
load: {kind: open, phases: [{name: main, shape: steady, rate_per_s: 15, duration: 4s}]}
"""
COLD = """\
name: cold
target: {cache: {state: cold}}
prompts:
  source: {kind: mt-bench}
  order: sequential
  input_tokens: {from: fixed, tokens: 900}
  output_tokens: {from: fixed, tokens: 4}
load:
  kind: open
  arrivals: {process: constant}
  phases:
    - {name: first, shape: steady, rate_per_s: 20, duration: 4s}
    - {name: again, shape: steady, rate_per_s: 20, duration: 4s}
"""


SHARED = """\
name: shared
target: {cache: {state: shared_prefix, share: 60%}}
prompts:
  source: {kind: mt-bench}
  input_tokens: {from: fixed, tokens: 900}
  output_tokens: {from: fixed, tokens: 4}
load: {kind: open, phases: [{name: main, shape: steady, rate_per_s: 15, duration: 3s}]}
"""


def test_a_shared_prefix_comes_from_the_cache_as_the_servers_own_log_has_it(
    tmp_path: Path, start_sim: StartSim
) -> None:
    sim = start_sim()
    cached_by_phase(tmp_path, f"http://127.0.0.1:{sim.port}", SHARED, str(tmp_path / "runs"))
    claim = claim_of(only(tmp_path / "runs"))
    truth = [record for record in sim.stop() if record.prompt_tokens and record.cached_tokens is not None]
    known = sum(record.cached_tokens or 0 for record in truth) / sum(record.prompt_tokens or 0 for record in truth)
    assert claim["state"] == "holds"
    assert claim["cached"] == pytest.approx(known, abs=0.001)
    assert 0.5 < known < 0.7


def only(folder: Path) -> Path:
    """Return the one run in a folder."""
    (found,) = folder.iterdir()
    return found


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.fixture
def url() -> Iterator[str]:
    """Return the address of a simulator whose cache holds a million tokens."""
    arguments = command("sim", "--preset", "fast", "--set", "max_model_len=16384")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening ")
        yield line.split()[1]
        process.send_signal(signal.SIGTERM)


def claim_of(run: Path) -> dict[str, Any]:
    """Return what became of the claim; its sentence, where it has one, stands in the verdict."""
    claim: dict[str, Any] = json.loads((run / "summary.json").read_bytes())["cache"]
    reasons = json.loads((run / "run.json").read_bytes())["verdict"]["reasons"]
    assert [text for text in reasons if "claimed" in text] == ([claim["sentence"]] if claim["sentence"] else [])
    return claim


def cached_by_phase(folder: Path, url: str, text: str, out: str) -> dict[str, float]:
    """Run a workload; return the share of input tokens that the server had cached, by phase, all requests being ok."""
    path = folder / "workload.yaml"
    path.write_text(text, encoding="utf-8")
    # The verdict is no matter here: a busy machine may make the client late.
    arguments = command("run", str(path), "--url", url, "--workers", "2", "--out", out, "--no-report", "--quiet")
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=150, check=False, env=environment())
    (run,) = Path(out).iterdir()
    rows = duckdb.execute(
        "select phase, count(*), count(*) filter (outcome = 'ok'), sum(cached_tokens) / sum(input_tokens) "
        f"from read_parquet('{run}/requests/*.parquet') group by phase"
    ).fetchall()
    assert rows, done.stderr
    assert all(sent == ok for _, sent, ok, _ in rows), done.stderr
    return {phase: float(share) for phase, _, _, share in rows}


def planned_by_phase(folder: Path) -> dict[str, float | None]:
    workload = load_workload(folder / "workload.yaml")
    prompts = PromptSet.load(workload.prompts)
    return reuse_by_phase(plan(workload, prompts), prompts)


@pytest.mark.parametrize("text", [SESSIONS, LONG], ids=["sessions", "long"])
def test_prompts_made_of_blocks_hit_the_cache_as_the_trace_did(tmp_path: Path, url: str, text: str) -> None:
    cached = cached_by_phase(tmp_path, url, text, str(tmp_path / "runs"))
    planned = planned_by_phase(tmp_path)
    assert set(cached) == set(planned)
    for phase, share in planned.items():
        assert share is not None
        assert 0.1 < share < 0.9
        # The server knows whole blocks of its own only, and has a tokenizer of its own.
        assert cached[phase] == pytest.approx(share, abs=0.02)


def test_after_a_warm_pass_the_server_knows_every_prompt(tmp_path: Path, url: str) -> None:
    cached = cached_by_phase(tmp_path, url, WARM, str(tmp_path / "runs"))
    assert planned_by_phase(tmp_path) == {"cache-warmup": 0.0, "main": 1.0}
    assert cached["cache-warmup"] < 0.02
    assert cached["main"] > 0.95
    claim = claim_of(only(tmp_path / "runs"))
    assert (claim["claim"], claim["state"], claim["basis"]) == ("warm", "holds", "answers")


def test_a_cold_run_finds_nothing_of_the_run_before_it(tmp_path: Path, url: str) -> None:
    for number in (1, 2):
        cached = cached_by_phase(tmp_path, url, COLD, str(tmp_path / f"runs-{number}"))
        assert cached["first"] < 0.02
        assert cached["again"] > 0.95
        run = only(tmp_path / f"runs-{number}")
        claim = claim_of(run)
        # It was cold, and knew every prompt when the second phase sent them all again.
        assert (claim["state"], round(claim["sent_before"], 2)) == ("repeated", 0.5)
        assert json.loads((run / "run.json").read_bytes())["observed"]["cache_salt"].startswith("[")


@pytest.mark.parametrize("text", [WARM, SHARED], ids=["warm", "shared"])
def test_a_claim_is_held_to_what_an_engine_without_a_cache_says(tmp_path: Path, start_sim: StartSim, text: str) -> None:
    sim = start_sim("--set", "prefix_cache=false")
    cached_by_phase(tmp_path, f"http://127.0.0.1:{sim.port}", text, str(tmp_path / "runs"))
    claim = claim_of(only(tmp_path / "runs"))
    assert not sum(record.cached_tokens or 0 for record in sim.stop())
    assert (claim["state"], claim["cached"]) == ("broken", 0)
