"""Know whether a run folder still holds what its last merge saw, and which files beside the requests are damaged."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from servebench.core.errors import ShardError
from servebench.shards.clock_schema import CLOCK_SCHEMA
from servebench.shards.engine_schema import ENGINE_SCHEMA
from servebench.shards.health_schema import HEALTH_SCHEMA
from servebench.shards.manifest import Manifest, Shard
from servebench.shards.parts import parse_part_name
from servebench.shards.reader import list_parts
from servebench.shards.span_schema import SPAN_SCHEMA

MERGED = "merged"
_BESIDE = (
    ("health", HEALTH_SCHEMA),
    ("clock", CLOCK_SCHEMA),
    ("engine", ENGINE_SCHEMA),
    ("hardware", ENGINE_SCHEMA),
    ("spans", SPAN_SCHEMA),
)


class Seals(NamedTuple):
    """Parts of requests against the checksums of the last merge.

    `changed` have other bytes, `gone` are no longer there. `shards` is the list to write down: what was found, and of
    those two what was known before, so that the next merge says the same.
    """

    changed: tuple[str, ...]
    gone: tuple[str, ...]
    shards: tuple[Shard, ...]


UNSEALED = Seals((), (), ())


def check_seals(manifest: Manifest, found: Sequence[Shard]) -> Seals:
    """Compare the parts that were read with those of the last merge; before the first one all is as it is. Pure.

    A part that a compaction has put together with its neighbours is not gone.
    """
    known = {shard.path: shard for shard in manifest.shards} if manifest.state == MERGED else {}
    here = {shard.path: shard for shard in found}
    changed = [path for path, shard in known.items() if path in here and here[path].sha256 != shard.sha256]
    names = [name for path in here if (name := parse_part_name(PurePosixPath(path).name)) is not None]
    gone = []
    for path in known.keys() - here.keys():
        name = parse_part_name(PurePosixPath(path).name)
        if name is None or not any(other.covers(name) for other in names):
            gone.append(path)
    kept = here | {path: known[path] for path in (*changed, *gone)}
    return Seals(tuple(sorted(changed)), tuple(sorted(gone)), tuple(kept[path] for path in sorted(kept)))


def faults_beside(folder: Path, run_id: str) -> tuple[str, ...]:
    """Return what is wrong with the parts of health, clock, engine and hardware, by their footers."""
    faults: list[str] = []
    for kind, schema in _BESIDE:
        if not (folder / kind).is_dir():
            continue
        try:
            faults += [
                f"{kind}/{fault.place} {fault.message}" for fault in list_parts(folder / kind, run_id, schema).faults
            ]
        except ShardError as error:
            faults.append(str(error))
    return tuple(faults)
