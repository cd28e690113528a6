"""Know how a search for capacity reads: on the terminal, in Markdown and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from servebench.analysis.capacity.evidence import clearly_missed
from servebench.analysis.capacity.search import Answer, Plan, Probe, crossings
from servebench.analysis.numbers import UNDEFINED, count, significant
from servebench.analysis.words import printable

GLYPHS = {"found": "✓", "not resolved": "?", "at least": "~", "hopeless": "✗"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One finished search. `unit`: req/s or users; `state`: claimed of the server's cache; `folders` by probe."""

    name: str
    unit: str
    state: str
    plan: Plan
    probes: tuple[Probe, ...]
    folders: tuple[str, ...]
    answer: Answer
    seconds: float


def headline(found: Outcome) -> str:
    """Return the answer in a line."""
    answer, unit = found.answer, found.unit
    glyph, where = GLYPHS[answer.status], f"{printable(found.name)}, cache {found.state}"
    if answer.status == "found":
        between = f"{_load(found, answer.lo)} to {_load(found, answer.hi)}"
        text = f"CAPACITY {_load(found, answer.load)} {unit} (95 %: {between})"
    elif answer.status == "at least":
        text = f"CAPACITY at least {_load(found, answer.lo)} {unit}: the objectives were met at every load tried"
    elif answer.status == "hopeless":
        text = f"NO CAPACITY: {answer.objective} is missed at {_load(found, answer.hi)} {unit} already"
    elif answer.lo is None:
        text = "CAPACITY not found: no probe could be used"
    else:
        text = f"CAPACITY not resolved: between {_load(found, answer.lo)} and {_load(found, answer.hi)} {unit}"
    return f"{glyph} {text}     {where}"


def lines(found: Outcome) -> list[str]:
    """Return the answer and the probes by load, at most 80 columns."""
    sent = sum(next(iter(probe.shares.values())).n for probe in found.probes if probe.shares)
    named = list(found.plan.budgets)
    shown = [headline(found), ""]
    if found.answer.objective and found.answer.status in {"found", "not resolved"}:
        shown.append(f"  Limited by {found.answer.objective}.")
    shown.append(f"  {len(found.probes)} probes, {count(sent)} measured requests, {found.seconds / 60:.1f} min.")
    shown.append("  Share of requests over each objective; failed ones are over all of them:")
    shown += [
        f"    {letter}  {name}, at most {significant(100 * found.plan.budgets[name])} %"
        for letter, name in _keyed(named)
    ]
    shown.append(f"  {'load':>10} {'n':>7} " + " ".join(f"{letter:>14}" for letter, _ in _keyed(named)))
    for probe in sorted(found.probes, key=lambda probe: probe.load):
        shown.append(f"  {_load(found, probe.load):>10} " + _cells(found.plan, probe, named))
    shown += [f"  ! {probe.spoiled}" for probe in found.probes if probe.spoiled]
    return shown


def as_json(found: Outcome) -> dict[str, Any]:
    """Return everything that a program may want of a search; loads in `unit`, shares of 1, null = no such number."""
    answer = found.answer
    return {
        "name": found.name,
        "unit": found.unit,
        "cache": found.state,
        "status": answer.status,
        "limited_by": answer.objective,
        "capacity": answer.load,
        "lo": answer.lo,
        "hi": answer.hi,
        "relative_se": answer.se,
        "budgets": dict(found.plan.budgets),
        "seconds": found.seconds,
        "crossings": {
            name: {"load": at.load, "relative_se": at.se, "passed": at.passed, "failed": at.failed}
            for name, at in crossings(found.plan, [probe for probe in found.probes if probe.shares]).items()
        },
        "probes": [
            {
                "load": probe.load,
                "run": folder,
                "spoiled": probe.spoiled,
                "shares": {
                    name: {"n": share.n, "over": share.over, "vif": share.vif} for name, share in probe.shares.items()
                },
            }
            for probe, folder in zip(found.probes, found.folders, strict=True)
        ],
    }


def _keyed(names: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip("abcdefghijkl", names, strict=False))


def _cells(plan: Plan, probe: Probe, names: Sequence[str]) -> str:
    n = next((share.n for share in probe.shares.values()), 0)
    cells = [f"{count(n):>7}"]
    for name in names:
        share = probe.shares.get(name)
        if share is None or not share.n:
            cells.append(f"{UNDEFINED:>14}")
            continue
        mark = (
            "✗"
            if clearly_missed(share, plan.budgets[name])
            else "✓"
            if share.over <= plan.budgets[name] * share.n
            else "~"
        )
        cells.append(f"{significant(100 * share.over / share.n):>10} % {mark}")
    return " ".join(cells)


def _load(found: Outcome, load: float | None) -> str:
    if load is None:
        return UNDEFINED
    return f"{load:,.0f}" if found.plan.whole else significant(load)
