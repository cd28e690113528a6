"""Know a run folder as it is read: its rows, its manifest, and the parts that could not be used."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servebench.analysis.columns import flags, floats, request_columns, words
from servebench.metrics.columns import BoolArray, FloatArray, IntArray, RequestColumns
from servebench.shards.manifest import Manifest, Shard, read_manifest
from servebench.shards.reader import read_parts

PARTS = "requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """All rows of a run in order of (seq, attempt). Arrays have one element a row; `step` NaN = phase without levels.

    `faults` names each part that could not be used and why; `shards` lists the others.
    """

    folder: Path
    manifest: Manifest
    table: pa.Table
    columns: RequestColumns
    seq: IntArray
    attempt: IntArray
    phase: npt.NDArray[np.object_]
    outcome: npt.NDArray[np.object_]
    step: FloatArray
    measured: BoolArray
    late: BoolArray
    shards: tuple[Shard, ...]
    faults: tuple[str, ...]


def load_run(folder: Path) -> RunData:
    """Return everything that a run folder holds.

    Raises ShardError where the folder has no readable manifest.
    """
    manifest = read_manifest(folder)
    table, shards, faults = read_rows(folder, manifest.run_id)
    table = table.sort_by([("seq", "ascending"), ("attempt", "ascending")])
    return RunData(
        folder=folder,
        manifest=manifest,
        table=table,
        columns=request_columns(table),
        seq=table["seq"].to_numpy(),
        attempt=table["attempt"].to_numpy(),
        phase=words(table, "phase"),
        outcome=words(table, "outcome"),
        step=floats(table, "step"),
        measured=flags(table, "measured"),
        late=flags(table, "late"),
        shards=shards,
        faults=faults,
    )


def read_rows(folder: Path, run_id: str) -> tuple[pa.Table, tuple[Shard, ...], tuple[str, ...]]:
    """Return the rows of all usable parts, the list of those parts, and a sentence about each other one.

    Raises ShardError where there is no folder of parts.
    """
    read = read_parts(folder / PARTS, run_id)
    shards = tuple(
        Shard(path=f"{PARTS}/{part.info.path.name}", rows=part.table.num_rows, sha256=part.sha256)
        for part in read.parts
    )
    faults = [f"{PARTS}/{fault.place} {fault.message}" for fault in read.faults]
    faults += [
        f"{PARTS}/{part.info.path.name} has columns that this version does not know: {', '.join(part.info.unknown)}"
        for part in read.parts
        if part.info.unknown
    ]
    return read.table, shards, tuple(faults)
