"""Know the one time axis of a run: the master's run clock, on which the parts of every worker are put."""

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from servebench.core.errors import ShardError
from servebench.shards.arrow import values_of
from servebench.shards.clock import Correction, fit, shifted
from servebench.shards.clock_schema import CLOCK_SCHEMA
from servebench.shards.manifest import Manifest
from servebench.shards.reader import LoadedPart, iter_parts
from servebench.shards.schema import COLUMNS

ANCHORS: tuple[str, ...] = ("sent_ns", "dispatched_ns", "intended_ns", "end_ns")
"""What says when a request was: the first that is not null."""
TIMES: tuple[str, ...] = tuple(
    column.name for column in COLUMNS if column.name.endswith("_ns") and column.name != "chunk_delay_ns"
)
"""Columns that hold run times. `intended_ns` moves with the rest: no latency or lag of a request may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """What is added to each worker's times; workers that are not named have the master's clock."""

    corrections: dict[str, Correction] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> "TimeAxis":
        """Return the axis that the pings of a run folder tell; workers without pings keep what the manifest says."""
        found = {worker: Correction.from_knots(knots) for worker, knots in manifest.clock.items()}
        return cls(corrections=found | _fitted(folder / "clock", manifest.run_id))

    def knots(self) -> dict[str, list[list[int]]]:
        """Return the form of `run.json`."""
        return {worker: self.corrections[worker].knots() for worker in sorted(self.corrections)}

    def applied(
        self, part: LoadedPart, times: tuple[str, ...] = TIMES, anchors: tuple[str, ...] = ANCHORS
    ) -> LoadedPart:
        """Return a part with its times on the master's run clock; it may hold some of the columns only."""
        correction = self.corrections.get(part.info.worker)
        if correction is None:
            return part
        present = [name for name in anchors if name in part.table.column_names]
        return part._replace(table=shifted(part.table, correction, times, present))


def _fitted(folder: Path, run_id: str) -> dict[str, Correction]:
    """Return the correction of each worker that has pings; a part that cannot be read counts as none."""
    tables: dict[str, list[pa.Table]] = {}
    try:
        for part in iter_parts(folder, run_id, schema=CLOCK_SCHEMA):
            if isinstance(part, LoadedPart) and part.info.rows:
                tables.setdefault(part.info.worker, []).append(part.table)
    except ShardError:
        return {}
    return {worker: _fit(pa.concat_tables(pieces)) for worker, pieces in tables.items()}


def _fit(table: pa.Table) -> Correction:
    sent, master, received = (values_of(table[name]) for name in ("sent_ns", "master_ns", "received_ns"))
    return fit(sent, master, received)
