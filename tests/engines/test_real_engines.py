"""Runs against servers that nobody here wrote: their own counters are the truth.

    make test-engines                 # all; each is skipped with its reason where it cannot be installed
    make test-engines ENGINES=always  # the two that CI runs

A row of observed numbers is printed for each check (`pytest -s`); docs/engines.md keeps them.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.agreement import counters_agree, difference, rows, settled
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


def test_check_recognises_the_server_and_gives_a_target(engine: Serving, tmp_path: Path) -> None:
    done = servebench(tmp_path, "check", engine.url, "--endpoint", engine.engine.endpoint, "--model", engine.model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert engine.engine.said.lower() in done.stdout.lower()
    assert f"endpoint: {engine.engine.endpoint}" in done.stdout


CLOSED = "  kind: closed\n  users: {users}\n  requests: {requests}\n"
STEADY = """\
  kind: open
  arrivals: {{process: constant}}
  phases: [{{name: steady, shape: steady, rate_per_s: 4, duration: {seconds}s}}]
"""
BURST = """\
  kind: open
  arrivals: {{process: poisson}}
  phases:
    - {{name: warmup, shape: steady, rate_per_s: {base}, duration: 5s, measured: false}}
    - {{name: before, shape: steady, rate_per_s: {base}, duration: 4s}}
    - {{name: burst, shape: steady, rate_per_s: {peak}, duration: 2s}}
    - {{name: after, shape: steady, rate_per_s: {base}, duration: 4s}}
"""


@pytest.mark.parametrize("load", ["users-1", "users-16", "burst"])
def test_tokens_and_times_agree_with_the_servers_own_counters(engine: Serving, tmp_path: Path, load: str) -> None:
    kind = engine.engine
    forms = {
        "users-1": CLOSED.format(users=1, requests=6) + "  warmup_requests: 4\n",
        "users-16": CLOSED.format(users=16, requests=32) + "  warmup_requests: 16\n",
        "burst": BURST.format(base=1, peak=4),
    }
    file = workload(tmp_path, kind, forms[load])
    has_counters = bool(kind.counters.names)
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
        print(f"\n{kind.name}: {counters_agree(kind, before, after, runs, answers) | {'load': load}}")
    if spoiled:
        pytest.skip(f"what was counted agrees, but this machine let no run be VALID: {spoiled}")


def test_answers_that_are_given_up_are_seen_by_the_server(engine: Serving, tmp_path: Path) -> None:
    counts = engine.engine.counters
    file = workload(tmp_path, engine.engine, CLOSED.format(users=2, requests=8), total=engine.engine.give_up_after)
    before = settled(engine) if counts.names else {}
    done = servebench(tmp_path, "run", file, "--url", engine.url, "--model", engine.model, "--workers", "1")
    assert done.returncode in {0, 3}, done.stdout + done.stderr
    after = settled(engine) if counts.names else {}
    ended = rows(run_folder(tmp_path), "outcome, error_class, headers_ns")
    given_up = [row for row in ended if row[0] == "timeout"]
    assert len(given_up) == 8
    if counts.cancelled:
        seen = difference(before, after, counts.cancelled)
    elif counts.begun:
        answered = difference(before, after, counts.answered) if counts.answered in after else 0.0
        seen = difference(before, after, counts.begun) - answered
    else:
        pytest.skip(f"8 were given up; {engine.engine.name} does not count how many it saw leave")
    print(f"\n{engine.engine.name}: given up {len(given_up)}, the server counts {seen:.0f} cancellations")
    assert seen == len(given_up)


def test_a_server_that_dies_and_returns_costs_requests_never_the_run(engine: Serving, tmp_path: Path) -> None:
    seconds = 10 + engine.engine.back_s
    file = workload(tmp_path, engine.engine, STEADY.format(seconds=seconds))
    arguments = ("run", file, "--url", engine.url, "--model", engine.model, "--workers", "1", "--keep-going")
    with started(tmp_path, *arguments, SERVEBENCH_METRICS_URLS=engine.metrics_url) as (process, words):
        await_words(words, "steady began|steady 0%", process)
        time.sleep(3)
        engine.kill()
        time.sleep(1)
        engine.start()
        assert process.wait(180) in {0, 3}, words.read_text()
    run = run_folder(tmp_path)
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["state"] == "merged"
    outcomes = [row[0] for row in rows(run, "outcome")]
    assert len(outcomes) == 4 * seconds
    failed = sorted(set(outcomes) - {"ok"})
    print(f"\n{engine.engine.name}: killed: { ({name: outcomes.count(name) for name in ['ok', *failed]}) }")
    assert set(failed) <= {"connect_error", "truncated", "stream_error", "http_error", "malformed"}
    assert failed, "the kill was not noticed"
    last_failure = max(index for index, outcome in enumerate(outcomes) if outcome != "ok")
    assert set(outcomes[last_failure + 1 :]) == {"ok"}
    assert len(outcomes) - last_failure > 4, "no recovery"
    if not engine.engine.has_metrics:
        return
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
