"""Know a run folder as it is read: its rows, its manifest, and the parts that could not be used.

Rows are kept; the events of their answers are reduced part by part to what formulas ask of them (`EventFacts`,
`TokenFlow`, tallies of gaps), so memory grows with the requests and not with the tokens.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servebench.analysis.chunks import BLOCK_EVENTS, KEPT_EVENTS, MAY_BE_PLAIN, ChunkSource, PartPlace, by_size
from servebench.analysis.columns import chunk_columns, flags, floats, request_columns, words
from servebench.analysis.flow import FlowBuilder, TokenFlow, edges_of
from servebench.analysis.health import Health, read_health, spoiled_rows
from servebench.analysis.seals import faults_beside
from servebench.analysis.steps import step_times
from servebench.analysis.time_axis import TimeAxis
from servebench.core.errors import ShardError
from servebench.metrics import ChunkColumns, RequestColumns
from servebench.metrics.columns import BoolArray, EventFacts, FloatArray, IntArray, join, join_facts, row_blocks
from servebench.metrics.events import NO_GAP, Stretches, facts_of, token_events
from servebench.metrics.exact import Tally
from servebench.metrics.formulas import REQUEST_FORMULAS, within
from servebench.shards.arrow import empty_table, fixed_column, values_of
from servebench.shards.manifest import Manifest, Shard, read_manifest
from servebench.shards.reader import LoadedPart, load_part, part_paths, size_of
from servebench.shards.schema import REQUESTS_SCHEMA
from servebench.workload.model import Objective, Workload

PARTS = "requests"
SCALARS: tuple[str, ...] = tuple(f.name for f in REQUESTS_SCHEMA if not pa.types.is_list(f.type))
"""Columns that have one value a row; only these are kept in `RunData.table`."""
READ_COLUMNS: tuple[str, ...] = tuple(name for name in REQUESTS_SCHEMA.names if name != "chunk_delay_ns")
"""What a reading needs; the delays of events are for notebooks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """All rows of a run in order of (seq, attempt). Arrays have one element a row; `step` NaN = phase without levels.

    `spoiled`: sent in a second in which its worker was itself the limit; latency leaves such rows out. `gaps`: chunk
    gaps of ok rows that are not spoiled, by phase. `faults` names each part that could not be used and why; `shards`
    lists the others. `steps`: own time of each step of the answers by name, ns, NaN where an answer lacks it; empty
    where no locustfile made the answers.
    """

    folder: Path
    manifest: Manifest
    health: Health
    table: pa.Table
    columns: RequestColumns
    chunks: ChunkSource
    flow: TokenFlow
    gaps: dict[str, Tally]
    seq: IntArray
    attempt: IntArray
    phase: npt.NDArray[np.object_]
    outcome: npt.NDArray[np.object_]
    step: FloatArray
    measured: BoolArray
    spoiled: BoolArray
    late: BoolArray
    steps: dict[str, FloatArray]
    shards: tuple[Shard, ...]
    faults: tuple[str, ...]


def load_run(folder: Path, executor: Executor | None = None) -> RunData:
    """Return everything that a run folder holds; an executor shares the work, now and whenever events are seen again.

    Raises ShardError where the folder has no readable manifest or no folder of parts.
    """
    manifest = read_manifest(folder)
    axis = TimeAxis.of(folder, manifest)
    manifest = msgspec.structs.replace(manifest, clock=axis.knots())
    frame = Frame(manifest.run_id, read_health(folder, manifest.run_id, axis), edges_of(manifest), axis)
    paths = part_paths(folder / PARTS)
    if executor is None:
        return _assembled(folder, manifest, read_batch(paths, frame), None)
    batches = by_size(paths, [size_of(path) for path in paths])
    total = read_batch((), frame)
    for piece in executor.map(read_batch, batches, [frame] * len(batches)):
        total.merge(piece)
    return _assembled(folder, manifest, total, executor)


class Frame(NamedTuple):
    """What every part of a run is read against."""

    run_id: str
    health: Health
    edges_ns: FloatArray
    axis: TimeAxis


def read_batch(paths: Sequence[Path], frame: Frame) -> "Reading":
    """Return what some parts of a run come to, in order of the paths; a part that cannot be used becomes a fault."""
    reading = Reading(health=frame.health, axis=frame.axis, flow=FlowBuilder(frame.edges_ns))
    for path in paths:
        try:
            reading.add(load_part(path, frame.run_id, READ_COLUMNS, unless_plain=MAY_BE_PLAIN))
        except ShardError as error:
            reading.faults.append(f"{PARTS}/{path.name} {error}")
    return reading


@dataclass(slots=True, kw_only=True)
class Reading:
    """What was taken from the parts so far. Readings add up, in the order of their parts."""

    health: Health
    axis: TimeAxis
    flow: FlowBuilder
    tables: list[pa.Table] = field(default_factory=list)
    columns: list[RequestColumns] = field(default_factory=list)
    spoiled: list[BoolArray] = field(default_factory=list)
    kept: list[ChunkColumns] = field(default_factory=list)
    events: int = 0
    gaps: dict[str, Tally] = field(default_factory=dict)
    parts: list[tuple[Path, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, part: LoadedPart) -> None:
        """Take a part."""
        part = self.axis.applied(part)
        chunks = chunk_columns(part.table)
        columns = request_columns(part.table, EventFacts.none_for(0))
        spoiled = spoiled_rows(self.health, words(part.table, "worker"), columns.sent_ns)
        phase = words(part.table, "phase")
        facts = []
        for first, last in row_blocks(chunks.offsets, BLOCK_EVENTS):
            block, rows = chunks.rows(first, last), slice(first, last)
            tokens = token_events(block, columns.output_tokens[rows])
            clean = columns.ok[rows] & ~spoiled[rows]
            self.flow.add(tokens, clean)
            self._tally(tokens.by_choice, clean, phase[rows])
            facts.append(facts_of(block, tokens))
        columns = replace(columns, events=join_facts(facts))
        self.flow.add_whole(columns)
        self.tables.append(part.table.select(list(SCALARS)))
        self.columns.append(columns)
        self.spoiled.append(spoiled)
        self.parts.append((part.info.path, part.sha256))
        self.events += len(chunks)
        self.kept = [*self.kept, chunks] if self.events <= KEPT_EVENTS else []
        if part.info.unknown:
            names = ", ".join(part.info.unknown)
            self.faults.append(f"{PARTS}/{part.info.path.name} has columns that this version does not know: {names}")

    def _tally(self, events: Stretches, clean: BoolArray, phase: npt.NDArray[np.object_]) -> None:
        sizes = np.diff(events.offsets)
        for name in set(phase.tolist()):
            rows = clean & np.equal(phase, name)
            gaps = events.gap_ns if rows.all() else events.gap_ns[np.repeat(rows, sizes)]
            self.gaps.setdefault(str(name), Tally()).add(gaps[gaps > NO_GAP])

    def merge(self, other: "Reading") -> None:
        """Take what was read of the parts that follow."""
        self.flow.merge(other.flow)
        self.tables += other.tables
        self.columns += other.columns
        self.spoiled += other.spoiled
        self.events += other.events
        self.kept = [*self.kept, *other.kept] if self.events <= KEPT_EVENTS else []
        self.parts += other.parts
        self.faults += other.faults
        for name, tally in other.gaps.items():
            self.gaps.setdefault(name, Tally()).merge(tally)


def _assembled(folder: Path, manifest: Manifest, reading: Reading, executor: Executor | None) -> RunData:
    empty = empty_table(pa.schema([REQUESTS_SCHEMA.field(name) for name in SCALARS]))
    sizes = [part.num_rows for part in reading.tables]
    table = pa.concat_tables([empty, *reading.tables])
    reading.tables.clear()  # a large run has no room for all of it twice
    seq, attempt = values_of(table["seq"]), values_of(table["attempt"])
    order = np.lexsort((attempt, seq))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    table, seq, attempt = table.take(fixed_column(order, pa.int64())).combine_chunks(), seq[order], attempt[order]
    columns = replace(join(reading.columns, order), replaced=_replaced(seq, attempt))
    columns = replace(columns, first_sent_ns=_first_sent_ns(seq, columns.sent_ns))
    columns = replace(columns, good=_good(columns, manifest))
    return RunData(
        folder=folder,
        manifest=manifest,
        health=reading.health,
        table=table,
        columns=columns,
        chunks=replace(_chunk_source(manifest, reading, sizes, place), executor=executor),
        flow=reading.flow.finish(place),
        gaps=reading.gaps,
        seq=seq,
        attempt=attempt,
        phase=words(table, "phase"),
        outcome=words(table, "outcome"),
        step=floats(table, "step"),
        measured=flags(table, "measured"),
        spoiled=np.concatenate([np.zeros(0, bool), *reading.spoiled])[order],
        late=flags(table, "late"),
        steps=step_times(folder, manifest.run_id, table, REQUEST_FORMULAS["e2e"](columns)),
        shards=tuple(
            Shard(path=f"{PARTS}/{path.name}", rows=size, sha256=digest)
            for (path, digest), size in zip(reading.parts, sizes, strict=True)
        ),
        faults=(*reading.faults, *faults_beside(folder, manifest.run_id)),
    )


def _chunk_source(manifest: Manifest, reading: Reading, sizes: Sequence[int], place: IntArray) -> ChunkSource:
    starts = np.cumsum([0, *sizes])
    places = [
        PartPlace(path, digest, place[start:stop])
        for (path, digest), start, stop in zip(reading.parts, starts, starts[1:], strict=False)
    ]
    return ChunkSource(run_id=manifest.run_id, places=tuple(places), kept=tuple(reading.kept), axis=reading.axis)


def _replaced(seq: IntArray, attempt: IntArray) -> BoolArray:
    """Return which rows a later attempt of the same seq follows; rows are in order of (seq, attempt)."""
    follows = (np.diff(seq) == 0) & (np.diff(attempt) > 0)
    return np.append(follows, False)[: len(seq)].astype(np.bool_)


def _first_sent_ns(seq: IntArray, sent_ns: FloatArray) -> FloatArray:
    """Return when the first attempt that was sent was, for each row of a seq; rows of one seq are together."""
    if not len(seq):
        return sent_ns
    begins = np.flatnonzero(np.append(True, np.diff(seq) != 0))
    first: FloatArray = np.fmin.reduceat(sent_ns, begins)
    return np.repeat(first, np.diff(np.append(begins, len(seq))))


def workload_of(manifest: Manifest) -> Workload | None:
    """Return the workload in a manifest, None where it is of another form."""
    try:
        return msgspec.convert(dict(manifest.workload), Workload)
    except msgspec.ValidationError:
        return None


def declared_objectives(manifest: Manifest) -> tuple[Objective, ...]:
    """Return the objectives in a manifest's workload, none where it is of another form."""
    workload = workload_of(manifest)
    return workload.objectives if workload else ()


def _good(c: RequestColumns, manifest: Manifest) -> FloatArray:
    """Return which requests were useful, NaN for all where the workload says nothing of use."""
    limits = {o.metric: o.limit for o in declared_objectives(manifest) if o.metric in REQUEST_FORMULAS}
    if not limits and np.isnan(c.accepted).all():
        return np.full(len(c), np.nan)
    return within(c, limits)
