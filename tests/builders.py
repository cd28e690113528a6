"""Know how to write a run folder without the product: rows as plain dicts, straight through pyarrow and the schema."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from servebench.shards.manifest import Manifest, PhaseRecord, StepRecord, WorkerRecord, encode_manifest
from servebench.shards.schema import COLUMN_NAMES, REQUESTS_SCHEMA, SCHEMA_VERSION
from servebench.workload.model import (
    Arrivals,
    Objective,
    Phase,
    Prompts,
    PromptSource,
    Segment,
    Target,
    Workload,
)

MS = 1_000_000
S = 1_000_000_000
RUN_ID = "20260903T121203Z-chat-burst-7c1e"

Row = dict[str, Any]
Event = tuple[int, str]


def events(*pairs: Event, choice: Sequence[int] | None = None, reads: Sequence[int] | None = None) -> Row:
    """Return the chunk columns of a row; each pair is (ns, kind)."""
    count = len(pairs)
    return {
        "chunk_ns": [ns for ns, _ in pairs],
        "chunk_delay_ns": [None] * count,
        "chunk_kind": [kind for _, kind in pairs],
        "chunk_tokens": [None] * count,
        "chunk_read": list(reads) if reads is not None else list(range(count)),
        "chunk_choice": list(choice) if choice is not None else [0] * count,
    }


def row(
    seq: int,
    *,
    sent_ns: int | None,
    ttft_ns: int = 100 * MS,
    tokens: int = 4,
    gap_ns: int = 10 * MS,
    **given: Any,  # noqa: ANN401 - a column holds anything
) -> Row:
    """Return an ok row with `tokens` token events; `given` overrides any column. `sent_ns` None = never sent."""
    made: Row = dict.fromkeys(COLUMN_NAMES)
    made |= {
        "run_id": RUN_ID,
        "worker": "w0-aaaaaaaa",
        "seq": seq,
        "attempt": 0,
        "request_id": f"7c1e-{seq}-0",
        "session": seq,
        "turn": 0,
        "phase": "load",
        "measured": True,
        "prompt_id": seq % 80,
        "intended_ns": sent_ns,
        "dispatched_ns": sent_ns,
        "sent_ns": sent_ns,
        "outcome": "ok",
        "late": False,
        "reconnects": 0,
    }
    if sent_ns is not None and given.get("outcome", "ok") == "ok":
        stamps = [sent_ns + ttft_ns + gap_ns * k for k in range(tokens)]
        made |= events(*((ns, "content") for ns in stamps), (stamps[-1], "done"))
        made |= {
            "headers_ns": sent_ns + ttft_ns // 2,
            "end_ns": stamps[-1],
            "http_status": 200,
            "finish_reason": "stop",
            "streamed": True,
            "input_tokens": 20,
            "output_tokens": tokens,
            "token_source": "usage",
        }
    return made | given


def query(sql: str) -> list[tuple[Any, ...]]:
    """Return the rows that DuckDB answers: a reader that shares no code with the product."""
    with duckdb.connect() as database:
        return list(database.execute(sql).fetchall())


def workload(phases: Sequence[Phase], objectives: Sequence[Objective] = (), name: str = "chat-burst") -> Workload:
    """Return a workload around the phases."""
    return Workload(
        name=name,
        seed=7,
        target=Target(model="tiny", declared={"engine": "sim"}),
        prompts=Prompts(sources=(PromptSource(kind="mt-bench", path="builtin:mt-bench"),)),
        arrivals=Arrivals(),
        phases=tuple(phases),
        objectives=tuple(objectives),
    )


@dataclass(kw_only=True)
class RunSpec:
    """What `write_run` puts into a folder; the manifest is that of a run which the master closed."""

    rows: list[Row]
    phases: list[PhaseRecord]
    objectives: Sequence[Objective] = ()
    manifest: Mapping[str, Any] = field(default_factory=dict)
    parts: int = 2

    def build_manifest(self) -> Manifest:
        """Return the manifest as the master leaves it at the end."""
        planned = len({made["seq"] for made in self.rows})
        names = [
            Phase(
                name=phase.name,
                shape=phase.shape,
                duration_ns=phase.end_ns - phase.start_ns,
                measured=phase.measured,
                segments=(Segment(duration_ns=phase.end_ns - phase.start_ns, from_per_s=1, to_per_s=1),),
            )
            for phase in self.phases
        ]
        made = workload(names, self.objectives)
        values: dict[str, Any] = {
            "run_id": RUN_ID,
            "schema_version": SCHEMA_VERSION,
            "servebench_version": "0.1.0",
            "created_utc": "2026-09-03T12:12:03Z",
            "name": made.name,
            "state": "closed",
            "engine": "plan",
            "workload": msgspec.to_builtins(made),
            "workload_hash": "b" * 64,
            "seed": 7,
            "schedule_hash": "7c1e" * 16,
            "target_url": "http://127.0.0.1:8000",
            "epoch_monotonic_ns": 5 * S,
            "epoch_unix_ns": 1_788_437_523 * S,
            "boot_id": "boot",
            "stop_ns": max(phase.end_ns for phase in self.phases),
            "stop_cause": "finished",
            "planned": planned,
            "planned_total": planned,
            "phases": self.phases,
            "workers": [
                WorkerRecord(worker=worker, host="node", pid=1, boot_id="boot", state="closed")
                for worker in sorted({made["worker"] for made in self.rows})
            ],
        }
        return Manifest(**(values | dict(self.manifest)))


def write_part(path: Path, rows: Iterable[Row], run_id: str = RUN_ID, version: str = SCHEMA_VERSION) -> None:
    """Write one part file with the metadata that a worker gives it."""
    metadata = {"run_id": run_id, "schema_version": version, "worker": path.stem}
    table = pa.Table.from_pylist(list(rows), schema=REQUESTS_SCHEMA.with_metadata(metadata))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")


def write_run(folder: Path, spec: RunSpec) -> Path:
    """Write parts and run.json; rows go round robin over `spec.parts` files of their worker."""
    piles: dict[tuple[str, int], list[Row]] = {}
    for index, made in enumerate(spec.rows):
        piles.setdefault((made["worker"], index % spec.parts), []).append(made)
    for (worker, number), rows in piles.items():
        write_part(folder / "requests" / f"part-{worker}-{number:06d}.parquet", rows)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_bytes(encode_manifest(spec.build_manifest()))
    return folder


def steady(name: str, start_s: float, end_s: float, **given: Any) -> PhaseRecord:  # noqa: ANN401 - any field
    """Return a steady phase from start_s to end_s."""
    values: dict[str, Any] = {
        "name": name,
        "shape": "steady",
        "start_ns": round(start_s * S),
        "end_ns": round(end_s * S),
        "measured": True,
    }
    return PhaseRecord(**(values | given))


def small_run(folder: Path, *, count: int = 20, **given: Any) -> Path:  # noqa: ANN401 - any field
    """Write a run of `count` ok requests, one a second, in the one phase `load`."""
    rows = [row(seq, sent_ns=seq * S) for seq in range(count)]
    return write_run(folder, RunSpec(rows=rows, phases=[steady("load", 0, count)], **given))


@dataclass(kw_only=True)
class _Stretch:
    phase: str
    step: int | None
    measured: bool
    start_s: float
    end_s: float
    rate_per_s: float


_STRETCHES = [
    _Stretch(phase="warmup", step=None, measured=False, start_s=0, end_s=20, rate_per_s=4),
    *(
        _Stretch(phase="ramp", step=k, measured=True, start_s=20 + 30 * k, end_s=50 + 30 * k, rate_per_s=rate)
        for k, rate in enumerate((4, 8, 16, 24))
    ),
    *(
        _Stretch(phase="burst", step=None, measured=True, start_s=s, end_s=e, rate_per_s=rate)
        for s, e, rate in ((140, 155, 8), (155, 165, 40), (165, 180, 8), (180, 190, 40), (190, 200, 8))
    ),
]


def _busy_row(seq: int, at_ns: int, stretch: _Stretch, rng: np.random.Generator, model: str) -> Row:
    load = stretch.rate_per_s / 24
    tokens = int(rng.integers(8, 48))
    ttft = round((60 + 40 * load + rng.exponential(30 + 500 * max(0.0, load - 0.7))) * MS)
    gap = round((12 + 10 * load) * MS * rng.uniform(0.8, 1.3))
    made = row(
        seq,
        sent_ns=at_ns + round(rng.exponential(0.2) * MS),
        ttft_ns=ttft,
        tokens=tokens,
        gap_ns=gap,
        phase=stretch.phase,
        step=stretch.step,
        measured=stretch.measured,
        worker=("w0-aaaaaaaa", "w1-bbbbbbbb")[seq % 2],
        intended_ns=at_ns,
        dispatched_ns=at_ns + round(rng.exponential(0.1) * MS),
        model=model,
        input_tokens=int(rng.integers(20, 400)),
    )
    if rng.uniform() < 0.01 * load:
        kind, error, status = (("timeout", "timeout_first_token", None), ("http_error", "http_503", 503))[seq % 2]
        made |= events() | {
            "outcome": kind,
            "error_class": error,
            "error_message": "<b>overloaded</b> =1+1",
            "http_status": status,
            "output_tokens": None,
            "end_ns": at_ns + (2 * S if kind == "timeout" else 5 * MS),
            "finish_reason": None,
        }
    return made


def _step(stretch: _Stretch) -> StepRecord:
    return StepRecord(
        index=stretch.step or 0,
        start_ns=round(stretch.start_s * S),
        end_ns=round(stretch.end_s * S),
        rate_per_s=stretch.rate_per_s,
    )


def busy_run(folder: Path, *, model: str = "tiny-1b", seed: int = 3) -> Path:
    """Write a realistic run: warm-up, four load levels, bursts, errors, 2 workers, about 3,000 requests."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for stretch in _STRETCHES:
        count = rng.poisson(stretch.rate_per_s * (stretch.end_s - stretch.start_s))
        for at_s in np.sort(rng.uniform(stretch.start_s, stretch.end_s, count)):
            rows.append(_busy_row(len(rows), round(at_s * S), stretch, rng, model))
    phases = [
        steady("warmup", 0, 20, measured=False),
        steady(
            "ramp",
            20,
            140,
            shape="steps",
            steps=[
                StepRecord(
                    index=s.step, start_ns=round(s.start_s * S), end_ns=round(s.end_s * S), rate_per_s=s.rate_per_s
                )
                for s in _STRETCHES
                if s.step is not None
            ],
        ),
        steady("burst", 140, 200, shape="burst"),
    ]
    for phase in phases:
        phase.planned = sum(made["phase"] == phase.name for made in rows)
    objectives = [
        Objective(metric="ttft", quantile=0.95, limit=800e6),
        Objective(metric="tpot", quantile=0.95, limit=50e6),
        Objective(metric="error_rate", quantile=None, limit=0.01),
    ]
    return write_run(folder, RunSpec(rows=rows, phases=phases, objectives=objectives))
