"""Know the command `plan`: what a workload would send, without sending it."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servebench.cli.base import command, option, say, show
from servebench.cli.figures import UNDEFINED, count, figure, minutes
from servebench.cli.run import QuickForm, chosen_workload
from servebench.core.errors import InputError
from servebench.core.units import NS_PER_S

if TYPE_CHECKING:
    from servebench.workload.describe import LengthSummary, PhaseSummary
    from servebench.workload.model import Workload
    from servebench.workload.schedule import Schedule

_NONE = -1
"""How a schedule writes "none" in its int32 columns."""


@command(
    "plan",
    "Show what a workload would send, without sending it.",
    examples=("plan builtin:demo", "plan workloads/bursty.yaml --out plan.parquet"),
)
@click.argument("workload", type=click.Path(path_type=Path))
@option("--seed", type=click.IntRange(0), help="Another seed than the workload's.")
@option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the schedule as Parquet.")
@option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def plan(*, workload: Path, seed: int | None, out: Path | None, as_json: bool) -> None:
    """Plan a workload: arrivals, rates, burstiness, lengths, prompts and the schedule hash of what would be sent.

    Every worker plans the same schedule; the hash in a run's run.json proves it.
    """
    from servebench.workload.describe import describe
    from servebench.workload.prompts import PromptSet
    from servebench.workload.reuse import reuse_of
    from servebench.workload.schedule import plan as make_schedule

    loaded = chosen_workload(workload, QuickForm(), seed=seed)
    if loaded.closed is not None and out is None:
        if as_json:
            click.echo(json.dumps(_closed_json(loaded), indent=2))
        else:
            show("\n".join(closed_lines(loaded)))
        return
    prompts = PromptSet.load(loaded.prompts)
    schedule = make_schedule(loaded, prompts)
    phases, talk = describe(schedule), loaded.prompts.conversation
    # What turns repeat of their own history is known only when the answers are.
    told = talk is None or talk.history == "none"
    reuse = reuse_of(schedule, prompts) if told else None
    if as_json:
        click.echo(_json(loaded, schedule, phases, reuse))
    else:
        show("\n".join(plan_lines(loaded, schedule, phases, reuse)))
    if out is not None:
        write_plan(out, schedule)
        say(f"Schedule written to {out}: {len(schedule):,} rows.")


def plan_lines(
    workload: "Workload", schedule: "Schedule", phases: "tuple[PhaseSummary, ...]", reuse: float | None
) -> list[str]:
    """Return the plan as text; tables have at most 80 columns."""
    from servebench.workload.notes import told

    seconds = workload.duration_ns / NS_PER_S
    lines = [
        f"{workload.name}: {len(schedule):,} requests in {minutes(seconds)}, seed {workload.seed}",
        f"schedule {schedule.schedule_hash}",
        "",
    ]
    lines += _phase_table(phases)
    lines += ["", *_length_table(phases)]
    prompts, repeats = max((p.prompts for p in phases), default=0), sum(p.repeats for p in phases)
    lines += ["", f"Up to {prompts:,} different prompts in a phase; {repeats:,} requests repeat an earlier one whole."]
    if reuse is not None:
        lines += [f"{reuse:.1%} of all input tokens repeat the beginning of an earlier prompt (endless prefix cache)."]
    talks, sent = sum(p.sessions for p in phases), sum(p.n for p in phases)
    if talks < sent:
        lines += [f"{talks:,} conversations; {sent - talks:,} later turns follow the answer before them."]
    return lines + told(schedule.notes)


def closed_lines(workload: "Workload") -> list[str]:
    """Return closed load as text: it has no schedule, its requests follow answers."""
    load = _closed_json(workload)
    end = f"{load['requests']:,} requests" if load["requests"] is not None else minutes(float(load["duration_s"]))
    pause = f"{figure(load['think_time_s'])} s ({load['think_law']})"
    return [
        f"{workload.name}: closed load, {load['users']:,} users, {end}, seed {workload.seed}",
        f"pause {pause} after each answer; {load['warmup_requests']:,} requests of warm-up come before",
        "Requests follow answers, so there is no schedule to show.",
    ]


def write_plan(path: Path, schedule: "Schedule") -> None:
    """Write the schedule as Parquet, one row a request; null where nothing is asked for.

    Raises InputError when the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array(schedule.phase_names, pa.utf8())
    columns = {
        "seq": pa.array(schedule.seq),
        "phase": pa.DictionaryArray.from_arrays(schedule.phase, names),
        # Later turns of a conversation have no planned time.
        "intended_ns": pa.array(schedule.intended_ns, mask=schedule.intended_ns == _NONE),
        "prompt_id": pa.array(schedule.prompt_id),
        "input_tokens": pa.array(schedule.input_tokens, mask=schedule.input_tokens == _NONE),
        "max_tokens": pa.array(schedule.max_tokens, mask=schedule.max_tokens == _NONE),
        "session": pa.array(schedule.session),
        "turn": pa.array(schedule.turn),
    }
    content = pa.table(columns, metadata={"schedule_hash": schedule.schedule_hash})
    try:
        pq.write_table(content, path, compression="zstd")
    except OSError as error:
        msg = f"cannot write --out {path}: {error.strerror or error}"
        raise InputError(msg) from error


def _closed_json(workload: "Workload") -> dict[str, Any]:
    load = workload.closed
    if load is None:
        msg = f"{workload.name} is no closed load"
        raise ValueError(msg)
    return {
        "name": workload.name,
        "seed": workload.seed,
        "users": load.users,
        "requests": load.requests,
        "duration_s": None if load.duration_ns is None else load.duration_ns / NS_PER_S,
        "think_time_s": load.think.mean_ns / NS_PER_S,
        "think_law": load.think.law,
        "warmup_requests": load.warmup_requests,
        "schedule_hash": None,
    }


def _json(workload: "Workload", schedule: "Schedule", phases: "tuple[PhaseSummary, ...]", reuse: float | None) -> str:
    content = {
        "name": workload.name,
        "seed": workload.seed,
        "requests": len(schedule),
        "duration_s": workload.duration_ns / NS_PER_S,
        "schedule_hash": schedule.schedule_hash,
        "notes": schedule.notes,
        "prefix_reuse": reuse,
        "phases": [dataclasses.asdict(phase) for phase in phases],
    }
    return json.dumps(content, indent=2)


def _phase_table(phases: "tuple[PhaseSummary, ...]") -> list[str]:
    """Return the phases with the dispersion of their arrivals over each window; a mark where one is not measured."""
    from servebench.analysis.render import align

    windows = sorted({window for phase in phases for window in phase.dispersion})
    rows = [["phase", "shape", "start", "length", "n", "req/s", "CV", *(f"D {window} s" for window in windows)]]
    for phase in phases:
        start, length = phase.start_ns / NS_PER_S, (phase.end_ns - phase.start_ns) / NS_PER_S
        spread = [figure(phase.dispersion.get(window)) for window in windows]
        rates = [count(phase.n), figure(phase.rate_per_s), figure(phase.gap_cv)]
        rows.append([phase.name, phase.shape, minutes(start), minutes(length), *rates, *spread])
    lines = align(rows, 2)
    marked = [line if phase.measured else f"{line}  *" for line, phase in zip(lines[1:], phases, strict=True)]
    notes = ["D: dispersion of arrivals, their variance over their mean in windows of so many seconds; Poisson has 1."]
    notes += [] if all(phase.measured for phase in phases) else ["*: not measured."]
    return [lines[0], *marked, *notes]


def _length_table(phases: "tuple[PhaseSummary, ...]") -> list[str]:
    from servebench.analysis.render import align

    rows = [["phase", "tokens", "mean", "p50", "p90", "p99", "max"]]
    for phase in phases:
        rows.append([phase.name, "input", *_lengths(phase.input_tokens)])
        rows.append(["", "output", *_lengths(phase.max_tokens)])
    lines = align(rows, 2)
    if any(phase.input_tokens is None or phase.max_tokens is None for phase in phases):
        lines.append(f"{UNDEFINED}: no length is asked for.")
    return lines


def _lengths(lengths: "LengthSummary | None") -> list[str]:
    if lengths is None:
        return [UNDEFINED] * 5
    values = (lengths.mean, lengths.p50, lengths.p90, lengths.p99, float(lengths.max))
    return [f"{value:,.0f}" for value in values]
