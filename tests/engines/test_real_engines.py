"""Runs against servers that nobody here wrote: their own counters are the truth.

    make test-engines                 # all; each is skipped with its reason where it cannot be installed
    make test-engines ENGINES=always  # the two that CI runs

A row of observed numbers is printed for each check (`pytest -s`); docs/engines.md keeps them.
"""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.engines.engines import ALWAYS, MORE, Engine
from tests.engines.installing import UnavailableError
from tests.engines.serving import Serving, await_words, events, run_folder, servebench, serving, started

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1500)]

CHOSEN = ALWAYS if os.environ.get("ENGINES") == "always" else (*ALWAYS, *MORE)
CLIENT_FAULTS = ("the client was too slow", "spoiled by this client", "send lag p99")
"""Words of the reasons that are the machine's, not the product's."""


PATIENT = {"first_token": "200s", "idle": "100s"}
"""A small model on a busy core may take its time; its answers are still the truth about tokens."""


@pytest.fixture(scope="module", params=CHOSEN, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Give a running engine."""
    kind: Engine = request.param
    try:
        with serving(kind, tmp_path_factory.mktemp("engine") / "of") as one:
            yield one
    except UnavailableError as error:
        pytest.skip(str(error))


def workload(folder: Path, engine: Engine, load: str, **timeouts: str) -> str:
    """Write a workload of short prompts and answers; return its path."""
    asked = json.dumps({"params": dict(engine.params), "timeouts": {**PATIENT, **timeouts}})
    path = folder / "workload.yaml"
    path.write_text(
        f"""\
name: {engine.name}
seed: 7
target: {{endpoint: {engine.endpoint}}}
prompts:
  source: {{kind: mt-bench}}
  input_tokens: {{from: fixed, tokens: 48}}
  output_tokens: {{from: fixed, tokens: 24}}
requests: {asked}
load:
{load}"""
    )
    return str(path)


def valid_run(one: Serving, folder: Path, file: str, *arguments: str) -> str:
    """Run a workload until the machine lets it be VALID, five times at most; return why it never was, "" where it was.

    Only the client's own lag is such a reason: anything else fails at once.
    """
    reasons = ""
    for _ in range(5):
        done = servebench(folder, "run", file, "--url", one.url, "--model", one.model, "--workers", "1", *arguments)
        told = done.stdout + done.stderr
        if done.returncode == 0:
            return ""
        assert done.returncode == 3, told
        reasons = " ".join(json.loads((run_folder(folder) / "run.json").read_text())["verdict"]["reasons"])
        assert any(word in reasons for word in CLIENT_FAULTS), told
    return reasons


def rows(run: Path, columns: str) -> list[tuple[Any, ...]]:
    """Return columns of all requests of a run."""
    return duckdb.connect().execute(f"select {columns} from '{run}/requests/**/*.parquet' order by seq").fetchall()


def difference(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float:
    """Return by how much a counter grew."""
    assert name in after, f"{name} is not among the server's metrics"
    return after[name] - before.get(name, 0.0)


def histogram(before: Mapping[str, float], after: Mapping[str, float], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return upper bounds and cumulated counts of what a histogram took in between."""
    start = f"{name}_bucket{{le="
    bounds = np.array(sorted(float(key[len(start) : -1]) for key in after if key.startswith(start)))
    counts = np.array([difference(before, after, f"{start}{bound}}}") for bound in bounds])
    return bounds, counts


def settled(one: Serving) -> dict[str, float]:
    """Return the server's numbers once they no longer change: some count a request after its answer has ended."""
    names = one.engine.counters.names
    page = one.samples()
    while True:
        time.sleep(0.5)
        again = one.samples()
        if all(again.get(name) == page.get(name) for name in names):
            return again
        page = again


def test_check_recognises_the_server_and_gives_a_target(engine: Serving, tmp_path: Path) -> None:
    done = servebench(tmp_path, "check", engine.url, "--endpoint", engine.engine.endpoint, "--model", engine.model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert engine.engine.said.lower() in done.stdout.lower()
    assert f"endpoint: {engine.engine.endpoint}" in done.stdout


CLOSED = "  kind: closed\n  users: {users}\n  requests: {requests}\n"
STEADY = """\
  kind: open
  arrivals: {process: constant}
  phases: [{name: steady, shape: steady, rate_per_s: 4, duration: 22s}]
"""
BURST = """\
  kind: open
  arrivals: {{process: poisson}}
  phases:
    - {{name: before, shape: steady, rate_per_s: {base}, duration: 4s}}
    - {{name: burst, shape: steady, rate_per_s: {peak}, duration: 2s}}
    - {{name: after, shape: steady, rate_per_s: {base}, duration: 4s}}
"""


@pytest.mark.parametrize("load", ["users-1", "users-16", "burst"])
def test_tokens_and_times_agree_with_the_servers_own_counters(engine: Serving, tmp_path: Path, load: str) -> None:
    kind = engine.engine
    forms = {
        "users-1": CLOSED.format(users=1, requests=6),
        "users-16": CLOSED.format(users=16, requests=32),
        "burst": BURST.format(base=1, peak=4),
    }
    file = workload(tmp_path, kind, forms[load])
    has_counters = bool(kind.counters.output_tokens)
    before = settled(engine) if has_counters else {}
    spoiled = valid_run(engine, tmp_path, file)
    after = settled(engine) if has_counters else {}
    runs = [path for path in (tmp_path / "runs").iterdir() if (path / "run.json").exists()]
    answers = [
        row for path in runs for row in rows(path, "outcome, streamed, input_tokens, output_tokens, token_source")
    ]
    assert len(answers) >= 6
    assert {row[0] for row in answers} == {"ok"}
    assert all(row[1] for row in answers)
    if kind.exact_lengths:
        assert {row[3] for row in answers} == {24}
    if has_counters:
        print(f"\n{kind.name}: {_counters_agree(kind, before, after, runs, answers) | {'load': load}}")
    if spoiled:
        pytest.skip(f"what was counted agrees, but this machine let no run be VALID: {spoiled}")


def _counters_agree(
    kind: Engine,
    before: Mapping[str, float],
    after: Mapping[str, float],
    runs: list[Path],
    answers: list[tuple[Any, ...]],
) -> dict[str, object]:
    """Assert that the server counted what the rows say; return what was seen."""
    assert {row[4] for row in answers} == {"usage"}
    assert sum(row[3] for row in answers) == difference(before, after, kind.counters.output_tokens)
    taken_in = sum(difference(before, after, name) for name in kind.counters.input_tokens)
    assert sum(row[2] for row in answers) == taken_in
    told: dict[str, object] = {
        "requests": len(answers),
        "tokens in": taken_in,
        "tokens out": sum(row[3] for row in answers),
    }
    if len(runs) == 1:
        for name, column in (("ttft", "ttft"), ("e2e", "e2e")):
            told.update(_times_agree(before, after, runs[0], getattr(kind.counters, name), column))
    return told


TOKENS = "('content', 'reasoning', 'tool', 'refusal')"
FIRST_TOKEN = f"list_min([pair[1] for pair in list_zip(chunk_ns, chunk_kind) if pair[2] in {TOKENS}])"
COLUMNS = {"ttft": f"({FIRST_TOKEN} - sent_ns) / 1e9", "e2e": "(end_ns - sent_ns) / 1e9"}


def _times_agree(
    before: Mapping[str, float], after: Mapping[str, float], run: Path, name: str, column: str
) -> dict[str, str]:
    """Assert that the client's median and p90 lie in the server's buckets, the network's share added.

    The network's share is what the client's mean has more than the server's: connecting, both kernels, the server's own
    HTTP. It must not be negative, since nothing reaches a client before the server has sent it. Returns what was seen.
    """
    if not name:
        return {}
    seconds = np.array([row[0] for row in rows(run, COLUMNS[column])])
    bounds, counts = histogram(before, after, name)
    assert counts[-1] == len(seconds)
    server_mean = difference(before, after, f"{name}_sum") / len(seconds)
    share = float(seconds.mean()) - server_mean
    assert share > -0.001, f"{column}: client {seconds.mean():.4f} s, server {server_mean:.4f} s"
    for q in (0.5, 0.9):
        value = float(np.quantile(seconds, q, method="inverted_cdf"))
        index = int(np.searchsorted(counts, np.ceil(q * len(seconds))))
        low, high = (bounds[index - 1] if index else 0.0), bounds[index]
        assert low <= value <= high + 3 * share + 0.001, f"{column} p{q:.0%}: {value} not in {low}..{high} + {share}"
    return {f"{column} client / server mean ms": f"{seconds.mean() * 1e3:.1f} / {server_mean * 1e3:.1f}"}


def test_answers_that_are_given_up_are_seen_by_the_server(engine: Serving, tmp_path: Path) -> None:
    counter = engine.engine.counters.cancelled
    if not counter:
        pytest.skip(f"{engine.engine.name} counts no cancellations")
    file = workload(tmp_path, engine.engine, CLOSED.format(users=2, requests=8), total="90ms")
    before = settled(engine)
    done = servebench(tmp_path, "run", file, "--url", engine.url, "--model", engine.model, "--workers", "1")
    assert done.returncode in {0, 3}, done.stdout + done.stderr
    after = settled(engine)
    ended = rows(run_folder(tmp_path), "outcome, error_class, headers_ns")
    given_up = [row for row in ended if row[0] == "timeout"]
    assert len(given_up) == 8
    seen = difference(before, after, counter)
    print(f"\n{engine.engine.name}: given up {len(given_up)}, the server counts {seen:.0f} cancellations")
    assert seen == len(given_up)


def test_a_server_that_dies_and_returns_costs_requests_never_the_run(engine: Serving, tmp_path: Path) -> None:
    file = workload(tmp_path, engine.engine, STEADY)
    arguments = ("run", file, "--url", engine.url, "--model", engine.model, "--workers", "1", "--keep-going")
    with started(tmp_path, *arguments, SERVEBENCH_METRICS_URLS=engine.metrics_url) as (process, words):
        await_words(words, "steady began|steady 0%", process)
        time.sleep(3)
        engine.kill()
        time.sleep(1)
        engine.start()
        assert process.wait(120) in {0, 3}, words.read_text()
    run = run_folder(tmp_path)
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["state"] == "merged"
    outcomes = [row[0] for row in rows(run, "outcome")]
    assert len(outcomes) == 88
    failed = sorted(set(outcomes) - {"ok"})
    print(f"\n{engine.engine.name}: killed: { ({name: outcomes.count(name) for name in ['ok', *failed]}) }")
    assert set(failed) <= {"connect_error", "truncated", "stream_error", "http_error", "malformed"}
    assert failed, "the kill was not noticed"
    last_failure = max(index for index, outcome in enumerate(outcomes) if outcome != "ok")
    assert set(outcomes[last_failure + 1 :]) == {"ok"}
    assert len(outcomes) - last_failure > 4, "no recovery"
    told = [str(event["text"]) for event in events(run) if event["kind"] == "engine"]
    assert any("began again" in text or "no metrics" in text for text in told), told


def test_an_interrupted_run_leaves_the_server_idle(engine: Serving, tmp_path: Path) -> None:
    file = workload(tmp_path, engine.engine, CLOSED.format(users=4, requests=4000))
    with started(tmp_path, "run", file, "--url", engine.url, "--model", engine.model, "--workers", "1") as (
        process,
        words,
    ):
        await_words(words, "sent [1-9]", process)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    assert {row[0] for row in rows(run_folder(tmp_path), "outcome")} <= {"ok", "cancelled"}
    done = servebench(
        tmp_path,
        "run",
        workload(tmp_path, engine.engine, CLOSED.format(users=1, requests=2)),
        "--url",
        engine.url,
        "--model",
        engine.model,
    )
    assert done.returncode in {0, 3}, done.stdout + done.stderr
