"""What single engines have and others lack: Triton's response cache and batches, LiteLLM's limits of rate."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.engines.agreement import difference, rows, settled
from tests.engines.engines import LITELLM, TRITON, Engine
from tests.engines.installing import UnavailableError
from tests.engines.serving import Serving, run_folder, servebench, serving

from servebench.analysis.engine_side import server_side
from servebench.analysis.page.server import server_tables
from servebench.analysis.source import load_run

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.environ.get("ENGINES") == "always", reason="ENGINES=always: the two small engines only"),
]


def running(engine: Engine, folder: Path) -> Iterator[Serving]:
    try:
        with serving(engine, folder / "of") as one:
            yield one
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    yield from running(TRITON, tmp_path_factory.mktemp("triton"))


@pytest.fixture(scope="module")
def litellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    yield from running(LITELLM, tmp_path_factory.mktemp("litellm"))


def loaded(one: Serving, folder: Path, model: str, requests: dict[str, object], users: int, number: int) -> Path:
    """Load a model with closed users and return the run's folder; its verdict is not asked for."""
    file = folder / "workload.yaml"
    file.write_text(
        f"""\
name: {one.engine.name}-{model}
seed: 7
target: {{endpoint: {one.engine.endpoint}}}
prompts:
  source: {{kind: mt-bench}}
  input_tokens: {{from: fixed, tokens: 48}}
  output_tokens: {{from: fixed, tokens: 24}}
requests: {json.dumps(requests)}
load: {{kind: closed, users: {users}, requests: {number}, think_time: 200ms}}
"""
    )
    arguments = ("run", str(file), "--url", one.url, "--model", model, "--workers", "1")
    done = servebench(folder, *arguments, SERVEBENCH_METRICS_URLS=one.metrics_url)
    assert done.returncode in {0, 3}, done.stdout + done.stderr
    return run_folder(folder)


def test_tritons_response_cache_and_batches_are_read_as_the_server_counts_them(triton: Serving, tmp_path: Path) -> None:
    before = settled(triton)
    requests = {"stream": False, "params": {"input_name": "prompt"}}
    run = loaded(triton, tmp_path, "whole", requests, users=8, number=240)
    after = settled(triton)
    answers = rows(run, "outcome, prompt_id, (end_ns - sent_ns) / 1e6")
    hits, misses, computed, batches = (
        difference(before, after, f"nv_{name}_total")
        for name in (
            "cache_num_hits_per_model",
            "cache_num_misses_per_model",
            "inference_count",
            "inference_exec_count",
        )
    )
    assert {row[0] for row in answers} == {"ok"}
    assert hits + computed == len(answers) == difference(before, after, TRITON.counters.answered)
    prompts = len({row[1] for row in answers})
    assert hits >= len(answers) - prompts - 8, "a prompt that was answered before comes from the cache"
    assert prompts <= misses <= computed, "a prompt that two asked for at once is computed twice and missed once"
    assert batches < computed, "requests that wait at the same time are computed at once"

    server_ms = difference(before, after, "nv_inference_request_duration_us_total") / len(answers) / 1e3
    client_ms = float(np.mean([row[2] for row in answers]))
    assert client_ms > server_ms - 1

    side = server_side(load_run(run))
    (counts,) = (table for table in server_tables(side) if table.name == "server-counts")
    told = dict(zip(counts.head, counts.rows[0], strict=True))
    assert float(told["answers from its cache, %"]) == pytest.approx(100 * hits / len(answers), abs=10)
    assert float(told["requests a batch"]) == pytest.approx(computed / batches, rel=0.3)
    assert "answers from its cache" in (run / "report.html").read_text()
    parts = {part.name: round(part.ms, 1) for part in side.splits[0].parts}
    counted = f"{hits:.0f} hits, {computed:.0f} computed in {batches:.0f} batches"
    print(f"\ntriton: {len(answers)} answers of {prompts} prompts: {counted}")
    print(f"triton: report {told}, E2E client {client_ms:.1f} ms, server {server_ms:.1f} ms, parts {parts}")


def test_every_refused_attempt_is_a_row_and_the_gateway_counts_it(litellm: Serving, tmp_path: Path) -> None:
    before = settled(litellm)
    run = loaded(litellm, tmp_path, "limited", {"retries": {"max": 2, "pause": "100ms"}}, users=1, number=4)
    after = settled(litellm)
    attempts = rows(run, "seq, attempt, outcome, http_status, retry_after_s, error_message")
    assert sorted((row[0], row[1]) for row in attempts) == [(seq, attempt) for seq in range(4) for attempt in range(3)]
    assert {row[2:5] for row in attempts} == {("http_error", 429, None)}
    assert all(row[5].startswith("litellm.RateLimitError") for row in attempts)
    assert difference(before, after, "litellm_deployment_failure_responses_total") == 12


def test_a_retry_waits_as_long_as_the_limit_of_the_gateway_says(litellm: Serving, tmp_path: Path) -> None:
    run = loaded(litellm, tmp_path, "narrow", {"retries": {"max": 1, "statuses": [429]}}, users=1, number=7)
    attempts = rows(run, "seq, attempt, outcome, http_status, retry_after_s, sent_ns, end_ns")
    first = {row[0]: row for row in attempts if row[1] == 0}
    again = [row for row in attempts if row[1] == 1]
    assert len(first) == 7
    assert len(again) >= 1, "three a minute, and seven asked one after the other"
    assert {row[0] for row in again} == {row[0] for row in first.values() if row[2] != "ok"}
    for row in again:
        refused = first[row[0]]
        assert refused[2:5] == ("http_error", 429, 60.0)
        assert row[5] - refused[6] >= 60e9
        assert row[2] == "ok"
    waits = " ".join(f"{(row[5] - first[row[0]][6]) / 1e9:.2f}" for row in again)
    print(f"\nlitellm: {len(again)} of 7 got Retry-After 60 and were sent again after s: {waits}")
