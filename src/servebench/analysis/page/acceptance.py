"""Know the tables of the report about accepted answers."""

from servebench.analysis.acceptance import Acceptance
from servebench.analysis.numbers import UNDEFINED, bounds, count, significant
from servebench.analysis.page.model import PageTable


def acceptance_tables(found: Acceptance) -> tuple[PageTable, ...]:
    """Return acceptance by load level and the reasons of refusal; nothing where no answer was asked anything."""
    if not found.levels:
        return ()
    return (_levels(found), *((_reasons(found),) if found.reasons else ()))


def _levels(found: Acceptance) -> PageTable:
    rows = tuple(
        (
            item.level.phase,
            UNDEFINED if item.level.step is None else str(item.level.step + 1),
            significant(item.level.offered_per_s),
            *map(count, (item.ok, item.checked, item.accepted, item.unchecked)),
            significant(_percent(item.share)),
            bounds(_percent(item.lo), _percent(item.hi)),
            significant(item.goodput_per_s),
        )
        for item in found.levels
    )
    head = ("phase", "level", "offered /s", "ok", "checked", "accepted", "not checked", "accepted, %", "95 % interval")
    return PageTable(
        name="acceptance",
        title="Accepted answers by load level",
        head=(*head, "goodput /s"),
        rows=rows,
        left=2,
        note="Goodput: answers that were accepted and within the objectives, per second. Not checked: a check failed "
        "itself or was behind; such answers are in no share.",
    )


def _reasons(found: Acceptance) -> PageTable:
    rows = tuple(
        ("refused" if item.refused else "not checked", item.reason.removeprefix("not checked: "), count(item.n))
        for item in found.reasons
    )
    return PageTable(
        name="acceptance-reasons",
        title="Why answers were not accepted",
        head=("what", "reason", "answers"),
        rows=rows,
        left=2,
        text=1,
        note="The first check that did not hold; empty, truncated and repeating are looked for wherever anything is.",
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
