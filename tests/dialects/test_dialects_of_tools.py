"""Our dialect of our own run says what the tool itself prints of the same load on the same server.

`make test-dialects` installs the tools and runs this; a tool that is not there is skipped with the reason. What each
said is kept in $PEERS/observed for docs/dialects-observed.md.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dialects.tools import PEERS, PROMPT_TOKENS, REQUESTS, STREAMS, TOKENS, TOOLS, Numbers, Tool

from servebench.analysis.dialects import dialect_named, speak
from servebench.analysis.digest import examine

pytestmark = [pytest.mark.dialects, pytest.mark.timeout(1200)]

OFFSET_MS = 60.0
"""From sending until the server sees it a busy client takes this long; both events of a wait carry it once."""
ATTEMPTS = 3
"""A machine that is busy with other work spoils what a tool measures; a wrong formula disagrees every time."""
SPAN_MS, TOKEN_MS, RATE = 20.0, 1.5, 0.15
WORKLOAD = """
name: paced
seed: 7
target: {{endpoint: {endpoint}, model: mock}}
prompts:
  source: {{kind: mt-bench}}
  input_tokens: {{from: fixed, tokens: {prompt}}}
  output_tokens: {{from: fixed, tokens: {tokens}}}
load: {{kind: closed, users: {users}, requests: {requests}}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).with_name("paced.py")), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        yield started.stdout.readline().split()[1]
        started.terminate()


@pytest.fixture(scope="module")
def own_runs(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    endpoints = {tool.endpoint for tool in TOOLS if not tool.missing}
    return {endpoint: _own_run(server, endpoint, tmp_path_factory.mktemp("own")) for endpoint in endpoints}


def _own_run(url: str, endpoint: str, folder: Path) -> Path:
    workload = folder / "paced.yaml"
    workload.write_text(
        WORKLOAD.format(endpoint=endpoint, prompt=PROMPT_TOKENS, tokens=TOKENS, users=STREAMS, requests=REQUESTS)
    )
    command = [
        sys.executable,
        "-m",
        "servebench.cli",
        "run",
        str(workload),
        "--url",
        url,
        "--out",
        str(folder / "runs"),
    ]
    done = subprocess.run([*command, "--no-report"], capture_output=True, text=True, check=False)
    assert done.returncode in {0, 3}, done.stderr
    (run,) = (folder / "runs").iterdir()
    return run


def _ours(run: Path, name: str) -> Numbers:
    return {item.quantity.key: item.statistics for item in speak(examine(run).run, dialect_named(name)).spoken}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_the_dialect_agrees_with_the_tool(
    tool: Tool, server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if tool.missing:
        pytest.skip(tool.missing)
    ours = _ours(request.getfixturevalue("own_runs")[tool.endpoint], tool.name)
    apart = ["nothing was measured"]
    for attempt in range(ATTEMPTS):
        theirs = tool.measure(server, tmp_path / str(attempt))
        apart = list(_disagreements(tool, ours, theirs))
        if not apart:
            _keep(tool.name, ours, theirs)
            break
    assert apart == []


def _disagreements(tool: Tool, ours: Numbers, theirs: Numbers) -> Iterator[str]:
    """Yield what is further apart than the tool can measure."""
    middle, mean = ("median", "mean") if "median" in theirs["ttft"] else ("p50", "avg")
    spans = [numbers["e2e"][middle] - numbers["ttft"][middle] for numbers in (theirs, ours)]
    # Where TTFT is inside TPOT, what the client lost on the way is there too.
    inside = 1 / TOKENS if tool.name == "guidellm" else 0.0
    per_token = [numbers["tpot"][middle] - inside * numbers["ttft"][middle] for numbers in (theirs, ours)]
    pairs = {
        "TTFT": (theirs["ttft"][middle], pytest.approx(ours["ttft"][middle], abs=OFFSET_MS)),
        "first token to end": (spans[0], pytest.approx(spans[1], abs=SPAN_MS)),
        "TPOT": (per_token[0], pytest.approx(per_token[1], abs=TOKEN_MS)),
    }
    if "gap" in theirs:
        pairs["gap"] = (theirs["gap"][mean], pytest.approx(ours["gap"][mean], abs=TOKEN_MS))
    for key in {"requests", "output", "tokens"} & set(theirs):
        pairs[key] = (theirs[key]["value"], pytest.approx(ours[key]["value"], rel=RATE))
    yield from (
        f"{name}: the tool says {said}, our dialect {own}" for name, (said, own) in pairs.items() if said != own
    )


def _keep(name: str, ours: Numbers, theirs: Numbers) -> None:
    folder = PEERS / "observed"
    folder.mkdir(exist_ok=True)
    content: dict[str, Any] = {"tool": name, "theirs": theirs, "ours": ours}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1))
