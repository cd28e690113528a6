"""Know how the events of a run are seen again, part by part, when they are too many to be kept."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from servebench.analysis.columns import chunk_columns
from servebench.analysis.time_axis import ANCHORS, TimeAxis
from servebench.core.errors import ShardError
from servebench.metrics import ChunkColumns
from servebench.metrics.columns import BoolArray, IntArray, row_blocks
from servebench.shards.open_part import OpenPart, open_part
from servebench.shards.reader import LoadedPart

KEPT_EVENTS = 1_000_000
"""Runs with no more events than this keep them in memory (25 bytes each)."""
CHUNK_COLUMNS: tuple[str, ...] = ("chunk_ns", "chunk_kind", "chunk_tokens", "chunk_choice")
"""What gaps are made of; decoding the others would take as long again."""
MAY_BE_PLAIN: tuple[str, ...] = ("chunk_tokens", "chunk_choice")
"""Of those, what most services leave at null or 0 throughout."""
BLOCK_EVENTS = 100_000
"""Events that are looked at together: columns of so many stay in a processor's cache."""
PIECE_EVENTS = 400_000
"""Events of a larger part that are decoded together."""
BATCH_BYTES = 8_000_000
"""How much an executor reads at a time; some 2 million events."""
T = TypeVar("T")


def by_size(items: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """Return the items in order, in batches of about BATCH_BYTES; one that is larger is a batch of its own."""
    batches: list[list[T]] = []
    left = 0
    for item, size in zip(items, sizes, strict=True):
        if size > left or not batches:
            batches.append([])
            left = BATCH_BYTES
        batches[-1].append(item)
        left -= size
    return batches


def event_pieces(part: OpenPart, axis: TimeAxis, columns: Sequence[str]) -> Iterator[ChunkColumns]:
    """Yield the events of a part on the run's axis: all at once where they could be kept, else some rows at a time.

    Raises ShardError where the part is damaged; what came before must not be used either.
    """
    wanted, events = (*columns, *ANCHORS), part.elements("chunk_ns")
    if events <= KEPT_EVENTS:
        tables = iter((part.read(wanted, MAY_BE_PLAIN),))
    else:
        tables = part.pieces(max(1, part.info.rows * PIECE_EVENTS // events), wanted, MAY_BE_PLAIN)
    for table in tables:
        yield chunk_columns(axis.applied(LoadedPart(part.info, part.sha256, table)).table)


class PartPlace(NamedTuple):
    """One part file as it was first read, and where its rows stand in the run."""

    path: Path
    sha256: str
    place: IntArray

    def open_again(self, run_id: str) -> OpenPart:
        """Return the part. Raises ShardError where it is not what it was when the run was read."""
        part = open_part(self.path, run_id)
        if part.sha256 != self.sha256:
            msg = f"{self.path} changed while the run was read; read it again"
            raise ShardError(msg)
        return part


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSource:
    """All events of a run; `kept` has an element per part, or none when they are to be read again.

    `executor` shares the reading with other processes; they must see the same files.
    """

    run_id: str
    places: tuple[PartPlace, ...]
    kept: tuple[ChunkColumns, ...]
    axis: TimeAxis = field(default_factory=TimeAxis)
    executor: Executor | None = None


class PartWork(NamedTuple):
    """One part to see again: which of its requests are ok, and which belong to each group, masks over its rows."""

    part: PartPlace
    run_id: str
    axis: TimeAxis
    kept: ChunkColumns | None
    ok: BoolArray
    groups: tuple[BoolArray, ...]

    def blocks(self) -> Iterator[tuple[slice, ChunkColumns]]:
        """Yield some neighbouring rows of the part and their events, all in order.

        Raises ShardError where it is not what it was when the run was read.
        """
        pieces = [self.kept] if self.kept is not None else self._read_again()
        start = 0
        for chunks in pieces:
            for first, last in row_blocks(chunks.offsets, BLOCK_EVENTS):
                yield slice(start + first, start + last), chunks.rows(first, last)
            start += len(chunks.offsets) - 1

    def _read_again(self) -> Iterator[ChunkColumns]:
        return event_pieces(self.part.open_again(self.run_id), self.axis, CHUNK_COLUMNS)


def works(source: ChunkSource, ok: BoolArray, groups: Sequence[BoolArray]) -> list[PartWork]:
    """Return the parts of a run as work; `ok` and the groups are masks over its rows."""
    kept: Sequence[ChunkColumns | None] = source.kept or [None] * len(source.places)
    return [
        PartWork(part, source.run_id, source.axis, chunks, ok[part.place], tuple(group[part.place] for group in groups))
        for part, chunks in zip(source.places, kept, strict=True)
    ]
