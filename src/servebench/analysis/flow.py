"""Know when output tokens arrived, per request and stretch of the run, without keeping the events."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from servebench.metrics import ChunkColumns, RequestColumns, Window
from servebench.metrics.columns import BoolArray, FloatArray, IntArray
from servebench.metrics.events import Gaps, event_tokens
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


class FlowBuilder:
    """Takes the parts of a run one after the other."""

    def __init__(self, edges_ns: FloatArray) -> None:
        self.edges_ns = edges_ns
        self._found: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._per_second: FloatArray = np.zeros(1)
        self._longest: FloatArray = np.zeros(1)
        self._rows = 0

    def add(self, c: RequestColumns, chunks: ChunkColumns, gaps: Gaps) -> None:
        """Count the tokens and gaps of a part; an answer in one piece brings its tokens at its end."""
        whole = np.flatnonzero(c.ok & np.isnan(c.events.first_token_ns) & (c.output_tokens > 0) & ~np.isnan(c.end_ns))
        row = np.concatenate((chunks.request(), whole))
        ns = np.concatenate((chunks.ns, c.end_ns[whole]))
        tokens = np.concatenate((event_tokens(chunks, c.output_tokens), c.output_tokens[whole]))
        size = len(self.edges_ns) + 1
        cell = row * size + np.searchsorted(self.edges_ns, ns, side="right")
        sums = np.bincount(cell, tokens, minlength=1)
        filled = np.flatnonzero(sums)
        self._found.append((filled // size + self._rows, filled % size, sums[filled].astype(np.float64)))
        self._count_seconds(ns, tokens)
        self._note_gaps(gaps)
        self._rows += len(c)

    def _count_seconds(self, ns: FloatArray, tokens: FloatArray) -> None:
        seconds = np.maximum(ns // 1e9, 0).astype(np.int64)
        counted: FloatArray = np.bincount(seconds, tokens, minlength=len(self._per_second)).astype(np.float64)
        counted[: len(self._per_second)] += self._per_second
        self._per_second = counted

    def _note_gaps(self, gaps: Gaps) -> None:
        seconds = np.maximum(gaps.at_ns // 1e9, 0).astype(np.int64)
        longest = np.zeros(max(len(self._longest), int(seconds.max(initial=0)) + 1))
        longest[: len(self._longest)] = self._longest
        np.maximum.at(longest, seconds, gaps.ns)
        self._longest = longest

    def finish(self, place: IntArray) -> TokenFlow:
        """Return the flow; `place` says where each row, counted over all parts in order, stands in the run."""
        rows, stretches, tokens = (
            (np.concatenate(list(column)) for column in zip(*self._found, strict=True))
            if self._found
            else (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        )
        return TokenFlow(
            edges_ns=self.edges_ns,
            row=place[rows],
            stretch=stretches,
            tokens=tokens,
            per_second=self._per_second,
            longest_gap_ns=self._longest,
        )


def window_tokens(flow: TokenFlow, windows: Sequence[Window], rows: BoolArray | None = None) -> float:
    """Return the tokens of several windows together."""
    return sum(flow.inside(window, rows) for window in windows)
