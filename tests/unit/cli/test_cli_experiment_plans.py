"""Each shipped plan is one that the command takes as a whole, and that somebody can wait for."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from servebench.cli.main import cli
from servebench.workload.load import load_workload

ROOT = Path(__file__).parents[3]
PLANS = sorted((ROOT / "experiments").glob("*.yaml"))
LONGEST_MIN = 180


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_shipped_plan_is_taken_whole_and_lasts_at_most_three_hours(path: Path) -> None:
    done = CliRunner().invoke(cli, ["experiment", str(path), "--dry-run"])
    assert done.exit_code == 0, done.output
    length = re.search(r"(\d+) runs of (\d+) variants, ([\d.]+) min of load", done.stdout)
    assert length is not None
    assert float(length[3]) <= LONGEST_MIN
    assert len(done.stdout.splitlines()) == 1 + int(length[1])


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_that_starts_triton_asks_as_triton_is_asked(path: Path) -> None:
    plan = yaml.safe_load(path.read_text(encoding="utf-8"))
    endpoint = load_workload(path.parent / plan["workload"]).target.endpoint
    starts_triton = any("tritonserver" in (variant.get("command") or []) for variant in plan["variants"])
    assert (endpoint == "triton-generate") is starts_triton


def test_there_is_a_plan_for_each_thing_that_people_try() -> None:
    assert {path.stem for path in PLANS} == {
        "batching-delay",
        "instances",
        "max-sequences",
        "prefix-caching",
        "quantisation",
        "response-cache",
        "speculative-decoding",
    }
