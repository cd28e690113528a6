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

from servebench.analysis.chunks import BLOCK_EVENTS, KEPT_EVENTS, ChunkSource, PartPlace, by_size, event_pieces
from servebench.analysis.columns import (
    EVENT_COLUMNS,
    REQUEST_COLUMNS,
    flags,
    floats,
    request_columns,
    words,
)
from servebench.analysis.flow import FlowBuilder, TokenFlow, edges_of
from servebench.analysis.health import Health, read_health, spoiled_rows
from servebench.analysis.memory import give_back
from servebench.analysis.row_checks import check_manifest, check_rows
from servebench.analysis.row_tables import KEPT, in_order, stored
from servebench.analysis.seals import faults_beside
from servebench.analysis.steps import step_times
from servebench.analysis.time_axis import TimeAxis
from servebench.core.errors import ShardError
from servebench.metrics import ChunkColumns, RequestColumns
from servebench.metrics.columns import BoolArray, EventFacts, FloatArray, IntArray, join_facts, row_blocks
from servebench.metrics.events import NO_GAP, Stretches, facts_of, token_events
from servebench.metrics.exact import Tally
from servebench.metrics.formulas import REQUEST_FORMULAS, within
from servebench.metrics.gathered import Gathered
from servebench.shards.arrow import values_of
from servebench.shards.manifest import Manifest, Shard, read_manifest
from servebench.shards.open_part import OpenPart, open_part
from servebench.shards.reader import LoadedPart, part_paths, size_of
from servebench.workload.model import Objective, Workload

PARTS = "requests"
_ROW_COLUMNS: tuple[str, ...] = (*KEPT, "seq", "attempt", "phase", "step", "measured", "late")
READ_COLUMNS: tuple[str, ...] = (*_ROW_COLUMNS, "worker", *REQUEST_COLUMNS)
"""What a reading needs of each row; the rest is for notebooks and for tables by other columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """All rows of a run in order of (seq, attempt). Arrays have one element a row; `step` NaN = phase without levels.

    `table` holds the columns of `KEPT`; `stored` gives any other.
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

    def stored(self, *names: str) -> pa.Table:
        """Return columns as they were stored; those that `table` lacks are read from the parts once more.

        Raises ShardError where a part changed since the run was read.
        """
        return self.table.select(list(names)) if set(names) <= set(KEPT) else stored(self.chunks, names)


def load_run(folder: Path, executor: Executor | None = None) -> RunData:
    """Return everything that a run folder holds; an executor shares the work, now and whenever events are seen again.

    Raises ShardError where the folder has no readable manifest or no folder of parts.
    """
    manifest = read_manifest(folder)
    check_manifest(manifest)
    axis = TimeAxis.of(folder, manifest)
    manifest = msgspec.structs.replace(manifest, clock=axis.knots())
    frame = Frame(manifest.run_id, read_health(folder, manifest.run_id, axis), edges_of(manifest), axis)
    paths = part_paths(folder / PARTS)
    batches = by_size(paths, [size_of(path) for path in paths])
    total, gathered = Reading.against(frame), Gathered()
    mapped = executor.map if executor is not None else map
    for piece in mapped(read_batch, batches, [frame] * len(batches)):
        if not gathered.rows:
            gathered = Gathered(len(batches) * sum(map(len, piece.columns)))
        while piece.columns:
            gathered.add(piece.columns.pop(0))
        total.merge(piece)
    run = _assembled(manifest, total, gathered, (folder, executor))
    if executor is not None:
        give_back()
    return run


class Frame(NamedTuple):
    """What every part of a run is read against."""

    run_id: str
    health: Health
    edges_ns: FloatArray
    axis: TimeAxis


def read_batch(paths: Sequence[Path], frame: Frame) -> "Reading":
    """Return what some parts of a run come to, in order of the paths; a part that cannot be used becomes a fault."""
    total = Reading.against(frame)
    for path in paths:
        reading = Reading.against(frame)
        try:
            reading.add(open_part(path, frame.run_id))
        except ShardError as error:
            total.faults.append(f"{PARTS}/{path.name} {error}")
        else:
            total.merge(reading)  # only now: nothing is used of a part that turns out damaged half-way
    return total


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

    @classmethod
    def against(cls, frame: Frame) -> "Reading":
        """Return a reading that has read nothing."""
        return cls(health=frame.health, axis=frame.axis, flow=FlowBuilder(frame.edges_ns))

    def add(self, part: OpenPart) -> None:
        """Take a part. Raises ShardError where it is damaged; what was read so far is then worth nothing."""
        table = self.axis.applied(LoadedPart(part.info, part.sha256, part.read(READ_COLUMNS))).table
        check_rows(table)
        columns = request_columns(table, EventFacts.none_for(0))
        spoiled = spoiled_rows(self.health, words(table, "worker"), columns.sent_ns)
        clean, phase = columns.ok & ~spoiled, words(table, "phase")
        facts: list[EventFacts] = []
        pieces: list[ChunkColumns] = []
        start = 0
        for chunks in event_pieces(part, self.axis, EVENT_COLUMNS):
            for first, last in row_blocks(chunks.offsets, BLOCK_EVENTS):
                block, rows = chunks.rows(first, last), slice(start + first, start + last)
                tokens = token_events(block, columns.output_tokens[rows])
                self.flow.add(tokens, clean[rows])
                self._tally(tokens.by_choice, clean[rows], phase[rows])
                facts.append(facts_of(block, tokens))
            start += len(chunks.offsets) - 1
            self.events += len(chunks)
            pieces = [*pieces, chunks] if self.events <= KEPT_EVENTS else []
        columns = replace(columns, events=join_facts(facts))
        self.flow.add_whole(columns)
        self.kept += pieces
        self.tables.append(table.select(list(_ROW_COLUMNS)))
        self.columns.append(columns)
        self.spoiled.append(spoiled)
        self.parts.append((part.info.path, part.sha256))
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


def _assembled(
    manifest: Manifest, reading: Reading, gathered: Gathered, where: tuple[Path, Executor | None]
) -> RunData:
    folder, executor = where
    sizes = [part.num_rows for part in reading.tables]
    seq, attempt = (_ints(reading.tables, name) for name in ("seq", "attempt"))
    order = np.lexsort((attempt, seq))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    table, seq, attempt = in_order(reading.tables, _ROW_COLUMNS, order), seq[order], attempt[order]
    columns = replace(gathered.in_order(order), replaced=_replaced(seq, attempt))
    columns = replace(columns, first_sent_ns=_first_sent_ns(seq, columns.sent_ns))
    columns = replace(columns, good=_good(columns, manifest))
    return RunData(
        folder=folder,
        manifest=manifest,
        health=reading.health,
        table=table.select(list(KEPT)),
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
        steps=step_times(folder, manifest.run_id, (seq, attempt), REQUEST_FORMULAS["e2e"](columns)),
        shards=tuple(
            Shard(path=f"{PARTS}/{path.name}", rows=size, sha256=digest)
            for (path, digest), size in zip(reading.parts, sizes, strict=True)
        ),
        faults=(*reading.faults, *faults_beside(folder, manifest.run_id)),
    )


def _ints(tables: Sequence[pa.Table], name: str) -> IntArray:
    return np.concatenate([np.empty(0, np.int64), *(values_of(table[name]) for table in tables)])


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
    begins = np.flatnonzero(np.append(True, np.diff(seq) != 0)[: len(seq)])
    if len(begins) == len(seq):
        return sent_ns
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
