"""Know when output tokens arrived, per request and stretch of the run, without keeping the events."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from servebench.core.units import NS_PER_S
from servebench.metrics import ChunkColumns, RequestColumns, Window
from servebench.metrics.columns import BoolArray, FloatArray, IntArray
from servebench.metrics.events import Gaps
from servebench.shards.manifest import Manifest


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
    """Takes the parts of a run one after the other; builders of neighbouring parts add up."""

    edges_ns: FloatArray
    found: list[tuple[IntArray, IntArray, FloatArray]] = field(default_factory=list)
    per_second: FloatArray = field(default_factory=lambda: np.zeros(1))
    longest: FloatArray = field(default_factory=lambda: np.zeros(1))
    rows: int = 0

    def add(self, c: RequestColumns, chunks: ChunkColumns, each: FloatArray, gaps: Gaps) -> None:
        """Count the tokens (`each` of an event) and gaps of a part.

        An answer in one piece brings its tokens at its end.
        """
        whole = np.flatnonzero(c.ok & np.isnan(c.events.first_token_ns) & (c.output_tokens > 0) & ~np.isnan(c.end_ns))
        row = np.concatenate((chunks.request(), whole))
        ns = np.concatenate((chunks.ns, c.end_ns[whole]))
        tokens = np.concatenate((each, c.output_tokens[whole]))
        size = len(self.edges_ns) + 1
        cell = row * size + np.searchsorted(self.edges_ns, ns, side="right")
        sums = np.bincount(cell, tokens, minlength=1)
        filled = np.flatnonzero(sums)
        self.found.append((filled // size + self.rows, filled % size, sums[filled].astype(np.float64)))
        self._count_seconds(ns, tokens)
        self._note_gaps(gaps)
        self.rows += len(c)

    def _count_seconds(self, ns: FloatArray, tokens: FloatArray) -> None:
        seconds = np.maximum(ns.astype(np.int64) // NS_PER_S, 0)
        counted: FloatArray = np.bincount(seconds, tokens, minlength=len(self.per_second)).astype(np.float64)
        counted[: len(self.per_second)] += self.per_second
        self.per_second = counted

    def _note_gaps(self, gaps: Gaps) -> None:
        seconds = np.maximum(gaps.at_ns.astype(np.int64) // NS_PER_S, 0)
        longest = np.zeros(max(len(self.longest), int(seconds.max(initial=0)) + 1))
        longest[: len(self.longest)] = self.longest
        np.maximum.at(longest, seconds, gaps.ns)
        self.longest = longest

    def merge(self, other: "FlowBuilder") -> None:
        """Take what another builder counted of the parts that follow."""
        self.found += [(rows + self.rows, stretches, tokens) for rows, stretches, tokens in other.found]
        self.rows += other.rows
        self.per_second = _padded(self.per_second, len(other.per_second))
        self.per_second[: len(other.per_second)] += other.per_second
        self.longest = _padded(self.longest, len(other.longest))
        mine = self.longest[: len(other.longest)]
        np.maximum(mine, other.longest, out=mine)

    def finish(self, place: IntArray) -> TokenFlow:
        """Return the flow; `place` says where each row, counted over all parts in order, stands in the run."""
        rows, stretches, tokens = (
            (np.concatenate(list(column)) for column in zip(*self.found, strict=True))
            if self.found
            else (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        )
        return TokenFlow(
            edges_ns=self.edges_ns,
            row=place[rows],
            stretch=stretches,
            tokens=tokens,
            per_second=self.per_second,
            longest_gap_ns=self.longest,
        )


def _padded(values: FloatArray, size: int) -> FloatArray:
    """Return the values with zeros behind them, at least `size` of both."""
    return np.concatenate((values, np.zeros(max(0, size - len(values)))))


def window_tokens(flow: TokenFlow, windows: Sequence[Window], rows: BoolArray | None = None) -> float:
    """Return the tokens of several windows together."""
    return sum(flow.inside(window, rows) for window in windows)
