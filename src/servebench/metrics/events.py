"""Know what follows from the single events of responses; needs the events themselves, a part of a run at a time.

Everything is done by whole columns and once per event: what belongs to one request is a stretch of the columns, so sums
and counts per request are differences at the ends of stretches.
"""

from typing import NamedTuple

import numpy as np

from servebench.core.outcomes import CHUNK_KINDS, ChunkKind
from servebench.metrics.columns import BoolArray, ChunkColumns, EventFacts, FloatArray, IntArray

STALL_NS = 500e6
"""A gap of this length or more is a stall: a reader sees the text stop."""
READING_TOKENS_PER_S = 10.0
"""A fast reader: 450 words a minute. A token is on time if it comes before that reader has read those before it."""
NO_GAP = -1.0
"""Stands where an event has no gap: before the first of a choice, or where a stamp lies before the one it follows."""

_REASONING = CHUNK_KINDS.index(ChunkKind.REASONING)
_USAGE = CHUNK_KINDS.index(ChunkKind.USAGE)
_DONE = CHUNK_KINDS.index(ChunkKind.DONE)
_READING_NS = 1e9 / READING_TOKENS_PER_S


class Gaps(NamedTuple):
    """Gaps between successive events, columns of shape (gaps,): length, index of the request, when it ended."""

    ns: FloatArray
    request: IntArray
    at_ns: FloatArray


class Stretches(NamedTuple):
    """Some events of responses; those of request i are [offsets[i], offsets[i + 1]).

    `event` says which events they are, `ns` when they came, `gap_ns` how long after the one before of the same choice,
    NO_GAP where there is none.
    """

    event: IntArray
    offsets: IntArray
    ns: FloatArray
    gap_ns: FloatArray

    def request(self) -> IntArray:
        """Return the index of the request that each of them belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def filled(self) -> BoolArray:
        """Return which requests have any."""
        return np.diff(self.offsets) > 0

    def starts(self) -> IntArray:
        """Return where those of each request that has any begin."""
        return self.offsets[:-1][self.filled()]


class TokenEvents(NamedTuple):
    """The token events of some responses, in order of arrival and, for gaps, choice by choice; `each` is their tokens.

    Both are the same where no response has two choices.
    """

    arrived: Stretches
    by_choice: Stretches
    each: FloatArray


def token_events(chunks: ChunkColumns, output_tokens: FloatArray) -> TokenEvents:
    """Return the token events; `output_tokens` per request of shape (n,), NaN = unknown."""
    index = np.flatnonzero(chunks.is_token())
    arrived = _stretches(chunks, index)
    by_choice = _by_choice(chunks, index, arrived)
    return TokenEvents(arrived, by_choice, _tokens_of(chunks, arrived, output_tokens))


def _stretches(chunks: ChunkColumns, index: IntArray) -> Stretches:
    """Return events in the order of their index, as if each response had one choice."""
    offsets = np.searchsorted(index, chunks.offsets)
    return _spaced(chunks, index, offsets, offsets[:-1])


def _spaced(chunks: ChunkColumns, index: IntArray, offsets: IntArray, first: IntArray) -> Stretches:
    """Return the stretches with their gaps; `first` names the places before which there is none."""
    ns = chunks.ns[index]
    gap = np.empty(len(ns))
    np.subtract(ns[1:], ns[:-1], out=gap[1:])
    gap[first[first < len(ns)]] = NO_GAP
    np.maximum(gap, NO_GAP, out=gap)
    return Stretches(index, offsets, ns, gap)


def _by_choice(chunks: ChunkColumns, index: IntArray, arrived: Stretches) -> Stretches:
    """Return the same events by (request, choice, arrival), so that two choices are never mixed."""
    if chunks.one_choice():
        return arrived
    request, choice = arrived.request(), chunks.choice[index]
    order = np.lexsort((choice, request))  # stable: arrival order stays within a choice
    request, choice = request[order], choice[order]
    first = np.flatnonzero(np.append(True, (np.diff(request) != 0) | (np.diff(choice) != 0)))
    return _spaced(chunks, index[order], arrived.offsets, first)


def gaps_of(chunks: ChunkColumns, events: BoolArray) -> Gaps:
    """Return the gaps between successive events of a mask within one choice; zeros are kept."""
    index = np.flatnonzero(events)
    return known_gaps(_by_choice(chunks, index, _stretches(chunks, index)))


def known_gaps(events: Stretches) -> Gaps:
    """Return the gaps that there are."""
    real = events.gap_ns > NO_GAP
    return Gaps(events.gap_ns[real], events.request()[real], events.ns[real])


def chunk_gaps(chunks: ChunkColumns, ok: BoolArray) -> Gaps:
    """Return the gaps between successive token events of one choice, of ok requests; `ok` has shape (n,)."""
    token = chunks.is_token()
    return gaps_of(chunks, token if ok.all() else token & np.repeat(ok, np.diff(chunks.offsets)))


def _tokens_of(chunks: ChunkColumns, tokens: Stretches, output_tokens: FloatArray) -> FloatArray:
    """Return the tokens that each token event brought.

    Known per-event counts are used where a request has them all, else its output_tokens are shared evenly by its token
    events, else a token event counts as one token.
    """
    events = np.diff(tokens.offsets)
    share = np.divide(output_tokens, events, out=np.ones(len(events)), where=(events > 0) & ~np.isnan(output_tokens))
    shared: FloatArray = np.repeat(share, events)
    if chunks.counts_no_tokens():
        return shared
    own = chunks.tokens[tokens.event]
    known = _inside(np.flatnonzero(~np.isnan(own)), tokens.offsets)
    return np.where(np.repeat(known == events, events), own, shared)


def event_tokens(chunks: ChunkColumns, output_tokens: FloatArray) -> FloatArray:
    """Return tokens that each event brought, shape (events,); 0 for events that carry no text."""
    tokens = token_events(chunks, output_tokens)
    found = np.zeros(len(chunks))
    found[tokens.arrived.event] = tokens.each
    return found


def _inside(places: IntArray, offsets: IntArray) -> IntArray:
    """Return how many of some ascending places lie in each stretch."""
    return np.diff(np.searchsorted(places, offsets))


def _per_request(events: Stretches, reduce: np.ufunc, values: FloatArray, nothing: float) -> FloatArray:
    """Return the values of each request reduced to one; `nothing` for requests without events."""
    found = np.full(len(events.offsets) - 1, nothing)
    if len(values):
        found[events.filled()] = reduce.reduceat(values, events.starts())
    return found


def _at(values: FloatArray, index: IntArray, filled: BoolArray) -> FloatArray:
    """Return the values at the indices for the requests of a mask, NaN for the others."""
    found = np.full(len(filled), np.nan)
    found[filled] = values[index]
    return found


def _ends(chunks: ChunkColumns, mask: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return when the first and the last event of a mask came, NaN where a request has none."""
    index = np.flatnonzero(mask)
    offsets = np.searchsorted(index, chunks.offsets)
    filled = np.diff(offsets) > 0
    first, last = index[offsets[:-1][filled]], index[offsets[1:][filled] - 1]
    return _at(chunks.ns, first, filled), _at(chunks.ns, last, filled)


def _coalesced(chunks: ChunkColumns, tokens: Stretches) -> IntArray:
    """Return how many token events of each request shared a read with another."""
    read = chunks.read[tokens.event]
    same = np.zeros(len(read) + 1, bool)  # with the one before; the last place is nobody's
    np.equal(read[1:], read[:-1], out=same[1:-1])
    same[tokens.offsets] = False
    return _inside(np.flatnonzero(same[:-1] | same[1:]), tokens.offsets)


def _on_time(tokens: TokenEvents, all_of_them: FloatArray) -> FloatArray:
    """Return how many tokens of each request came before a steady reader wanted them.

    A request without a gap longer than the reading of the event before it is on time throughout; only the others are
    looked at event by event.
    """
    events, each = tokens.arrived, tokens.each
    slow = np.flatnonzero(events.gap_ns[1:] > each[:-1] * _READING_NS) + 1
    found = all_of_them.copy()
    doubtful = np.flatnonzero(_inside(slow, events.offsets))
    sizes = np.diff(events.offsets)[doubtful]
    ends = np.cumsum(sizes)
    start = np.repeat(ends - sizes, sizes)
    begin = np.repeat(events.offsets[doubtful], sizes)
    place = begin + np.arange(len(start)) - start
    mine = each[place]
    along = np.cumsum(mine) - mine
    deadline = events.ns[begin] + (along - along[start]) * _READING_NS
    in_time = np.where(events.ns[place] <= deadline, mine, 0.0)
    found[doubtful] = np.add.reduceat(in_time, ends - sizes) if len(doubtful) else 0.0
    return found


def event_facts(chunks: ChunkColumns, output_tokens: FloatArray) -> EventFacts:
    """Return what the events of each request come to; `output_tokens` has shape (n,), NaN = unknown."""
    return facts_of(chunks, token_events(chunks, output_tokens))


def facts_of(chunks: ChunkColumns, tokens: TokenEvents) -> EventFacts:
    """Return what the events of each request come to, from what `token_events` made of them."""
    arrived, gap = tokens.arrived, tokens.by_choice.gap_ns
    filled = arrived.filled()
    first = arrived.event[arrived.starts()]
    first_ns = _at(chunks.ns, first, filled)
    reasoned = chunks.kind == _REASONING
    long = np.flatnonzero(gap >= STALL_NS)
    request = np.searchsorted(tokens.by_choice.offsets, long, side="right") - 1
    longest = _per_request(tokens.by_choice, np.maximum, gap, NO_GAP)
    first_choice, last_choice = _ends(chunks, chunks.is_choice())
    usage, done = (_ends(chunks, chunks.kind == kind)[0] for kind in (_USAGE, _DONE))
    total = _per_request(arrived, np.add, tokens.each, 0.0)
    return EventFacts(
        first_token_ns=first_ns,
        first_answer_ns=_ends(chunks, chunks.is_token() & ~reasoned)[0] if reasoned.any() else first_ns,
        last_token_ns=_at(arrived.ns, arrived.offsets[1:][filled] - 1, filled),
        first_choice_ns=first_choice,
        last_choice_ns=last_choice,
        closing_ns=np.where(np.isnan(usage), done, usage),
        first_tokens=_at(chunks.tokens, first, filled),
        token_events=np.diff(arrived.offsets).astype(np.float64),
        coalesced=_coalesced(chunks, arrived).astype(np.float64),
        longest_gap_ns=np.where(longest > NO_GAP, longest, np.nan),
        stalls=np.bincount(request, minlength=len(filled)).astype(np.float64),
        stall_ns=np.bincount(request, gap[long], minlength=len(filled)).astype(np.float64),
        on_time=_on_time(tokens, total),
        tokens=total,
    )
