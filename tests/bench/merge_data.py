"""Know a large run without a service: a staircase of requests and their events, written by the product's own writer.

Parts are as large as those that compaction leaves. A run of the same size holds the same rows.
"""

from array import array
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tests.builders import RUN_ID, S, workload

from servebench.core.outcomes import CHUNK_KINDS, ChunkKind, Outcome
from servebench.shards.arrow import Column, TextBuffer, fixed_column, list_column, word_column
from servebench.shards.manifest import Manifest, PhaseRecord, StepRecord, WorkerRecord, write_manifest
from servebench.shards.parts import PartIdentity, write_table_part
from servebench.shards.schema import KIND, REQUESTS_SCHEMA, SCHEMA_VERSION, STAMP_TICK_NS
from servebench.workload.model import Objective, Phase, Segment

PART_ROWS = 20_000
WORKERS = ("w0-aaaaaaaa", "w1-bbbbbbbb")
LEVELS = 10
MEDIAN_TOKENS = 85.0
"""With a sigma of 0.5 that is 100 events a request in the mean: role, tokens, finish, usage, done."""
AROUND = 4
Numbers = npt.NDArray[Any]
WORDS: dict[str, tuple[str, ...]] = {
    "run_id": (RUN_ID,),
    "worker": WORKERS,
    "phase": ("warmup", "ramp"),
    "outcome": (Outcome.OK.value, Outcome.HTTP_ERROR.value),
    "error_class": ("http_503",),
    "finish_reason": ("stop",),
    "target": ("http://127.0.0.1:8000",),
    "model": ("tiny",),
    "token_source": ("usage",),
}


def write_large_run(folder: Path, requests: int) -> Path:
    """Write a run of so many requests: one warm-up and ten levels. Does nothing where it is there already."""
    if (folder / "run.json").exists():
        return folder
    (folder / "requests").mkdir(parents=True, exist_ok=True)
    level = np.arange(requests) * (LEVELS + 1) // requests
    rate = 100 * np.linspace(0.3, 1.3, LEVELS + 1)[level]
    at_ns = np.cumsum(np.random.default_rng(7).exponential(1 / rate) * S).astype(np.int64)
    for number, start in enumerate(range(0, requests, PART_ROWS)):
        rows = slice(start, min(start + PART_ROWS, requests))
        index = number % len(WORKERS)
        table = _table(np.random.default_rng((9, number)), (start, index), at_ns[rows], level[rows])
        write_table_part(folder / "requests", number, table, _identity(WORKERS[index]))
    write_manifest(folder, _manifest(at_ns, level))
    return folder


def _identity(worker: str) -> PartIdentity:
    return PartIdentity(
        run_id=RUN_ID, worker=worker, epoch_monotonic_ns=5 * S, epoch_unix_ns=1_788_437_523 * S, boot_id="boot"
    )


def _table(rng: np.random.Generator, who: tuple[int, int], at_ns: Numbers, level: Numbers) -> pa.Table:
    n = len(at_ns)
    failed = rng.random(n) < 0.005
    tokens = np.where(failed, 0, np.clip(rng.lognormal(np.log(MEDIAN_TOKENS), 0.5, n), 2, 1_000).astype(np.int64))
    offsets = np.concatenate(([0], np.cumsum(np.where(failed, 0, tokens + AROUND))))
    sent = at_ns + rng.exponential(80_000, n).astype(np.int64)
    events = _events(rng, offsets, sent + rng.lognormal(np.log(0.12 * S), 0.5, n).astype(np.int64))
    last = events["chunk_ns"][np.maximum(offsets[1:] - 1, 0)]
    zero, one, ok = np.zeros(n, np.int64), np.ones(n, np.int64), ~failed
    codes = {
        "run_id": zero,
        "worker": zero + who[1],
        "phase": (level > 0),
        "outcome": failed,
        "error_class": np.where(failed, 0, -1),
        **{name: np.where(failed, -1, 0) for name in ("finish_reason", "model", "token_source")},
        "target": zero,
    }
    numbers = {
        **dict.fromkeys(("attempt", "turn", "late", "reconnects"), zero),
        **dict.fromkeys(("streamed", "conn_reused"), one),
        **dict.fromkeys(("seq", "session"), np.arange(who[0], who[0] + n)),
        "step": np.where(level > 0, level - 1, -1),
        "measured": level > 0,
        "prompt_id": np.arange(n) % 80,
        "intended_ns": at_ns,
        "dispatched_ns": (at_ns + sent) // 2,
        "sent_ns": sent,
        "send_end_ns": sent + 20_000,
        "headers_ns": sent + 3_000_000,
        "end_ns": np.where(ok, last, sent + 5_000_000),
        "http_status": np.where(failed, 503, 200),
        "input_tokens": np.where(ok, rng.integers(20, 2_000, n), -1),
        "output_tokens": np.where(ok, tokens, -1),
        "request_bytes": zero + 600,
        "response_bytes": 200 * np.diff(offsets),
    }
    made = {name: word_column(found.astype(np.int16), WORDS[name], _type(name)) for name, found in codes.items()}
    made |= {name: _number(name, found) for name, found in numbers.items()}
    made |= _lists(offsets, events)
    made["request_id"] = _request_ids(who[0], n)
    arrays = [made.get(field.name, pa.nulls(n, field.type)) for field in REQUESTS_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=REQUESTS_SCHEMA)


def _type(name: str) -> Any:  # noqa: ANN401 - any Arrow type
    return REQUESTS_SCHEMA.field(name).type


def _number(name: str, values: Numbers) -> Column:
    kind = _type(name)
    width = np.int32 if kind == pa.int32() else np.int64
    return fixed_column(values.astype(width), kind, values < 0)


def _request_ids(first: int, n: int) -> Column:
    texts = TextBuffer()
    for seq in range(first, first + n):
        texts.append(f"0a1b2c3d-{seq}-0")
    return texts.column()


def _events(rng: np.random.Generator, offsets: Numbers, first_ns: Numbers) -> dict[str, Numbers]:
    """Return the event columns: a role prelude, tokens some 20 ms apart, finish and usage and done with the last."""
    size, sizes = int(offsets[-1]), np.diff(offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(size) - offsets[owner]
    left = sizes[owner] - place
    gap = rng.lognormal(np.log(0.02 * S), 0.3, size)
    gap[rng.random(size) < 0.0005] += 0.7 * S
    gap[(rng.random(size) < 0.02) | (left < AROUND) | (place < 2)] = 0
    along = np.cumsum(gap)
    starts = offsets[:-1][sizes > 0]
    stamps = first_ns[owner] + (along - along[starts][np.cumsum(place == 0) - 1])
    kind = np.full(size, CHUNK_KINDS.index(ChunkKind.CONTENT), np.int8)
    kind[place == 0] = CHUNK_KINDS.index(ChunkKind.ROLE)
    for back, word in ((3, ChunkKind.FINISH), (2, ChunkKind.USAGE), (1, ChunkKind.DONE)):
        kind[left == back] = CHUNK_KINDS.index(word)
    fresh = np.cumsum((gap > 0) | (place == 0))
    return {
        "chunk_ns": stamps.astype(np.int64) // STAMP_TICK_NS * STAMP_TICK_NS,
        "chunk_delay_ns": (rng.exponential(40_000, size).astype(np.int32) // STAMP_TICK_NS * STAMP_TICK_NS),
        "chunk_kind": kind,
        "chunk_tokens": np.full(size, -1, np.int32),
        "chunk_read": (fresh - fresh[starts][np.cumsum(place == 0) - 1]).astype(np.int32),
        "chunk_choice": np.zeros(size, np.int8),
    }


def _lists(offsets: Numbers, events: dict[str, Numbers]) -> dict[str, Column]:
    made = {}
    for name, values in events.items():
        inner = (
            word_column(values, CHUNK_KINDS, KIND)
            if name == "chunk_kind"
            else fixed_column(values, _type(name).value_type, values < 0 if name == "chunk_tokens" else None)
        )
        made[name] = list_column(array("i", offsets.astype(np.int32).tobytes()), inner, _type(name))
    return made


def _manifest(at_ns: Numbers, level: Numbers) -> Manifest:
    ends = [*(int(at_ns[np.searchsorted(level, k)]) for k in range(1, LEVELS + 1)), int(at_ns[-1]) + 1]
    starts = [0, *ends]
    counts = np.bincount(level, minlength=LEVELS + 1)
    steps = [
        StepRecord(
            index=k,
            start_ns=starts[k + 1],
            end_ns=ends[k + 1],
            rate_per_s=int(counts[k + 1]) * S / (ends[k + 1] - starts[k + 1]),
        )
        for k in range(LEVELS)
    ]
    phases = [
        PhaseRecord(name="warmup", shape="steady", start_ns=0, end_ns=ends[0], measured=False, planned=int(counts[0])),
        PhaseRecord(
            name="ramp",
            shape="steps",
            start_ns=ends[0],
            end_ns=ends[-1],
            measured=True,
            planned=int(counts[1:].sum()),
            steps=steps,
        ),
    ]
    made = workload([_phase(phase) for phase in phases], [Objective(metric="ttft", quantile=0.95, limit=0.8 * S)])
    return Manifest(
        run_id=RUN_ID,
        schema_version=SCHEMA_VERSION,
        servebench_version="0.1.0",
        created_utc="2026-09-03T12:12:03Z",
        name="large",
        state="closed",
        engine="plan",
        workload=msgspec.to_builtins(made),
        workload_hash="b" * 64,
        seed=7,
        schedule_hash="7c1e" * 16,
        target_url="http://127.0.0.1:8000",
        epoch_monotonic_ns=5 * S,
        epoch_unix_ns=1_788_437_523 * S,
        boot_id="boot",
        stop_ns=ends[-1],
        stop_cause="finished",
        planned=len(at_ns),
        planned_total=len(at_ns),
        phases=phases,
        workers=[WorkerRecord(worker=name, host="node", pid=1, boot_id="boot", state="closed") for name in WORKERS],
    )


def _phase(phase: PhaseRecord) -> Phase:
    length = phase.end_ns - phase.start_ns
    return Phase(
        name=phase.name,
        shape=phase.shape,
        duration_ns=length,
        measured=phase.measured,
        segments=(Segment(duration_ns=length, from_per_s=1, to_per_s=1),),
    )
