"""Know what engines and hardware said of themselves during a run: canonical series of each source, on the run clock."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from servebench.analysis.columns import floats, words
from servebench.core.errors import ShardError
from servebench.metrics.columns import FloatArray, Window
from servebench.shards.arrow import empty_table, fixed_column, values_of
from servebench.shards.engine_schema import ENGINE_SCHEMA
from servebench.shards.reader import LoadedPart, iter_parts
from servebench.telemetry.rules import DIALECTS
from servebench.telemetry.series import SERIES

ENGINE, HARDWARE = "engine", "hardware"
EVENTS_NAME = "events.jsonl"
_COLUMNS = ("t_ns", "source", "dialect", "series", "value")
_CACHE_SIDES = ("cache_hits", "cache_misses")
"""Each request that is looked up counts as one of them, and a server may show either only once it has counted one."""
_UNCOVERED = 0.5
"""A window of which less than this share was read tells nothing."""


class Track(NamedTuple):
    """One series of one source by rising time: `t_ns` on the run clock, `value` in the unit of the series."""

    t_ns: FloatArray
    value: FloatArray

    def grown(self) -> FloatArray:
        """Return by how much a counter has grown since its first reading; it began at 0 again wherever it fell."""
        steps = np.diff(self.value)
        risen = np.where(steps < 0, self.value[1:], steps)
        return np.concatenate((np.zeros(1), np.cumsum(risen)))

    def growth(self, window: Window) -> float | None:
        """Return by how much a counter grew in a window that the readings cover, in between them linearly."""
        inside = covered(self, window)
        if inside is None:
            return None
        at = np.interp([inside.start_ns, inside.end_ns], self.t_ns, self.grown())
        return float(at[1] - at[0])


_NOTHING = Track(np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One page. `dialect` None = no vocabulary that we know, so it has only raw numbers and no tracks.

    `missing` names the series that its dialect has and the page did not show, with the names that were looked for.
    """

    address: str
    dialect: str | None
    tracks: dict[str, Track]
    missing: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def hint(self) -> str:
        """What to switch on for what the page does not show."""
        return next((one.hint for one in DIALECTS if one.name == self.dialect), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """The pages that a run read, by address; `silent` says of each page that gave nothing, or stopped giving, why."""

    engines: tuple[Source, ...] = ()
    hardware: tuple[Source, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()

    def growth(self, series: str, window: Window) -> float | None:
        """Return by how much a counter of all engines together grew in a window; None where no engine shows it."""
        found = [
            grown
            for source in self.engines
            if series in source.tracks and (grown := source.tracks[series].growth(window)) is not None
        ]
        return sum(found) if found else None

    def mean_ms(self, name: str, window: Window) -> float | None:
        """Return the mean of a time of the engines over a window, in ms; None where none was told or none ended."""
        seconds, n = self.growth(f"{name}_s", window), self.growth(f"{name}_n", window)
        return None if seconds is None or not n else 1e3 * seconds / n


def covered(track: Track, window: Window) -> Window | None:
    """Return the part of a window between a track's first and last reading in it; None where that is too little."""
    inside = track.t_ns[(track.t_ns >= window.start_ns) & (track.t_ns <= window.end_ns)]
    if len(inside) < 2 or inside[-1] - inside[0] < _UNCOVERED * (window.end_ns - window.start_ns):
        return None
    return Window(float(inside[0]), float(inside[-1]))


def read_telemetry(folder: Path, run_id: str) -> Telemetry:
    """Return what a run folder keeps of engines and hardware; a part that cannot be read gives nothing."""
    return Telemetry(
        engines=_sources(folder / ENGINE, run_id),
        hardware=_sources(folder / HARDWARE, run_id),
        silent=tuple(_silent(folder / EVENTS_NAME)),
    )


def _sources(folder: Path, run_id: str) -> tuple[Source, ...]:
    pieces = [empty_table(ENGINE_SCHEMA).select(list(_COLUMNS))]
    dialects: dict[str, str | None] = {}
    try:
        for part in iter_parts(folder, run_id, _COLUMNS, ENGINE_SCHEMA):
            if isinstance(part, LoadedPart):
                dialects |= _dialects(part.table)
                pieces.append(part.table.filter(pc.is_valid(part.table["series"])))
    except ShardError:  # no such folder: nothing was read
        return ()
    table = pa.concat_tables(pieces).unify_dictionaries()
    return tuple(_source(address, dialects[address], table) for address in sorted(dialects))


def _dialects(table: pa.Table) -> dict[str, str | None]:
    pairs: Any = table.select(["source", "dialect"]).group_by(["source", "dialect"]).aggregate([])
    return {str(one["source"]): one["dialect"] for one in pairs.to_pylist()}


def _source(address: str, dialect: str | None, table: pa.Table) -> Source:
    mine = table.filter(fixed_column(np.equal(words(table, "source"), address), pa.bool_()))
    series = words(mine, "series")
    t_ns = values_of(mine["t_ns"]).astype(np.float64)
    values = floats(mine, "value")
    order = np.argsort(t_ns, kind="stable")
    tracks = {}
    read_ns = np.unique(t_ns)
    for name in sorted(set(series.tolist())):
        rows = order[np.equal(series[order], name)]
        tracks[name] = _from_its_start(name, Track(t_ns[rows], values[rows]), read_ns)
    rules = next((one.rules for one in DIALECTS if one.name == dialect), ())
    missing = tuple((rule.series, rule.names) for rule in rules if rule.series not in tracks)
    return Source(address=address, dialect=dialect, tracks=_with_both_sides(tracks), missing=missing)


def _with_both_sides(tracks: dict[str, Track]) -> dict[str, Track]:
    """Return the tracks with hits of a cache as 0 while only its misses were shown, and the other way round."""
    made = dict(tracks)
    for shown, other in permutations(_CACHE_SIDES):
        if shown not in made:
            continue
        late = made.get(other, _NOTHING)
        t_ns = made[shown].t_ns
        before = t_ns if not len(late.t_ns) else t_ns[t_ns < late.t_ns[0]]
        made[other] = Track(np.concatenate((before, late.t_ns)), np.concatenate((np.zeros(len(before)), late.value)))
    return made


def _from_its_start(name: str, track: Track, read_ns: FloatArray) -> Track:
    """Return a counter with the 0 at which it began, where the page was read before and did not show it yet.

    Servers show a number with labels only once there was something to count.
    """
    before = read_ns[read_ns < track.t_ns[0]]
    if not len(before) or name not in SERIES or SERIES[name].kind != "counter":
        return track
    return Track(np.concatenate((before[-1:], track.t_ns)), np.concatenate((np.zeros(1), track.value)))


class _Said(msgspec.Struct):
    """What is read of the data of an event."""

    source: str | None = None
    why: str | None = None


class _Event(msgspec.Struct):
    """What is read of a line of events.jsonl."""

    kind: str = ""
    data: _Said | None = None


def _silent(path: Path) -> Iterator[tuple[str, str]]:
    """Yield address and reason of each event that tells of a page without metrics."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            event = msgspec.json.decode(line, type=_Event)
        except msgspec.DecodeError:  # a line that was cut, or data of another form
            continue
        if event.kind == ENGINE and event.data is not None and event.data.source and event.data.why:
            yield event.data.source, event.data.why
