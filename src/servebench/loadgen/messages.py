"""Know every message between master and workers: one Struct each, named on the wire by its type.

Times are int64 ns: `*_ns` of the run clock (0 = planned start) unless the field says monotonic. `run_id` is in every
message of a run, so that late messages of an earlier run are told apart.
"""

from typing import Annotated

import msgspec

WorkerName = Annotated[str, msgspec.Meta(pattern=r"^w\d+-[0-9a-f]{8}\Z", max_length=24)]
"""It becomes part of file names, pages and logs."""
Word = Annotated[str, msgspec.Meta(max_length=255)]
Buckets = dict[Annotated[int, msgspec.Meta(ge=0, le=10_000)], int]
"""Counts by bucket of a `Sketch`."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Worker, when its handlers exist: from now on it can take part in runs."""

    worker_id: Word
    worker: WorkerName
    host: Word
    pid: int
    boot_id: Word


class ClockPing(msgspec.Struct, frozen=True, kw_only=True):
    """Worker whose clock is not the master's: its monotonic clock when it asked. 10 a second at first, then 2."""

    worker_id: str
    t0_monotonic_ns: int


class ClockPong(msgspec.Struct, frozen=True, kw_only=True):
    """Master: the ping's time and its own monotonic clock when it answered."""

    t0_monotonic_ns: int
    master_monotonic_ns: int


class Prepare(msgspec.Struct, frozen=True, kw_only=True):
    """Master: load this workload (its JSON), plan it and open the recorder. `engine` is plan, tokens or closed."""

    run_id: str
    engine: str
    workload: str
    url: str
    model: str | None
    master_boot_id: str
    collect: str = "auto"
    """auto, local, shared, master or a URL: where finished parts go."""
    locustfile: str | None = None
    """sha256 of the file whose tasks make the answers; None = requests go to the service itself."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Worker: prepared. `offset_ns` is what it adds to its monotonic clock to get the master's."""

    run_id: str
    worker_id: str
    schedule_hash: str | None
    offset_ns: int
    clock_bound_ns: int


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """Master: the run's zero, on the master's monotonic clock, with that instant's wall clock."""

    run_id: str
    epoch_monotonic_ns: int
    epoch_unix_ns: int


class MembersFrom(msgspec.Struct, frozen=True, kw_only=True):
    """From `from_ns` on, seq k belongs to worker_ids[k % len(worker_ids)]; closed users are shared among them."""

    from_ns: int
    worker_ids: tuple[str, ...]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Master, five times a second to each worker: how far ahead it may act, and the table it is to act on.

    `members` None = as before: with hundreds of workers the table is tens of kB and goes only to those that lack it.
    """

    run_id: str
    valid_until_ns: int
    members: tuple[MembersFrom, ...] | None


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """Worker, on each lease. `changes` = how many entries of the table it has.

    `reached`: the first seq of the plan that it has not dealt with; its own before that are handed over. 0: no plan.
    `armed`: whether it has begun the run.
    """

    run_id: str
    worker_id: str
    changes: int = 0
    reached: int = 0
    armed: bool = True


class NeedSeqs(msgspec.Struct, frozen=True, kw_only=True):
    """Worker of a run without schedule: asks for blocks of seqs ahead of need."""

    run_id: str
    worker_id: str
    blocks: Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class SeqBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Master: seqs [first, first + count) are this worker's and nobody else's, ever. `count` 0 = there are no more."""

    run_id: str
    first: int
    count: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Master: the operator changed the offered rate; later requests carry this step."""

    run_id: str
    index: int
    rate_per_s: float


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own state in the last second; None = not measured yet."""

    hub_lag_p99_ns: int | None = None
    cpu_share: float | None = None
    dispatch_lag_p99_ns: int | None = None
    read_delay_p99_ns: int | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's counts since the run began."""

    dispatched: int = 0
    sent: int = 0
    late: int = 0
    inflight: int = 0
    outcomes: dict[str, int] = {}
    error_classes: dict[str, int] = {}
    output_tokens: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cacheable_tokens: int = 0
    """Prompt tokens of the answers that said how many of them came from a cache: what `cached_tokens` is a part of."""
    measured_failed: int = 0
    beyond: dict[str, int] = {}
    """Measured answers above a limit of the objectives, by `limit_key`."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Worker, once a second and when it has nothing left to do: totals, and sketches of what has ended since.

    `ttft`, `tpot`, `chunk_gap`, `e2e` are counts by bucket of a `Sketch` of ns.
    """

    run_id: str
    worker_id: str
    done: bool
    totals: Totals
    ttft: Buckets
    tpot: Buckets
    chunk_gap: Buckets
    e2e: Buckets = {}
    health: Health


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Master: send nothing intended at or after `stop_ns`, let the rest finish for `drain_ns`, then cancel it."""

    run_id: str
    stop_ns: int
    drain_ns: int


class CancelNow(msgspec.Struct, frozen=True, kw_only=True):
    """Master: end what is in flight now."""

    run_id: str


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """Master: nothing more will come; flush and report."""

    run_id: str


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Worker that was told to go: it begins nothing more, and reports its end when what is in flight has ended."""

    run_id: str
    worker_id: str


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """Worker: everything it has is on disk. `begun` = seqs it dispatched, `reached` as in its last answer to a lease.

    `first_measured_ns` is when it began its first measured request, `last_end_ns` when its last one ended.
    """

    run_id: str
    worker_id: str
    begun: int
    rows: int
    reached: int = 0
    first_measured_ns: int | None = None
    last_end_ns: int | None = None


class WorkerFault(msgspec.Struct, frozen=True, kw_only=True):
    """Worker: it cannot go on; `exit_code` as the command's."""

    run_id: str
    worker_id: str
    text: str
    exit_code: int


class PartPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Worker: `data` at `offset` of a finished part of `size` bytes; the next one follows the answer to this.

    `kind` is the folder: requests, health or clock. `sha256` is of the whole file.
    """

    run_id: str
    worker_id: str
    kind: str
    name: str
    offset: int
    size: int
    sha256: str
    data: bytes


class PartAck(msgspec.Struct, frozen=True, kw_only=True):
    """Master: it has the first `offset` bytes of that file now; `asked` is the offset of the piece this answers.

    `kept` = the file is whole and the master wrote it, so the worker's own may go. `error` = it cannot be stored.
    """

    run_id: str
    kind: str
    name: str
    asked: int = 0
    offset: int
    kept: bool
    error: str | None = None
