"""Know which load levels make one line of a plot: those of a phase, or those of a run beside other runs."""

from collections.abc import Sequence
from typing import NamedTuple

from servebench.analysis import palette
from servebench.analysis.curve import CURVE_QUANTILES, CurvePoint
from servebench.analysis.numbers import count
from servebench.analysis.table_rows import QUANTILES
from servebench.metrics import needed

_QUANTILE = dict(QUANTILES)


class Track(NamedTuple):
    """One line of a plot: its name and its points by rising offered rate; `number` picks colour and marker.

    Lines of one `legend` have one entry there, as they have one colour.
    """

    name: str
    number: int
    points: tuple[CurvePoint, ...]
    legend: str

    @property
    def colour(self) -> str:
        """Return the colour of the line."""
        return palette.CYCLE[self.number % len(palette.CYCLE)]

    @property
    def symbol(self) -> str:
        """Return the marker of its points."""
        return palette.SYMBOLS[self.number % len(palette.SYMBOLS)]

    @property
    def offered(self) -> list[float]:
        """Return the offered rate of each point, per second."""
        return [point.level.offered_per_s for point in self.points]

    def latency(self, metric: str, statistic: str, divisor: float = 1.0) -> list[float | None]:
        """Return a statistic of a latency at each point, None where it is not shown."""
        found = (getattr(point.latency[metric], statistic) for point in self.points)
        return [None if value is None else value / divisor for value in found]


class Of(NamedTuple):
    """Whose tracks: the name of a run, the place of its colour, and what the legend calls it."""

    label: str
    colour: int
    legend: str


def tracks_of(points: Sequence[CurvePoint], of: Of | None = None) -> tuple[Track, ...]:
    """Return a track per phase in order of time; `of` = the run they are of, where there are several."""
    phases = tuple(dict.fromkeys(point.level.phase for point in points))
    found = []
    for number, phase in enumerate(phases):
        mine = sorted((p for p in points if p.level.phase == phase), key=lambda p: p.level.offered_per_s)
        if of is None:
            found.append(Track(phase, number, tuple(mine), phase))
        else:
            name = of.label if len(phases) == 1 else f"{of.label}, {phase}"
            found.append(Track(name, of.colour, tuple(mine), of.legend))
    return tuple(found)


def hidden_words(tracks: Sequence[Track], metric: str) -> str:
    """Return which quantiles have too few samples at some levels, and how many they need; "" where none is hidden."""
    rows = [point.latency[metric] for track in tracks for point in track.points if point.latency[metric].n]
    found = []
    for q in CURVE_QUANTILES:
        hidden = sum(getattr(row, q) is None for row in rows)
        if hidden:
            found.append(f"{q} needs {count(needed(_QUANTILE[q]))} samples: hidden at {hidden} of {len(rows)} levels.")
    return " ".join(found)


def first_of_legends(tracks: Sequence[Track]) -> frozenset[str]:
    """Return the names of the tracks that stand in the legend for all of theirs."""
    first: dict[str, str] = {}
    for track in tracks:
        first.setdefault(track.legend, track.name)
    return frozenset(first.values())
