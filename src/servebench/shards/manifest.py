"""Know `run.json`: what was planned, by whom, what came of it, and whether its numbers may be used."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from servebench.core.errors import ShardError
from servebench.shards.refusals import refused
from servebench.shards.schema import SCHEMA_VERSION, version_numbers

MANIFEST_NAME = "run.json"
OUT_OF_REACH = "out of reach: "
"""Begins `stop_cause` where a run ended because an objective could not be met any more."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
"""More requests than any plan holds are a slip of whoever edited the file."""


class StepRecord(msgspec.Struct, kw_only=True):
    """One load level as it ran; times on the run clock, rate as offered."""

    index: int
    start_ns: int
    end_ns: int
    rate_per_s: float


class PhaseRecord(msgspec.Struct, kw_only=True):
    """One phase as it ran: [start_ns, end_ns) on the run clock. `planned` = requests that the plan put into it."""

    name: str
    shape: str
    start_ns: int
    end_ns: int
    measured: bool
    planned: int | None = None
    steps: list[StepRecord] = []


class WorkerRecord(msgspec.Struct, kw_only=True):
    """One worker incarnation; `begun` and `rows` are its own final count, None when it died before saying.

    `state`: closed, lost, or unready where it was gone or not prepared when the run began, and so never had a share.
    `offset_ns` is what was added to its monotonic clock to get the master's when the run was armed, right within
    +- `clock_bound_ns`; 0 and 0 = it has the master's clock. `rows` counts what is on disk, so fewer than `begun` means
    that some were not flushed. Of a lost worker, `last_heard_ns` is when the master heard its last message (run clock)
    and `due_seq` the first seq of the plan that was due after that; None = never heard of, or no plan. `reached_seq` is
    the first that it had not dealt with by its own last word: its seqs before that had begun, however late. None = no
    plan, or recorded before there was this field.
    """

    worker: str
    host: str
    pid: int
    boot_id: str
    state: str
    offset_ns: int = 0
    clock_bound_ns: int = 0
    begun: int | None = None
    rows: int | None = None
    last_heard_ns: int | None = None
    due_seq: int | None = None
    reached_seq: int | None = None
    schedule_hash: str | None = None


class MembersRecord(msgspec.Struct, kw_only=True):
    """Who shared the schedule from `from_ns` (run clock) on: seq k belonged to workers[k % len(workers)].

    `first_seq` is the first of the plan that was due by then; None without a plan.
    """

    from_ns: int
    first_seq: int | None = None
    workers: list[str]


class LostRange(msgspec.Struct, kw_only=True):
    """Planned requests without a row: inclusive seqs, whose they were and why.

    `certain` false = they may never have begun.
    """

    first: int
    last: int
    worker: str | None
    cause: str
    certain: bool = True


class Shard(msgspec.Struct, kw_only=True):
    """One part file: path relative to the run folder, rows and sha256."""

    path: str
    rows: int
    sha256: str


class Verdict(msgspec.Struct, kw_only=True):
    """Whether the numbers may be used, and what the objectives say. Each reason holds its number and way out."""

    valid: bool
    status: str
    objectives: str = "none"
    reasons: list[str] = []


class Manifest(msgspec.Struct, kw_only=True):
    """The whole of `run.json`. Written by the master at start and stop, completed by `merge`."""

    run_id: str
    schema_version: str
    servebench_version: str
    created_utc: str
    name: str
    state: str
    """running (no clean end yet), closed (by the master) or merged."""
    engine: str
    """plan, tokens or closed."""
    workload: dict[str, Any]
    workload_hash: str
    seed: int
    schedule_hash: str | None
    target_url: str
    """Address without userinfo and query."""
    declared: dict[str, str] = {}
    observed: dict[str, Any] = {}
    epoch_monotonic_ns: int
    epoch_unix_ns: int
    boot_id: str
    stop_ns: int | None = None
    stop_cause: str | None = None
    """finished, user, or the fault that stopped the run."""
    planned: Count | None = None
    planned_total: Count | None = None
    plan_notes: dict[str, int] = {}
    """Counts of what planning clipped or dropped, by reason."""
    plan_reuse: dict[str, float] = {}
    """By phase: share of the planned prompt tokens that the run had sent before; empty without a cache claim."""
    rows: int | None = None
    lost: list[tuple[int, int]] = []
    lost_detail: list[LostRange] = []
    workers: list[WorkerRecord] = []
    members: list[MembersRecord] = []
    clock: dict[str, list[list[int]]] = {}
    """By worker: [t_ns, correction_ns, bound_ns], linear in between. `correction_ns` is ADDED to a run time of the
    worker's parts to get the master's run time; `t_ns` is on the worker's run clock. Fitted by `merge` from the pings
    in clock/; a worker that is not named has the master's clock."""
    phases: list[PhaseRecord] = []
    shards: list[Shard] = []
    verdict: Verdict | None = None


def encode_manifest(manifest: Manifest) -> bytes:
    """Return indented JSON that ends in a line end."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace `run.json` atomically: written beside it, fsynced, renamed."""
    write_atomic(folder / MANIFEST_NAME, encode_manifest(manifest))


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a run folder.

    Raises ShardError where there is none, it is not one, or it is of a version that this servebench does not read.
    """
    path = folder / MANIFEST_NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"{folder} is no run folder: {MANIFEST_NAME}: {error.strerror}"
        raise ShardError(msg) from error
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
        major, own = version_numbers(manifest.schema_version)[0], version_numbers(SCHEMA_VERSION)[0]
    except (msgspec.MsgspecError, UnicodeDecodeError, ShardError) as error:
        msg = f"{path} is no servebench manifest: {error}"
        raise ShardError(msg) from error
    if major != own:
        msg = f"{path} has schema version {manifest.schema_version}; this servebench reads {own}.x"
        raise ShardError(msg)
    return manifest


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that it is either whole or absent after a crash.

    Raises HarnessError with path, reason and way out; what was there before stays as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise refused(path, error) from error


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
