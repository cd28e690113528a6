"""Know when output tokens arrived, per request and stretch of the run, without keeping the events."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from servebench.core.units import NS_PER_S
from servebench.metrics import RequestColumns, Window
from servebench.metrics.columns import BoolArray, FloatArray, IntArray
from servebench.metrics.events import NO_GAP, Stretches, TokenEvents
from servebench.shards.manifest import Manifest

SHARES = 1 << 20
MOST_SECONDS = 90 * 86_400
"""Longest series by second, 90 days: a stamp beyond it is of another clock, and is in no series."""
_Number = TypeVar("_Number", np.int64, np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFlow:
    """Output tokens by arrival, whatever became of their request.

    `row`, `stretch` and `tokens` have one element per request and stretch in which it got tokens; stretch k is
    [edges_ns[k - 1], edges_ns[k]), the first and the last are open. `per_second[s]` counts those of second s of the
    run clock; `longest_gap_ns[s]` is the longest gap of any request that ends in it, 0 = none.
    """

    edges_ns: FloatArray
    row: IntArray
    stretch: IntArray
    tokens: FloatArray
    per_second: FloatArray
    longest_gap_ns: FloatArray

    def inside(self, window: Window, rows: BoolArray | None = None) -> float:
        """Return the tokens that arrived in a window whose ends are edges; of the rows of a mask, None = of all."""
        first = int(np.searchsorted(self.edges_ns, window.start_ns, side="left")) + 1
        last = int(np.searchsorted(self.edges_ns, window.end_ns, side="left"))
        chosen = (self.stretch >= first) & (self.stretch <= last)
        if rows is not None:
            chosen &= rows[self.row]
        return float(np.sum(self.tokens[chosen]))


def edges_of(manifest: Manifest) -> FloatArray:
    """Return every moment at which a window of a run can begin or end, ascending."""
    ends = {float(manifest.stop_ns)} if manifest.stop_ns is not None else set()
    for phase in manifest.phases:
        ends |= {float(phase.start_ns), float(phase.end_ns)}
        ends |= {float(end) for step in phase.steps for end in (step.start_ns, step.end_ns)}
    return np.array(sorted(ends), np.float64)


@dataclass(slots=True)
class FlowBuilder:
    """Takes the requests of a run one block after the other; builders of neighbouring blocks add up.

    `shares` counts tokens by second in SHARES to a token, rounded once for each request and second: whole numbers, so
    that no order of adding changes them.
    """

    edges_ns: FloatArray
    found: list[tuple[IntArray, IntArray, FloatArray]] = field(default_factory=list)
    shares: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))
    longest: FloatArray = field(default_factory=lambda: np.zeros(1))
    rows: int = 0

    def add(self, tokens: TokenEvents, clean: BoolArray) -> None:
        """Count the token events of some requests, and the gaps of those that are clean."""
        if len(tokens.each):
            self._count_stretches(tokens)
            second, runs = _runs(tokens.arrived)
            self._count_seconds(second, np.add.reduceat(tokens.each, runs))
            self._note_gaps(tokens.by_choice, clean)
        self.rows += len(clean)

    def add_whole(self, c: RequestColumns) -> None:
        """Count answers in one piece, which bring their tokens at their end; `c` holds the requests added last."""
        mine = np.flatnonzero(c.ok & np.isnan(c.events.first_token_ns) & (c.output_tokens > 0) & ~np.isnan(c.end_ns))
        ns, tokens = c.end_ns[mine], c.output_tokens[mine]
        self.found.append((mine + self.rows - len(c), np.searchsorted(self.edges_ns, ns, side="right"), tokens))
        self._count_seconds(_second(ns), tokens)

    def _count_stretches(self, tokens: TokenEvents) -> None:
        events, starts = tokens.arrived, tokens.arrived.starts()
        row = np.flatnonzero(events.filled())
        first, last = (
            np.searchsorted(self.edges_ns, edge.reduceat(events.ns, starts), side="right")
            for edge in (np.minimum, np.maximum)
        )
        sums, within = np.add.reduceat(tokens.each, starts), first == last
        self.found.append((row[within] + self.rows, first[within], sums[within]))
        if not within.all():
            torn = np.repeat(~within, np.diff(events.offsets)[row])
            size = len(self.edges_ns) + 1
            stretch = np.searchsorted(self.edges_ns, events.ns[torn], side="right")
            cells = np.bincount(events.request()[torn] * size + stretch, tokens.each[torn])
            filled = np.flatnonzero(cells)
            self.found.append((filled // size + self.rows, filled % size, cells[filled].astype(np.float64)))

    def _count_seconds(self, second: IntArray, tokens: FloatArray) -> None:
        known = second < MOST_SECONDS
        second, tokens = second[known], tokens[known]
        size = int(second.max(initial=0)) + 1
        self.shares = _padded(self.shares, size)
        # A float64 holds whole numbers up to 2**53: a block would have to bring 8 thousand million tokens in a second.
        self.shares[:size] += np.bincount(second, np.round(tokens * SHARES), minlength=size).astype(np.int64)

    def _note_gaps(self, events: Stretches, clean: BoolArray) -> None:
        second, runs = _runs(events)
        longest = np.maximum.reduceat(events.gap_ns, runs)
        counted = clean[np.searchsorted(events.offsets, runs, side="right") - 1] & (longest > NO_GAP)
        counted &= second < MOST_SECONDS
        self.longest = _padded(self.longest, int(second[counted].max(initial=0)) + 1)
        np.maximum.at(self.longest, second[counted], longest[counted])

    def merge(self, other: "FlowBuilder") -> None:
        """Take what another builder counted of the requests that follow."""
        self.found += [(rows + self.rows, stretches, tokens) for rows, stretches, tokens in other.found]
        self.rows += other.rows
        self.shares = _padded(self.shares, len(other.shares))
        self.shares[: len(other.shares)] += other.shares
        self.longest = _padded(self.longest, len(other.longest))
        mine = self.longest[: len(other.longest)]
        np.maximum(mine, other.longest, out=mine)

    def finish(self, place: IntArray) -> TokenFlow:
        """Return the flow; `place` says where each row, counted over all blocks in order, stands in the run."""
        rows, stretches, tokens = (
            (np.concatenate(list(column)) for column in zip(*self.found, strict=True))
            if self.found
            else (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        )
        order = np.lexsort((stretches, place[rows]))  # sums of floats depend on their order, parts must not
        return TokenFlow(
            edges_ns=self.edges_ns,
            row=place[rows][order],
            stretch=stretches[order],
            tokens=tokens[order],
            per_second=self.shares / SHARES,
            longest_gap_ns=self.longest,
        )


def _second(ns: FloatArray) -> IntArray:
    """Return the second of the run clock; what came before 0 counts to second 0."""
    found: IntArray = np.maximum(ns, 0).astype(np.int64) // NS_PER_S
    return found


def _runs(events: Stretches) -> tuple[IntArray, IntArray]:
    """Return runs of neighbouring events of one request and second: which second, and where each run begins."""
    second = _second(events.ns)
    begins = np.ones(len(second), bool)
    np.not_equal(second[1:], second[:-1], out=begins[1:])
    begins[events.starts()] = True
    runs = np.flatnonzero(begins)
    return second[runs], runs


def _padded(values: npt.NDArray[_Number], size: int) -> npt.NDArray[_Number]:
    """Return the values with zeros behind them, at least `size` of both."""
    return np.pad(values, (0, max(0, size - len(values))))


def window_tokens(flow: TokenFlow, windows: Sequence[Window], rows: BoolArray | None = None) -> float:
    """Return the tokens of several windows together."""
    return sum(flow.inside(window, rows) for window in windows)
