"""Know how the events of a run are seen again, part by part, when they are too many to be kept."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from servebench.analysis.columns import chunk_columns
from servebench.analysis.time_axis import ANCHORS, TimeAxis
from servebench.core.errors import ShardError
from servebench.metrics import ChunkColumns
from servebench.metrics.columns import IntArray
from servebench.shards.reader import load_part

KEPT_EVENTS = 1_000_000
"""Runs with no more events than this keep them in memory (25 bytes each)."""
CHUNK_COLUMNS: tuple[str, ...] = ("chunk_ns", "chunk_kind", "chunk_tokens", "chunk_read", "chunk_choice")


class ChunkPart(NamedTuple):
    """The events of one part: request i of `chunks` is row `place[i]` of the run."""

    place: IntArray
    chunks: ChunkColumns


class PartPlace(NamedTuple):
    """One part file as it was first read, and where its rows stand in the run."""

    path: Path
    sha256: str
    place: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSource:
    """All events of a run; `kept` has an element per part, or none when they are to be read again."""

    run_id: str
    places: tuple[PartPlace, ...]
    kept: tuple[ChunkColumns, ...]
    axis: TimeAxis = field(default_factory=TimeAxis)

    def parts(self) -> Iterator[ChunkPart]:
        """Yield the events of each part, holding one part at a time.

        Raises ShardError where a part is not what it was when the run was read.
        """
        if self.kept:
            for item, chunks in zip(self.places, self.kept, strict=True):
                yield ChunkPart(item.place, chunks)
            return
        for item in self.places:
            part = self.axis.applied(load_part(item.path, self.run_id, (*CHUNK_COLUMNS, *ANCHORS)))
            if part.sha256 != item.sha256:
                msg = f"{item.path} changed while the run was read; read it again"
                raise ShardError(msg)
            yield ChunkPart(item.place, chunk_columns(part.table))
