"""Know all that is said of the server beside the client: its pages, the split of the time, and what grows with load."""

from dataclasses import dataclass

from servebench.analysis.engine import Telemetry, read_telemetry
from servebench.analysis.engine_growth import Growth, growth
from servebench.analysis.engine_split import Split, splits
from servebench.analysis.numbers import plain
from servebench.analysis.render import Cell
from servebench.analysis.source import RunData


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSide:
    """What the run knows of the server; `growth` None = nothing can be said of what grows."""

    telemetry: Telemetry
    splits: tuple[Split, ...]
    growth: Growth | None

    @property
    def sentences(self) -> tuple[str, ...]:
        """Say which part of a request grows with load, where one does."""
        return () if self.growth is None else (self.growth.sentence,)

    def records(self) -> list[dict[str, Cell]]:
        """Return one plain object per level and part, for JSON and CSV; ms in the names."""
        return [
            {
                "phase": split.level.phase,
                "step": split.level.step,
                "load_per_s": plain(split.load_per_s),
                "n": split.n,
                "part": part.name,
                "mean_ms": plain(part.ms),
                "share": plain(part.ms / split.total_ms) if split.total_ms else None,
                "how": part.how.value,
                "basis": part.basis,
            }
            for split in self.splits
            for part in split.parts
        ]


def server_side(run: RunData) -> ServerSide:
    """Return what the run knows of the server; without engine data the split is the client's alone."""
    telemetry = read_telemetry(run.folder, run.manifest.run_id)
    found = splits(run, telemetry)
    return ServerSide(telemetry=telemetry, splits=found, growth=growth(found))
