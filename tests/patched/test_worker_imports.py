"""What a worker process loads before its first run: every module costs its start CPU, on every node."""

import json
import subprocess
import sys

import pytest

THIRD_PARTY = {"httptools", "msgspec", "numpy", "pyarrow"}
"""What servebench may bring into a worker besides what Locust has loaded already."""

TAKEN_WHERE_FOUND = {"cloudpickle"}
"""What pyarrow takes for its pickles where it is installed: for the test cluster, never for servebench."""

NOT_FOR_WORKERS = ("analysis", "cli", "loadgen.desk", "loadgen.master", "loadgen.scrape", "sim", "telemetry")

OPTIONS = {"loadgen.desk", "loadgen.desk.choices", "loadgen.scrape", "loadgen.scrape.pages"}
"""What of those the options and settings of every process need."""

LIST = """
import json, sys
import locust.main
before = set(sys.modules)
import servebench.loadgen.locustfile
print(json.dumps(sorted(set(sys.modules) - before)))
print(json.dumps(sorted({name.partition(".")[0] for name in before})))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Return the modules that the locustfile loads after Locust, the standard library's and Locust's left out."""
    lines = subprocess.run([sys.executable, "-c", LIST], check=True, capture_output=True, text=True).stdout.splitlines()
    known = {*sys.stdlib_module_names, *json.loads(lines[1])}
    return {name for name in json.loads(lines[0]) if name.partition(".")[0] not in known}


def test_a_worker_loads_no_other_library_than_those_named_here(loaded: set[str]) -> None:
    tops = {name.partition(".")[0] for name in loaded if not name.startswith("_")}
    assert tops - {"servebench"} - TAKEN_WHERE_FOUND == THIRD_PARTY


def test_a_worker_loads_nothing_that_only_a_master_or_a_command_needs(loaded: set[str]) -> None:
    ours = {name.removeprefix("servebench.") for name in loaded if name.startswith("servebench.")}
    assert "loadgen.worker.session" in ours
    assert {name for name in ours for one in NOT_FOR_WORKERS if f"{name}.".startswith(f"{one}.")} == OPTIONS
