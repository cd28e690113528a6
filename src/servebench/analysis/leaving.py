"""Know how many users left before their answer was over, as the workload wanted, and whether the server noticed."""

from typing import NamedTuple

import numpy as np

from servebench.analysis.columns import words
from servebench.analysis.engine import Telemetry
from servebench.analysis.numbers import count, plain
from servebench.analysis.source import RunData
from servebench.wire.outcome import End


class Leaving(NamedTuple):
    """Requests of the whole run whose user left, and those that the engines say they gave up; None = nobody says."""

    abandoned: int
    given_up: float | None

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the finding in words; silent where nobody left."""
        if not self.abandoned:
            return ()
        said = f"{count(self.abandoned)} users left before their answer was over, as the workload wants"
        if self.given_up is None:
            return (f"{said}; no engine told whether it stopped for them",)
        return (f"{said}; the engine gave up {count(round(self.given_up))} requests",)

    def record(self) -> dict[str, int | float | None]:
        """Return a plain object for JSON; null = nobody says."""
        return {"abandoned": self.abandoned, "engine_gave_up": plain(self.given_up)}


def leaving(run: RunData, telemetry: Telemetry) -> Leaving:
    """Return who left; the engine's count is of the whole run, whoever its clients were."""
    classes = words(run.table, "error_class")
    left = int(np.sum(np.equal(classes, End.ABANDONED.value).astype(np.bool_)))
    tracks = [source.tracks["aborted"] for source in telemetry.engines if "aborted" in source.tracks] if left else []
    grown = [float(track.grown()[-1]) for track in tracks if len(track.t_ns) > 1]
    return Leaving(left, sum(grown) if grown else None)
