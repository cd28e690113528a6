"""Know how many requests of a run ended how, in all and per phase."""

from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from servebench.analysis.accounting import UNKNOWN, Accounting
from servebench.analysis.columns import word_codes
from servebench.analysis.numbers import plain
from servebench.analysis.rates import rate_over
from servebench.analysis.source import RunData
from servebench.analysis.token_counts import nothing_counted
from servebench.analysis.verdict import phase_planned
from servebench.analysis.windows import phase_windows, sent_outside
from servebench.core.outcomes import Outcome
from servebench.metrics import Window
from servebench.metrics.columns import BoolArray, distinct
from servebench.shards.arrow import fixed_column, nulls_of, values_of


class OutcomeCount(NamedTuple):
    """Rows that ended one way; `example` is what the server or the system said once, None where nobody did."""

    outcome: str
    error_class: str | None
    n: int
    example: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCounts:
    """One phase that ran. `sent` = rows that reached the wire; `window` is cut at the stop."""

    name: str
    shape: str
    measured: bool
    window: Window
    planned: int
    sent: int
    ok: int
    failed: int
    cancelled: int
    shed: int
    late: int
    lost: int
    answered_per_s: float
    output_tokens_per_s: float

    def record(self) -> dict[str, str | int | float | None]:
        """Return a plain object for JSON and CSV, units in the names."""
        return {
            "phase": self.name,
            "shape": self.shape,
            "measured": "yes" if self.measured else "no",
            "start_s": plain(self.window.start_ns / 1e9),
            "end_s": plain(self.window.end_ns / 1e9),
            "planned": self.planned,
            "sent": self.sent,
            "ok": self.ok,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "shed": self.shed,
            "late": self.late,
            "lost": self.lost,
            "answered_per_s": plain(self.answered_per_s),
            "output_tokens_per_s": plain(self.output_tokens_per_s),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Measured requests together; `warmup` = rows left out, `seconds` = measured time.

    `spoiled` = rows that were sent in a second which the client spoiled, left out of latency. `sent_outside` = rows
    that were sent outside the window of their phase.
    """

    rows: int
    warmup: int
    planned: int
    sent: int
    ok: int
    failed: int
    cancelled: int
    shed: int
    late: int
    lost: int
    spoiled: int
    sent_outside: int
    seconds: float


def count_phases(run: RunData, books: Accounting) -> tuple[PhaseCounts, ...]:
    """Return the counts of each phase that ran, in order."""
    windows = phase_windows(run)
    records = [phase for phase in run.manifest.phases if phase.name in windows]
    rows = [
        len(distinct(run.seq[run.phase == phase.name])) + books.lost_by_phase.get(phase.name, 0) for phase in records
    ]
    planned = phase_planned([phase.planned for phase in records], rows, books.planned)
    return tuple(
        _phase(
            run,
            phase.name,
            (phase.shape, phase.measured),
            windows[phase.name],
            (size, books.lost_by_phase.get(phase.name, 0)),
        )
        for phase, size in zip(records, planned, strict=True)
    )


def _phase(run: RunData, name: str, kind: tuple[str, bool], window: Window, books: tuple[int, int]) -> PhaseCounts:
    mine = np.asarray(run.phase == name, dtype=bool)
    return PhaseCounts(
        name=name,
        shape=kind[0],
        measured=kind[1],
        window=window,
        planned=books[0],
        sent=int(np.sum(mine & ~np.isnan(run.columns.sent_ns))),
        ok=int(np.sum(mine & run.columns.ok)),
        failed=int(np.sum(mine & run.columns.failed)),
        cancelled=_ended(run, mine, Outcome.CANCELLED),
        shed=_ended(run, mine, Outcome.SHED),
        late=int(np.sum(mine & run.late)),
        lost=books[1],
        answered_per_s=rate_over("request_throughput", run, [window]),
        output_tokens_per_s=nan if nothing_counted(run) else rate_over("output_token_throughput", run, [window]),
    )


def _ended(run: RunData, rows: BoolArray, outcome: Outcome) -> int:
    return int(np.sum(rows & (run.outcome == outcome.value)))


def count_measured(run: RunData, phases: tuple[PhaseCounts, ...]) -> Counts:
    """Return the counts of all measured phases together."""
    chosen = [phase for phase in phases if phase.measured]
    total = {
        name: sum(getattr(phase, name) for phase in chosen)
        for name in ("planned", "sent", "ok", "failed", "cancelled", "shed", "late", "lost")
    }
    return Counts(
        rows=int(np.sum(run.measured)),
        warmup=int(np.sum(~run.measured)),
        spoiled=int(np.sum(run.measured & run.spoiled)),
        sent_outside=sent_outside(run),
        seconds=sum(phase.window.seconds for phase in chosen),
        **total,
    )


def count_outcomes(run: RunData) -> tuple[OutcomeCount, ...]:
    """Return how measured rows ended, most frequent first, ok before all; "unknown" where a row does not say."""
    (outcome, outcomes), (kind, kinds) = (word_codes(run.table, name) for name in ("outcome", "error_class"))
    outcomes = (*outcomes, UNKNOWN)
    key = np.where(outcome < 0, len(outcomes) - 1, outcome) * (len(kinds) + 1) + kind + 1
    sizes = np.bincount(key[run.measured])
    found = []
    for value in np.flatnonzero(sizes).tolist():
        word, place = divmod(value, len(kinds) + 1)
        mine = run.table["error_message"].filter(fixed_column(run.measured & (key == value), pa.bool_()))
        error_class = kinds[place - 1] if place else None
        found.append(OutcomeCount(outcomes[word], error_class, int(sizes[value]), _first_text(mine)))
    return tuple(sorted(found, key=lambda item: (item.outcome != Outcome.OK.value, -item.n, str(item[:2]))))


def _first_text(column: "pa.ChunkedArray[Any]") -> str | None:
    """Return the first text that is not empty, None without."""
    lengths = pc.binary_length(column)
    told = np.flatnonzero(~nulls_of(lengths) & (values_of(lengths) > 0))
    return str(column[int(told[0])].as_py()) if len(told) else None
