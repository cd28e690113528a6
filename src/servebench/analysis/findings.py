"""Know what a run shows over time and load, beyond its percentiles, and which of it marks the verdict."""

from dataclasses import dataclass

from servebench.analysis.arrivals import Arrivals, arrivals
from servebench.analysis.asked_lengths import AskedLengths, asked_lengths
from servebench.analysis.recovery import Recovery, recoveries
from servebench.analysis.saturation import Saturation, saturations
from servebench.analysis.soak import Drift, Growth, Stalls, drifts, growths, periodic_stalls
from servebench.analysis.source import RunData
from servebench.analysis.steady import Settling, settling


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What each rule found; empty where it had nothing to look at."""

    settling: tuple[Settling, ...]
    arrivals: tuple[Arrivals, ...]
    saturation: tuple[Saturation, ...]
    recovery: tuple[Recovery, ...]
    drift: tuple[Drift, ...]
    stalls: tuple[Stalls, ...]
    memory: tuple[Growth, ...]
    lengths: AskedLengths | None

    @property
    def marks(self) -> tuple[str, ...]:
        """Return what stands beside the verdict without changing it."""
        sent = [found.sentence for found in self.arrivals]
        short = None if self.lengths is None else self.lengths.mark
        return (*(found.sentence for found in self.settling), *(text for text in [*sent, short] if text is not None))

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the findings in words; a latency that neither drifts nor jumps is silent."""
        moved = (found.sentence for found in self.drift if found.kind != "none")
        met = None if self.lengths is None else self.lengths.sentence
        return (
            *(() if met is None else (met,)),
            *(found.sentence for found in self.saturation),
            *moved,
            *(found.sentence for found in self.stalls),
            *(found.sentence for found in self.recovery),
            *(found.sentence for found in self.memory if found.grows),
        )


def find(run: RunData) -> Findings:
    """Return everything that the rules find in a run."""
    return Findings(
        settling=settling(run),
        arrivals=arrivals(run),
        saturation=saturations(run),
        recovery=recoveries(run),
        drift=drifts(run),
        stalls=periodic_stalls(run),
        memory=growths(run),
        lengths=asked_lengths(run),
    )
