"""Know what a comparison says: each metric with its interval and word, the boundaries, and whether they hold."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from servebench.analysis.compare.conditions import Judgement, judge_conditions
from servebench.analysis.compare.paired import Difference, Word, absolute, holm, relative, word
from servebench.analysis.compare.sides import Pairing, SideRun, in_blocks
from servebench.core.errors import InputError
from servebench.core.outcomes import Status
from servebench.metrics import METRIC_BY_NAME

MARGIN = 0.05
POINTS = 0.01
"""Default margin of shares, in shares of 1."""
HIGHER_IS_BETTER = frozenset(
    {"request_throughput", "goodput", "output_token_throughput", "accepted_share", "good_share", "user_speed"}
)
Holds = Literal["holds", "broken", "undecided"]


class Wanted(NamedTuple):
    """One number of a run: a metric and its statistic; rates and shares have their value in `mean`."""

    metric: str
    statistic: str

    @property
    def name(self) -> str:
        """Return how it is written, such as ttft.p95 or error_rate."""
        return (
            self.metric if METRIC_BY_NAME[self.metric].kind in {"rate", "share"} else f"{self.metric}.{self.statistic}"
        )

    @property
    def title(self) -> str:
        """Return how people read it, such as TTFT p95."""
        known = METRIC_BY_NAME[self.metric]
        return known.title if known.kind in {"rate", "share"} else f"{known.title} {self.statistic}"

    @property
    def is_share(self) -> bool:
        """Return whether differences are plain and not relative."""
        return METRIC_BY_NAME[self.metric].kind == "share"


COMPARED: tuple[Wanted, ...] = (
    Wanted("ttft", "p50"),
    Wanted("ttft", "p95"),
    Wanted("tpot", "p50"),
    Wanted("tpot", "p95"),
    Wanted("e2e", "p50"),
    Wanted("e2e", "p95"),
    Wanted("request_throughput", "mean"),
    Wanted("output_token_throughput", "mean"),
    Wanted("goodput", "mean"),
    Wanted("error_rate", "mean"),
    Wanted("accepted_share", "mean"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One compared number: means of both sides in display units, the difference, and what may be said of it."""

    wanted: Wanted
    base: float
    candidate: float
    difference: Difference
    margin: float
    word: Word

    @property
    def verdict(self) -> str:
        """Return better, worse, the same within the margin, or inconclusive."""
        if not self.word.startswith("differs"):
            size = f"{100 * self.margin:g}"
            shown = f"{size} point{'' if size == '1' else 's'}" if self.wanted.is_share else f"{size} %"
            return f"same within {shown}" if self.word.startswith("same") else "inconclusive"
        rises = self.difference.change > 0
        side = "better" if rises is (self.wanted.metric in HIGHER_IS_BETTER) else "worse"
        return side if self.word == "differs" else f"{side}, by less than the margin"


class LevelLine(NamedTuple):
    """The difference of one number at one load level; told without a verdict."""

    phase: str
    step: int | None
    offered_per_s: float
    base: float
    candidate: float
    difference: Difference


class Boundary(NamedTuple):
    """A limit of the change of one number: at most, or at least, this much (shares of 1)."""

    wanted: Wanted
    at_most: bool
    limit: float

    @property
    def text(self) -> str:
        """Return how it is written."""
        return f"{self.wanted.name}{'<' if self.at_most else '>'}{100 * self.limit:+g}%"

    def holds(self, found: Difference) -> Holds:
        """Return whether the whole interval is on the right side, on the wrong one, or on both."""
        if found.lo is None or found.hi is None:
            return "undecided"
        lo, hi, limit = (found.lo, found.hi, self.limit) if self.at_most else (-found.hi, -found.lo, -self.limit)
        return "holds" if hi <= limit else "broken" if lo > limit else "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that is said of two sides. `lines` are empty and `judgement.refused` is not when it was refused."""

    pairing: Pairing
    judgement: Judgement
    marks: tuple[str, ...]
    primary: Wanted
    lines: tuple[Line, ...] = ()
    levels: tuple[LevelLine, ...] = ()
    boundaries: tuple[tuple[Boundary, Holds], ...] = ()

    @property
    def acceptance(self) -> str:
        """Return ACCEPTED, REJECTED or UNDECIDED."""
        states = {state for _, state in self.boundaries}
        return "REJECTED" if "broken" in states else "UNDECIDED" if "undecided" in states else "ACCEPTED"

    def find(self, wanted: Wanted) -> Line | None:
        """Return the line of a number, None where neither side has it."""
        return next((line for line in self.lines if line.wanted == wanted), None)


def parse_wanted(text: str) -> Wanted:
    """Return the number that a text such as ttft.p95 or error_rate names.

    Raises InputError for one that is not compared.
    """
    for wanted in COMPARED:
        if wanted.name == text:
            return wanted
    msg = f'cannot compare "{text}"; there are {", ".join(wanted.name for wanted in COMPARED)}'
    raise InputError(msg)


_BOUNDARY = re.compile(r"([a-z0-9_.]+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%")


def parse_boundary(text: str) -> Boundary:
    """Return the boundary that a text such as `ttft.p95<-10%` or `accepted_share>-1%` sets.

    Raises InputError for another form.
    """
    match = _BOUNDARY.fullmatch(text.strip())
    if match is None:
        msg = f'"{text}" is no boundary; e.g. "ttft.p95<-10%" (falls by 10 % or more), "accepted_share>-1%"'
        raise InputError(msg)
    return Boundary(parse_wanted(match[1]), match[2] == "<", float(match[3]) / 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants of a comparison."""

    primary: Wanted = COMPARED[1]
    margin: float = MARGIN
    boundaries: tuple[Boundary, ...] = ()
    allowed: tuple[str, ...] = ()
    change: str | None = None


def compare(pairing: Pairing, asked: Asked) -> Comparison:
    """Return the comparison of two sides; without lines where conditions forbid it."""
    judgement = judge_conditions(pairing, asked.allowed, asked.change)
    marks = tuple(_marks(pairing, judgement))
    if judgement.refused:
        return Comparison(pairing=pairing, judgement=judgement, marks=marks, primary=asked.primary)
    lines = _lines(pairing, asked)
    known = {line.wanted: line.difference for line in lines}
    checked = [(limit, limit.holds(known[limit.wanted])) for limit in _limits(asked, known) if limit.wanted in known]
    return Comparison(
        pairing=pairing,
        judgement=judgement,
        marks=marks,
        primary=asked.primary,
        lines=lines,
        levels=_levels(pairing, asked.primary),
        boundaries=tuple(checked),
    )


def _limits(asked: Asked, known: dict[Wanted, Difference]) -> tuple[Boundary, ...]:
    """Return the boundaries asked for, and that quality does not drop, unless the user draws that line himself."""
    own = {limit.wanted.metric for limit in asked.boundaries}
    standing = (
        Boundary(Wanted("error_rate", "mean"), True, POINTS),
        Boundary(Wanted("accepted_share", "mean"), False, -POINTS),
    )
    return (*asked.boundaries, *(b for b in standing if b.wanted.metric not in own and b.wanted in known))


def _marks(pairing: Pairing, judgement: Judgement) -> list[str]:
    marks = list(judgement.marked)
    if judgement.change is None and not judgement.refused:
        marks.append("no condition differs that was declared or observed: this is a test of the method (A against A)")
    if in_blocks(pairing):
        marks.append("all runs of one side came before those of the other: a drift of the machine counts as a change")
    if pairing.alone:
        names = ", ".join(run.folder.name for run in pairing.alone)
        marks.append(f"left out, no run of the other side has their seed: {names}")
    cut = (run for pair in pairing.pairs for run in pair if run.status == Status.INTERRUPTED)
    return [*marks, *(f"{run.folder.name} was interrupted" for run in cut)]


def _lines(pairing: Pairing, asked: Asked) -> tuple[Line, ...]:
    numbers = {wanted: _numbers(pairing, partial(_value, wanted=wanted)) for wanted in COMPARED}
    numbers = {wanted: sides for wanted, sides in numbers.items() if not np.isnan(sides).all(axis=1).any()}
    found = {wanted: _difference(wanted, sides) for wanted, sides in numbers.items()}
    others = [wanted for wanted in found if wanted != asked.primary]
    certain = dict(zip(others, holm([found[wanted].p_value for wanted in others]), strict=True))
    return tuple(
        Line(
            wanted=wanted,
            base=float(np.nanmean(sides[0])),
            candidate=float(np.nanmean(sides[1])),
            difference=found[wanted],
            margin=POINTS if wanted.is_share else asked.margin,
            word=word(
                found[wanted],
                POINTS if wanted.is_share else asked.margin,
                certain=certain.get(wanted, True),
            ),
        )
        for wanted, sides in numbers.items()
    )


def _numbers(
    pairing: Pairing, value: Callable[[SideRun], float | None]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return one number per side and pair, shape (2, pairs), NaN = undefined."""
    rows: Sequence[Sequence[float]] = [
        [np.nan if (number := value(run)) is None else number for run in side]
        for side in zip(*pairing.pairs, strict=True)
    ]
    return np.array(rows, np.float64)


def _value(run: SideRun, wanted: Wanted) -> float | None:
    row = run.digest.table.find(wanted.metric, "all")
    value: float | None = getattr(row, wanted.statistic) if row is not None else None
    return value


def _difference(wanted: Wanted, sides: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Difference:
    """Return the relative difference, or that of shares in shares of 1."""
    return absolute(sides[0] / 100, sides[1] / 100) if wanted.is_share else relative(sides[0], sides[1])


def _levels(pairing: Pairing, primary: Wanted) -> tuple[LevelLine, ...]:
    """Return the primary number at each load level that every run has; none where it is no latency of the curve."""
    first = pairing.pairs[0].base.digest.curve
    found = []
    for point in first if len(first) > 1 and primary.metric in first[0].latency else ():
        key = (point.level.phase, point.level.step)

        def at(run: SideRun, key: tuple[str, int | None] = key) -> float | None:
            same = next((p for p in run.digest.curve if (p.level.phase, p.level.step) == key), None)
            value: float | None = getattr(same.latency[primary.metric], primary.statistic) if same else None
            return value

        sides = _numbers(pairing, at)
        if not np.isnan(sides).any():
            means = sides.mean(axis=1)
            difference = relative(sides[0], sides[1])
            found.append(LevelLine(*key, point.level.offered_per_s, float(means[0]), float(means[1]), difference))
    return tuple(found)
