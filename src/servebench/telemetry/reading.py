"""Know how a page of an engine becomes canonical series; what a page does not hold is named, never taken for 0."""

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from servebench.telemetry.exposition import Page, Sample
from servebench.telemetry.rules import DIALECTS, Dialect, Rule


class Missing(NamedTuple):
    """A series that the page should hold and does not, with the names that were looked for."""

    series: str
    names: tuple[str, ...]


class Reading(NamedTuple):
    """What a page says in canonical terms. `dialect` None = no server that we know; it then has no values.

    `older` are names that were found under an older or rarer spelling, by series.
    """

    dialect: str | None
    values: dict[str, float]
    missing: tuple[Missing, ...]
    older: dict[str, str]


_NOTHING = Reading(None, {}, (), {})


def recognise(samples: Iterable[Sample]) -> Dialect | None:
    """Return whose page this is, None when no name on it is one that we know."""
    names = {sample.name for sample in samples}
    return next((d for d in DIALECTS if any(name.startswith(d.marks) for name in names)), None)


def canonical(page: Page) -> Reading:
    """Return the canonical series of a page."""
    dialect = recognise(page.samples)
    if dialect is None:
        return _NOTHING
    by_name: dict[str, list[Sample]] = {}
    for sample in page.samples:
        by_name.setdefault(sample.name, []).append(sample)
    values: dict[str, float] = {}
    missing: list[Missing] = []
    older: dict[str, str] = {}
    for rule in dialect.rules:
        name = next((name for name in rule.names if name in by_name), None)
        value = None if name is None else _combined(rule, by_name[name])
        if name is None or value is None:
            missing.append(Missing(rule.series, rule.names))
            continue
        values[rule.series] = value
        if name != rule.names[0]:
            older[rule.series] = name
    return Reading(dialect.name, values, tuple(missing), older)


def missing_text(missing: Sequence[Missing], page: Page) -> str:
    """Return the missing series for people; "" when none is missing.

    Each comes with the names that were looked for, and a name of the page that may be its new one.
    """
    return "; ".join(_missing_words(one, page) for one in missing)


def _missing_words(missing: Missing, page: Page) -> str:
    alike = _resembling(missing, page)
    new = f", there is {alike}" if alike is not None else ""
    return f"{missing.series} (looked for {' or '.join(missing.names)}{new})"


def _combined(rule: Rule, samples: Sequence[Sample]) -> float | None:
    """Return one number of the samples that fit; None when none does, or what they say is no number."""
    wanted = [s.value for s in samples if set(rule.where) <= set(s.labels)]
    values = [value for value in wanted if math.isfinite(value)]
    if not values:
        return None
    if rule.combine == "max":
        return max(values) * rule.scale
    total = math.fsum(values) * rule.scale
    return total / len(values) if rule.combine == "mean" else total


def _resembling(missing: Missing, page: Page) -> str | None:
    """Return a name of the page that no rule reads and that is spelled nearly like a missing one."""
    known = {name for dialect in DIALECTS for rule in dialect.rules for name in rule.names}
    free = {sample.name for sample in page.samples} - known
    close = difflib.get_close_matches(missing.names[0], sorted(free), n=1, cutoff=0.88)
    return close[0] if close else None
