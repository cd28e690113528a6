"""Every preset, squeezed to a second by its own scale, sends all it plans and is answered each time."""

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.nodes import lost_of, manifest_of, rows_of
from tests.servers.simulator import sim_starter

from servebench.core.units import NS_PER_S, format_duration, parse_duration_ns
from servebench.workload.document import Document, Dumper, document_of
from servebench.workload.load import load_workload
from servebench.workload.schedule import PhasePlan, Schedule, plan

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "workloads").glob("*.yaml"))
PHASE_NS = NS_PER_S // 2
REQUESTS = 12
"""Planned in each phase of the short form, about."""
TOKENS = 8
TIMES = ("duration", "step_duration", "every", "length", "before", "recovery", "period", "start")
RATES = ("rate_per_s", "base_per_s", "peak_per_s", "mean_per_s", "from_per_s", "to_per_s")


class Ran(NamedTuple):
    """A short form that was run."""

    name: str
    planned: Schedule
    code: int
    said: str
    manifest: dict[str, Any]
    rows: list[dict[str, Any]]


def test_a_short_form_of_every_preset_sends_all_it_plans_and_gets_every_answer(tmp_path: Path) -> None:
    with sim_starter(tmp_path) as start, ThreadPoolExecutor(2) as two:
        url = f"http://127.0.0.1:{start(preset='fast').port}"
        found = list(two.map(partial(run_short_form, folder=tmp_path, url=url), PRESETS))
    assert len(found) >= 10
    for ran in found:
        context = f"{ran.name}: {ran.said}"
        planned, manifest, rows = ran.planned, ran.manifest, ran.rows
        assert all(phase.planned > 0 for phase in planned.phases), context
        assert manifest["planned"] == manifest["planned_total"] == len(planned), context
        assert sorted(row["seq"] for row in rows) == list(range(len(planned))), context
        assert lost_of(manifest) == set(), context
        assert {row["outcome"] for row in rows} == {"ok"}, context
        assert {row["phase"] for row in rows} == set(planned.phase_names), context
        by_seq = sorted(rows, key=lambda row: row["seq"])
        assert [row["turn"] for row in by_seq] == planned.turn.tolist(), context
        assert all(1 <= row["output_tokens"] <= TOKENS for row in rows), context
        assert manifest["stop_cause"] == "finished", context
        # Late sending is this machine's; with all rows there and answered, nothing else may spoil the run.
        reasons = " ".join(manifest["verdict"]["reasons"])
        too_slow = "the client was too slow" in reasons or "spoiled by this client" in reasons
        assert ran.code in {0, 1} or (ran.code == 3 and too_slow), context


def run_short_form(path: Path, *, folder: Path, url: str) -> Ran:
    """Run the short form of a preset in a folder of its own, as its user would."""
    own = folder / path.stem
    own.mkdir()
    short = shortened(path, own)
    quiet = ("--no-report", "--no-compact", "--progress", "none", "--show-invalid")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "servebench.cli", "run", str(short), "--url", url),
            *("--workers", "1", "--out", str(own / "runs"), *quiet),
        ],
        cwd=own,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (own / "runs").exists(), done.stderr
    (run,) = (child for child in (own / "runs").iterdir() if not child.name.startswith("."))
    return Ran(
        path.stem,
        plan(load_workload(short)),
        done.returncode,
        done.stderr + done.stdout,
        manifest_of(run),
        rows_of(run),
    )


def shortened(path: Path, folder: Path) -> Path:
    """Write a preset's short form: each phase squeezed in time and thinned to some requests, answers cut."""
    workload = load_workload(path)
    phases, document = plan(workload).phases, document_of(workload)
    squeeze = PHASE_NS / max(phase.end_ns - phase.start_ns for phase in phases)
    if "arrivals" in document["load"]:
        document["load"]["arrivals"] = squeezed_law(document["load"]["arrivals"], squeeze)
    for phase, planned in zip(document["load"]["phases"], phases, strict=True):
        (replayed if phase["shape"] == "replay" else squeezed)(phase, planned)
    lengths = document["prompts"]["output_tokens"]
    lengths |= {"tokens": TOKENS} if lengths["from"] == "fixed" else {"max": TOKENS, "over": "clip"}
    short = folder / path.name
    short.write_text(yaml.dump(document, Dumper=Dumper), encoding="utf-8")
    return short


def squeezed(phase: Document, planned: PhasePlan) -> None:
    """Give a phase of rates another length and number of requests; its form stays."""
    time = PHASE_NS / (planned.end_ns - planned.start_ns)
    rate = REQUESTS / planned.planned / time
    for key in TIMES:
        if key in phase:
            phase[key] = format_duration(round(parse_duration_ns(phase[key]) * time))
    for key in RATES:
        if key in phase:
            phase[key] *= rate
    if "rates_per_s" in phase:
        phase["rates_per_s"] = [value * rate for value in phase["rates_per_s"]]


def replayed(phase: Document, planned: PhasePlan) -> None:
    """Take the beginning of a replayed phase that holds about so many requests, and play it so much faster."""
    recorded_ns = (planned.end_ns - planned.start_ns) * phase.get("speed", 1)
    seconds = math.ceil(REQUESTS / planned.planned * recorded_ns / NS_PER_S)
    phase |= {"length": f"{seconds}s", "speed": seconds * NS_PER_S / PHASE_NS}


def squeezed_law(law: Document, time: float) -> Document:
    """Return a law whose episodes are as many as before in the time that is left."""
    found = dict(law)
    for key in ("on", "off"):
        if key in law:
            found[key] = format_duration(round(parse_duration_ns(law[key]) * time))
    return found
