"""Know what follows from the single events of responses; needs the events themselves, a part of a run at a time."""

from typing import NamedTuple

import numpy as np

from servebench.core.outcomes import CHUNK_KINDS, ChunkKind
from servebench.metrics.columns import BoolArray, ChunkColumns, EventFacts, FloatArray, IntArray

STALL_NS = 500e6
"""A gap of this length or more is a stall: a reader sees the text stop."""
READING_TOKENS_PER_S = 10.0
"""A fast reader: 450 words a minute. A token is on time if it comes before that reader has read those before it."""

_REASONING = CHUNK_KINDS.index(ChunkKind.REASONING)
_USAGE = CHUNK_KINDS.index(ChunkKind.USAGE)
_DONE = CHUNK_KINDS.index(ChunkKind.DONE)


class Gaps(NamedTuple):
    """Gaps between successive events, columns of shape (gaps,): length, index of the request, when it ended."""

    ns: FloatArray
    request: IntArray
    at_ns: FloatArray


def _edge(chunks: ChunkColumns, mask: BoolArray, *, last: bool = False) -> IntArray:
    """Return the index of each request's first (or last) event of the mask, -1 where there is none."""
    index = np.flatnonzero(mask)
    found = np.full(len(chunks.offsets) - 1, -1)
    owner = chunks.request()[index]
    change = owner[1:] != owner[:-1]
    edge = np.append(change, True) if last else np.insert(change, 0, True)
    chosen = edge[: len(index)]  # nothing to choose from where no event is of the mask
    found[owner[chosen]] = index[chosen]
    return found


def _at(values: FloatArray, index: IntArray) -> FloatArray:
    """Return values at the indices, NaN at -1."""
    found = np.full(len(index), np.nan)
    known = index >= 0
    found[known] = values[index[known]]
    return found


def gaps_of(chunks: ChunkColumns, events: BoolArray) -> Gaps:
    """Return the gaps between successive events of a mask within one choice; zeros are kept.

    Two choices are never mixed: events are put in order of (request, choice, arrival) before they are subtracted.
    """
    request = chunks.request()
    keep = np.flatnonzero(events)
    choice = chunks.choice[keep]
    if choice.any():
        keep = keep[np.lexsort((choice, request[keep]))]  # stable: arrival order stays within a choice
        choice = chunks.choice[keep]
    owner = request[keep]
    at = chunks.ns[keep]
    gap = np.diff(at)
    real = (np.diff(owner) == 0) & (np.diff(choice) == 0) & (gap >= 0)
    return Gaps(gap[real], owner[1:][real], at[1:][real])


def chunk_gaps(chunks: ChunkColumns, ok: BoolArray) -> Gaps:
    """Return the gaps between successive token events of one choice, of ok requests; `ok` has shape (n,)."""
    return gaps_of(chunks, chunks.is_token() & ok[chunks.request()])


def event_tokens(chunks: ChunkColumns, output_tokens: FloatArray) -> FloatArray:
    """Return tokens that each event brought, shape (events,); 0 for events that carry no text.

    Known per-event counts are used where a request has them all, else its output_tokens are shared evenly by its token
    events, else a token event counts as one token.
    """
    token, request, n = chunks.is_token(), chunks.request(), len(output_tokens)
    events = np.bincount(request[token], minlength=n)
    known = np.bincount(request[token & ~np.isnan(chunks.tokens)], minlength=n)
    share = np.divide(output_tokens, events, out=np.ones(n), where=(events > 0) & ~np.isnan(output_tokens))
    each = np.where((known == events)[request], chunks.tokens, share[request])
    return np.where(token, each, 0.0)


def _coalesced(chunks: ChunkColumns, n: int) -> FloatArray:
    """Return how many token events of each request shared a read with another."""
    keep = np.flatnonzero(chunks.is_token())
    owner, read = chunks.request()[keep], chunks.read[keep]
    same = (np.diff(owner) == 0) & (np.diff(read) == 0)
    shared = np.append(same, False) | np.insert(same, 0, False)
    return np.bincount(owner[shared[: len(owner)]], minlength=n).astype(np.float64)


def _sums(owner: IntArray, weights: FloatArray, n: int) -> FloatArray:
    return np.bincount(owner, weights, minlength=n).astype(np.float64)


def _on_time(chunks: ChunkColumns, tokens: FloatArray, first_ns: FloatArray) -> FloatArray:
    """Return how many tokens of each request came before a steady reader wanted them."""
    request = chunks.request()
    before = np.cumsum(tokens) - tokens
    start = np.zeros(len(chunks.offsets) - 1)
    filled = np.diff(chunks.offsets) > 0
    start[filled] = before[chunks.offsets[:-1][filled]]
    deadline = first_ns[request] + (before - start[request]) * (1e9 / READING_TOKENS_PER_S)
    return _sums(request, np.where(chunks.ns <= deadline, tokens, 0.0), len(first_ns))


def token_gaps(chunks: ChunkColumns) -> Gaps:
    """Return the gaps between successive token events of one choice, of all requests."""
    return gaps_of(chunks, chunks.is_token())


def event_facts(chunks: ChunkColumns, output_tokens: FloatArray) -> EventFacts:
    """Return what the events of each request come to; `output_tokens` has shape (n,), NaN = unknown."""
    return facts_of(chunks, event_tokens(chunks, output_tokens), token_gaps(chunks))


def facts_of(chunks: ChunkColumns, each: FloatArray, gaps: Gaps) -> EventFacts:
    """Return what the events of each request come to, from what `event_tokens` and `token_gaps` made of them."""
    n = len(chunks.offsets) - 1
    token, choice = chunks.is_token(), chunks.is_choice()
    first = _edge(chunks, token)
    longest = np.full(n, -np.inf)
    np.maximum.at(longest, gaps.request, gaps.ns)
    long = gaps.ns >= STALL_NS
    first_ns = _at(chunks.ns, first)
    usage_ns = _at(chunks.ns, _edge(chunks, chunks.kind == _USAGE))
    return EventFacts(
        first_token_ns=first_ns,
        first_answer_ns=_at(chunks.ns, _edge(chunks, token & (chunks.kind != _REASONING))),
        last_token_ns=_at(chunks.ns, _edge(chunks, token, last=True)),
        first_choice_ns=_at(chunks.ns, _edge(chunks, choice)),
        last_choice_ns=_at(chunks.ns, _edge(chunks, choice, last=True)),
        closing_ns=np.where(np.isnan(usage_ns), _at(chunks.ns, _edge(chunks, chunks.kind == _DONE)), usage_ns),
        first_tokens=_at(chunks.tokens, first),
        token_events=np.bincount(chunks.request()[token], minlength=n).astype(np.float64),
        coalesced=_coalesced(chunks, n),
        longest_gap_ns=np.where(np.isfinite(longest), longest, np.nan),
        stalls=np.bincount(gaps.request[long], minlength=n).astype(np.float64),
        stall_ns=_sums(gaps.request[long], gaps.ns[long], n),
        on_time=_on_time(chunks, each, first_ns),
        tokens=_sums(chunks.request(), each, n),
    )
