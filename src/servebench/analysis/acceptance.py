"""Know how many answers were accepted, under which load, and why the others were not.

An answer that could not be checked (a check failed itself, or was behind) is in no share: it is counted apart and marks
the verdict. A run that asks nothing of its answers has nothing here.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from servebench.analysis.numbers import count, plain, significant
from servebench.analysis.rates import rate_over
from servebench.analysis.source import RunData
from servebench.analysis.windows import Level, levels, rows_of
from servebench.metrics.columns import BoolArray, IntArray
from servebench.metrics.intervals import share_interval
from servebench.shards.arrow import nulls_of

MOST_REASONS = 12


class Reason(NamedTuple):
    """Why measured answers were not accepted; `refused` False = they could not be checked."""

    reason: str
    refused: bool
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLevel:
    """The answers of one measured load level. The share is of 1, with its 95 % interval; None = nothing was checked."""

    level: Level
    ok: int
    checked: int
    accepted: int
    unchecked: int
    share: float | None
    lo: float | None
    hi: float | None
    goodput_per_s: float

    def record(self) -> dict[str, str | int | float | None]:
        """Return a plain object for JSON and CSV, units in the names."""
        return {
            "phase": self.level.phase,
            "step": self.level.step,
            "offered_per_s": plain(self.level.offered_per_s),
            "ok": self.ok,
            "checked": self.checked,
            "accepted": self.accepted,
            "unchecked": self.unchecked,
            "accepted_share": plain(self.share),
            "accepted_share_lo": plain(self.lo),
            "accepted_share_hi": plain(self.hi),
            "goodput_per_s": plain(self.goodput_per_s),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What the checks said in measured time: by load level, and the reasons, most frequent first."""

    levels: tuple[AcceptedLevel, ...] = ()
    reasons: tuple[Reason, ...] = ()

    @property
    def checked(self) -> int:
        """Answers that were checked."""
        return sum(level.checked for level in self.levels)

    @property
    def accepted(self) -> int:
        """Answers that passed."""
        return sum(level.accepted for level in self.levels)

    @property
    def unchecked(self) -> int:
        """Answers that should have been checked and could not be."""
        return sum(level.unchecked for level in self.levels)

    @property
    def marks(self) -> tuple[str, ...]:
        """Return what stands beside the verdict without changing it."""
        if not self.unchecked:
            return ()
        why = next((item.reason for item in self.reasons if not item.refused), "")
        return (f"{count(self.unchecked)} answers could not be checked and are in no share of accepted ones ({why})",)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the finding in words; silent where every checked answer passed."""
        refused = self.checked - self.accepted
        if not refused:
            return ()
        share = significant(100 * self.accepted / self.checked)
        said = f"{share} % of {count(self.checked)} checked answers were accepted"
        most = next((item for item in self.reasons if item.refused), None)
        why = "" if most is None else f"; of the {count(refused)} others {count(most.n)} for: {most.reason}"
        return (said + why,)

    def record(self) -> dict[str, list[dict[str, Any]]]:
        """Return what summary.json holds of it."""
        return {
            "levels": [item.record() for item in self.levels],
            "reasons": [item._asdict() for item in self.reasons],
        }


def acceptance(run: RunData) -> Acceptance:
    """Return what the checks said; empty where nothing was asked."""
    c = run.columns
    asked = ~np.isnan(c.accepted) | c.unchecked
    if not (asked & run.measured).any():
        return Acceptance()
    order = np.argsort(c.sent_ns, kind="stable")
    found = [_level(run, level, order) for level in levels(run) if level.measured]
    return Acceptance(levels=tuple(found), reasons=_reasons(run))


def _level(run: RunData, level: Level, order: IntArray) -> AcceptedLevel:
    c, rows = run.columns, rows_of(run, level)
    checked: BoolArray = rows & ~np.isnan(c.accepted)
    flags = c.accepted[order][checked[order]]
    bounds = share_interval(flags)
    return AcceptedLevel(
        level=level,
        ok=int(np.sum(rows & c.ok)),
        checked=len(flags),
        accepted=int(flags.sum()),
        unchecked=int(np.sum(rows & c.unchecked)),
        share=float(flags.mean()) if len(flags) else None,
        lo=bounds.lo,
        hi=bounds.hi,
        goodput_per_s=rate_over("goodput", run, [level.window], rows),
    )


def _reasons(run: RunData) -> tuple[Reason, ...]:
    column = run.table["accept_reason"]
    told = np.flatnonzero(run.measured & ~nulls_of(column))
    texts = column.take(told).to_pylist()
    tally = Counter(zip(map(str, texts), (~run.columns.unchecked[told]).tolist(), strict=True))
    ordered = sorted(tally.items(), key=lambda item: (-item[1], item[0]))
    shown = ordered[:MOST_REASONS]
    # The first reason of each sort is always among them: sentences and marks name it.
    shown += [next(item for item in ordered if item[0][1] is sort) for sort in _missing(shown, ordered)]
    return tuple(Reason(reason, refused, n) for (reason, refused), n in shown)


def _missing(shown: list[tuple[tuple[str, bool], int]], every: list[tuple[tuple[str, bool], int]]) -> list[bool]:
    have = {item[0][1] for item in shown}
    return [sort for sort in (True, False) if sort not in have and any(item[0][1] is sort for item in every)]
