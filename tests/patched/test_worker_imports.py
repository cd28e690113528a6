"""What a worker process loads before its first run: every module costs its start CPU, on every node."""

import json
import subprocess
import sys

import pytest

THIRD_PARTY = {"httptools", "msgspec", "numpy", "pyarrow"}
"""What servebench may bring into a worker besides what Locust has loaded already."""

OUR_PACKAGES = {
    "acceptance",
    "core",
    "inquiry.secrets",
    "inquiry.way",
    "loadgen.channel",
    "loadgen.compat",
    "loadgen.desk.choices",
    "loadgen.locustfile",
    "loadgen.membership",
    "loadgen.messages",
    "loadgen.options",
    "loadgen.part_writer",
    "loadgen.plugin",
    "loadgen.runclock",
    "loadgen.scrape.pages",
    "loadgen.settings",
    "loadgen.sketch",
    "loadgen.transport",
    "loadgen.trim",
    "loadgen.users",
    "loadgen.worker",
    "metrics",
    "shards",
    "wire",
    "workload",
}
"""Packages, or single modules of those of which a worker needs no more."""

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
    assert tops - {"servebench"} == THIRD_PARTY


def test_a_worker_loads_nothing_that_only_a_master_or_a_command_needs(loaded: set[str]) -> None:
    ours = {name.removeprefix("servebench.") for name in loaded if name.startswith("servebench.")}
    parents = {".".join(name.split(".")[:length]) for name in OUR_PACKAGES for length in range(1, name.count(".") + 1)}
    inside = {name for name in ours if any(name == one or name.startswith(one + ".") for one in OUR_PACKAGES)}
    assert ours - parents - inside == set()
    assert {one for one in OUR_PACKAGES if not any((name + ".").startswith(one + ".") for name in ours)} == set()
