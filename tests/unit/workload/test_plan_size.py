"""A long soak, many prompts and a large trace cost bounded memory: columns and bytes, no objects per request or row."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = r"""
import json, re, sys
from pathlib import Path
from servebench.workload.codec import decode_workload
from servebench.workload.prompts import PromptSet
from servebench.workload.schedule import plan
workload = decode_workload(sys.stdin.buffer.read())
prompts = PromptSet.load(workload.prompts)
schedule = plan(workload, prompts)
loaded = [name for name in ("pydantic", "yaml", "pandas", "plotly", "gevent", "locust") if name in sys.modules]
# Not ru_maxrss: that begins with what the parent of this process had.
peak = int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({"n": len(schedule), "prompts": len(prompts), "peak": peak, "loaded": loaded}))
"""

SOAK = """
name: soak
prompts:
  {prompts}
  input_tokens: {{from: trace, max: 4096}}
  output_tokens: {{from: trace}}
  trace: {{kind: azure}}
load:
  kind: open
  arrivals: {arrivals}
  phases:
    - {{name: soak, shape: diurnal, mean_per_s: {rate}, period: 1h, duration: 8h}}
"""

REPLAY = """
name: replay
prompts:
  source: {{kind: mt-bench}}
  input_tokens: {{from: trace}}
  output_tokens: {{from: trace}}
load: {{kind: replay, phases: [{{name: r, shape: replay, trace: {{kind: {kind}, path: "{path}"}}, length: 2s}}]}}
"""


def measured(workload: str) -> dict[str, int | list[str]]:
    """Plan a workload in a process of its own, as a worker does: from its JSON form."""
    from servebench.workload.codec import encode_workload
    from servebench.workload.load import parse_workload

    data = encode_workload(parse_workload(workload, "soak.yaml"))
    done = subprocess.run([sys.executable, "-c", MEASURE], input=data, capture_output=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, int | list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "arrivals",
    ["{process: poisson}", "{process: onoff, on: 10s, off: 20s, inside: {process: gamma, cv: 2}}"],
    ids=["poisson", "onoff"],
)
def test_eight_hours_with_a_million_requests_are_planned_below_200_mb(arrivals: str) -> None:
    found = measured(SOAK.format(prompts="source: {kind: mt-bench}", arrivals=arrivals, rate=34.75))
    assert isinstance(found["n"], int)
    assert isinstance(found["peak"], int)
    assert abs(found["n"] - 1_000_000) < 100_000
    assert found["peak"] < 200_000_000


def test_a_prompt_file_costs_little_more_than_its_text(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    row = json.dumps({"prompt": "say something about the weather of the day and why " * 4})
    path.write_text((row + "\n") * 300_000, encoding="utf-8")
    text = path.stat().st_size
    small = measured(SOAK.format(prompts="source: {kind: mt-bench}", arrivals="{process: poisson}", rate=0.1))
    large = measured(
        SOAK.format(prompts=f"source: {{kind: jsonl, path: {path}}}", arrivals="{process: poisson}", rate=0.1)
    )
    assert large["prompts"] == 300_000
    assert isinstance(large["peak"], int)
    assert isinstance(small["peak"], int)
    assert large["peak"] - small["peak"] < 1.5 * text + 300_000 * 60


def test_two_seconds_of_a_trace_of_a_million_rows_cost_the_numbers_of_its_rows_and_not_its_text(tmp_path: Path) -> None:
    rows = 1_000_000
    head = "timestamp,input_length,output_length,session_id\n"
    text = "".join(f"{row // 100}.{row % 100:02},100,10,conversation-{row // 50:012}\n" for row in range(rows))
    (tmp_path / "big.csv").write_text(head + text, encoding="utf-8")
    small = measured(REPLAY.format(path="builtin:azure-llm-2023-conv", kind="azure"))
    large = measured(REPLAY.format(path=tmp_path / "big.csv", kind="csv"))
    assert (large["n"], large["loaded"]) == (200, [])
    assert isinstance(large["peak"], int)
    assert isinstance(small["peak"], int)
    # Arrow and what it reads ahead are 45 MB of it, whatever the file; the whole table and pandas were 275.
    assert large["peak"] - small["peak"] < 150 * rows


def test_a_worker_plans_without_what_only_the_command_needs() -> None:
    assert measured(SOAK.format(prompts="source: {kind: oasst}", arrivals="{process: poisson}", rate=1))["loaded"] == []
