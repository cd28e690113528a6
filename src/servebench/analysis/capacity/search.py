"""Know which load to try next, when to stop, and what the answer is; pure, fed with what each probe showed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from servebench.analysis.capacity.fit import Crossing, Share, crossing

Status = Literal["found", "not resolved", "hopeless", "at least"]

_CLIMB = (1.4, 1.2)
"""Steps of the load while it passes, before the first fit."""
_FALL = 0.7
"""A first probe this badly over its budget says that the start was far too high."""
_FAR = 0.3
_BESIDE = 0.04
"""How far beside the crossing the next probe lies, above and below in turn (log load)."""
_FIRST = 2
_BOUNDS = 2.0
"""Standard errors to each side of the answer."""
_LOWEST = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is searched for: `budgets` = allowed share over each objective, by its name; `start` the first load.

    At most `probes` probes, fewer once the standard error of the log load is `stop_se` after `least` of them; above
    `resolved_se` the answer is "not resolved". `whole`: loads are whole numbers (users).
    """

    budgets: Mapping[str, float]
    start: float
    probes: int = 20
    least: int = 8
    stop_se: float = 0.02
    resolved_se: float = 0.03
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One load that was tried. `shares` by objective. `spoiled` says why it is no evidence, None where it is."""

    load: float
    shares: Mapping[str, Share] = field(default_factory=dict)
    spoiled: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Capacity: `load` between `lo` and `hi` (95 %), limited by `objective`; None where there is no such number.

    found: within the error asked for. not resolved: only the interval holds. at least: the client or the probes ended
    before the objective did, `load` is what was reached. hopeless: missed at the lowest load that was tried.
    """

    status: Status
    objective: str | None
    load: float | None
    lo: float | None
    hi: float | None
    se: float | None


def next_load(plan: Plan, probes: Sequence[Probe]) -> float | None:
    """Return the load to try next; None when the search is over. A spoiled probe is made again, once."""
    good = [probe for probe in probes if not probe.spoiled]
    if len(good) >= plan.probes or _hopeless(plan, good):
        return None
    if probes and probes[-1].spoiled:
        return None if len(probes) > 1 and probes[-2].spoiled else probes[-1].load
    if len(good) < _FIRST or not _bracketed(plan, good):
        return _rounded(plan, _climbed(plan, good), good)
    _, found = _limiting(plan, good)
    if found.se <= plan.stop_se and len(good) >= plan.least:
        return None
    side = _BESIDE if len(good) % 2 else -_BESIDE
    return _rounded(plan, found.load * math.exp(side), good)


def answer(plan: Plan, probes: Sequence[Probe]) -> Answer:
    """Return what the probes come to."""
    good = [probe for probe in probes if not probe.spoiled]
    if not good:
        return Answer(status="not resolved", objective=None, load=None, lo=None, hi=None, se=None)
    objective, found = _limiting(plan, good)
    if _hopeless(plan, good):
        lowest = min(probe.load for probe in good)
        return Answer(status="hopeless", objective=objective, load=None, lo=None, hi=lowest, se=None)
    if found.failed is None and all(passes(plan, probe) for probe in good):
        reached = found.passed if found.passed is not None else min(probe.load for probe in good)
        return Answer(status="at least", objective=None, load=reached, lo=reached, hi=None, se=None)
    lo, hi = (found.load * math.exp(side * _BOUNDS * found.se) for side in (-1, 1))
    if found.failed is not None:
        hi = min(hi, max(found.failed, found.load))
    if found.passed is not None:
        lo = max(lo, min(found.passed, found.load))
    resolved = found.se <= plan.resolved_se
    return Answer(
        status="found" if resolved else "not resolved",
        objective=objective,
        load=_floor(plan, found.load) if resolved else None,
        lo=_floor(plan, lo),
        hi=math.ceil(hi) if plan.whole else hi,
        se=found.se,
    )


def crossings(plan: Plan, probes: Sequence[Probe]) -> dict[str, Crossing]:
    """Return where each objective is met just so, by its name."""
    return {
        name: crossing([probe.shares[name] for probe in probes if name in probe.shares], budget)
        for name, budget in plan.budgets.items()
        if any(name in probe.shares for probe in probes)
    }


def passes(plan: Plan, probe: Probe) -> bool:
    """Tell whether a probe is within every budget, by its shares as they are."""
    return all(share.over <= plan.budgets[name] * share.n for name, share in probe.shares.items())


def _limiting(plan: Plan, probes: Sequence[Probe]) -> tuple[str, Crossing]:
    return min(crossings(plan, probes).items(), key=lambda item: item[1].load)


def _bracketed(plan: Plan, probes: Sequence[Probe]) -> bool:
    """Tell whether some probe passed and some did not: only then is there a border to fit."""
    return len({passes(plan, probe) for probe in probes}) == 2


def _climbed(plan: Plan, probes: Sequence[Probe]) -> float:
    if not probes:
        return plan.start
    last = probes[-1]
    step = _CLIMB[min(len(probes), len(_CLIMB)) - 1]
    if passes(plan, last):
        return last.load * step
    worst = max(share.smoothed for share in last.shares.values())
    return last.load * math.exp(-_FALL) if worst > _FAR else last.load / math.sqrt(step)


def _hopeless(plan: Plan, probes: Sequence[Probe]) -> bool:
    """Tell whether every probe clearly missed and the lowest is far below where the search began."""
    if not probes or any(passes(plan, probe) for probe in probes):
        return False
    lowest = min(probe.load for probe in probes)
    return _limiting(plan, probes)[1].failed is not None and (
        lowest <= _LOWEST * plan.start or (plan.whole and lowest <= 1)
    )


def _rounded(plan: Plan, load: float, probes: Sequence[Probe]) -> float:
    if not plan.whole:
        return load
    users = max(1, round(load))
    tried = {probe.load for probe in probes}
    beside = (users, users + 1, users - 1, users + 2, users - 2)
    return next((float(one) for one in beside if one >= 1 and one not in tried), float(users))


def _floor(plan: Plan, load: float) -> float:
    return float(max(1, math.floor(load))) if plan.whole else load
