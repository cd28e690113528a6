"""Know how each metric follows from the columns of requests.

Spans are float64 ns of shape (n,), NaN where undefined. Spans that describe a response exist for `ok` requests only, so
that fast failures cannot improve a latency. A span below zero is no measurement (a stamp is wrong): it becomes NaN and
`impossible_spans` counts it. Rates are numbers per second of a half-open window, NaN for a window without length.
"""

from typing import NamedTuple

import numpy as np

from servebench.core.outcomes import CHUNK_KINDS, ChunkKind
from servebench.metrics.columns import BoolArray, FloatArray, IntArray, RequestColumns, Window

_REASONING = CHUNK_KINDS.index(ChunkKind.REASONING)


class Gaps(NamedTuple):
    """Gaps between successive token events: `ns` and the index of the request, both of shape (gaps,)."""

    ns: FloatArray
    request: IntArray


def _span(later: FloatArray, earlier: FloatArray, where: BoolArray) -> FloatArray:
    """Return later - earlier where it is defined and not negative."""
    span = later - earlier
    return np.where(where & (span >= 0), span, np.nan)


def _edge_event(c: RequestColumns, mask: BoolArray, *, last: bool = False) -> FloatArray:
    """Return the stamp of each request's first (or last) event of the mask, NaN where there is none."""
    found = np.full(len(c), np.nan)
    index = np.flatnonzero(mask)
    owner = c.chunks.request()[index]
    change = owner[1:] != owner[:-1]
    edge = np.append(change, True) if last else np.insert(change, 0, True)
    chosen = edge[: len(index)]  # nothing to choose from where no event is of the mask
    found[owner[chosen]] = c.chunks.ns[index[chosen]]
    return found


def first_token_ns(c: RequestColumns) -> FloatArray:
    """Return the stamp of the first token event of any kind and choice."""
    return _edge_event(c, c.chunks.is_token())


def first_answer_ns(c: RequestColumns) -> FloatArray:
    """Return the stamp of the first token event that is not reasoning."""
    return _edge_event(c, c.chunks.is_token() & (c.chunks.kind != _REASONING))


def last_token_ns(c: RequestColumns) -> FloatArray:
    """Return the stamp of the last token event of any kind and choice."""
    return _edge_event(c, c.chunks.is_token(), last=True)


def dispatch_lag_ns(c: RequestColumns) -> FloatArray:
    """Return dispatched - intended of every request with both, whatever came of it; NaN for closed load."""
    return c.dispatched_ns - c.intended_ns


def send_lag_ns(c: RequestColumns) -> FloatArray:
    """Return sent - intended of every request with both; holds connecting and TLS."""
    return c.sent_ns - c.intended_ns


def ttft_ns(c: RequestColumns) -> FloatArray:
    """Return first token event - sent of ok requests."""
    return _span(first_token_ns(c), c.sent_ns, c.ok)


def ttft_intended_ns(c: RequestColumns) -> FloatArray:
    """Return first token event - intended of ok requests; holds the wait before sending."""
    return _span(first_token_ns(c), c.intended_ns, c.ok)


def ttfo_ns(c: RequestColumns) -> FloatArray:
    """Return first token event that is not reasoning - sent, of ok requests."""
    return _span(first_answer_ns(c), c.sent_ns, c.ok)


def e2e_ns(c: RequestColumns) -> FloatArray:
    """Return end - sent of ok requests."""
    return _span(c.end_ns, c.sent_ns, c.ok)


def e2e_intended_ns(c: RequestColumns) -> FloatArray:
    """Return end - intended of ok requests; holds the wait before sending."""
    return _span(c.end_ns, c.intended_ns, c.ok)


def time_to_last_token_ns(c: RequestColumns) -> FloatArray:
    """Return last token event - sent of ok requests; leaves out what the server sends after it."""
    return _span(last_token_ns(c), c.sent_ns, c.ok)


def tpot_ns(c: RequestColumns) -> FloatArray:
    """Return mean time per output token after the first, ns per token, of ok requests.

    NaN without two token events at different times and two output tokens.
    Formula: (last token event - first token event) / (output_tokens - 1).
    """
    span = last_token_ns(c) - first_token_ns(c)
    defined = c.ok & (span > 0) & (c.output_tokens >= 2)
    result = np.full(len(c), np.nan)
    np.divide(span, c.output_tokens - 1, out=result, where=defined)
    return result


def chunk_gaps(c: RequestColumns) -> Gaps:
    """Return the gaps between successive token events of one choice, of ok requests; zeros are kept.

    Two choices are never mixed: events are put in order of (request, choice, arrival) before they are subtracted.
    """
    request = c.chunks.request()
    keep = np.flatnonzero(c.chunks.is_token() & c.ok[request])
    choice = c.chunks.choice[keep]
    if choice.any():
        keep = keep[np.lexsort((choice, request[keep]))]  # stable: arrival order stays within a choice
        choice = c.chunks.choice[keep]
    owner = request[keep]
    gap = np.diff(c.chunks.ns[keep])
    real = (np.diff(owner) == 0) & (np.diff(choice) == 0) & (gap >= 0)
    return Gaps(gap[real], owner[1:][real])


def coalesced_share(c: RequestColumns) -> float:
    """Return the share of token events of ok requests that shared a read with another one; NaN without events."""
    request = c.chunks.request()
    keep = c.chunks.is_token() & c.ok[request]
    owner, read = request[keep], c.chunks.read[keep]
    if not len(owner):
        return float("nan")
    same = (np.diff(owner) == 0) & (np.diff(read) == 0)
    return float(np.mean(np.append(same, False) | np.insert(same, 0, False)))


def impossible_spans(c: RequestColumns) -> int:
    """Return how many ok requests hold a stamp from before their sending."""
    first, last = first_token_ns(c), c.end_ns
    return int(np.sum(c.ok & ((first < c.sent_ns) | (last < c.sent_ns))))


def event_tokens(c: RequestColumns) -> FloatArray:
    """Return tokens that each event brought, shape (events,); 0 for events that carry no text.

    Known per-event counts are used where a request has them all, else its output_tokens are shared evenly by its token
    events, else a token event counts as one token.
    """
    token = c.chunks.is_token()
    request = c.chunks.request()
    events = np.bincount(request[token], minlength=len(c))
    known = np.bincount(request[token & ~np.isnan(c.chunks.tokens)], minlength=len(c))
    share = np.divide(c.output_tokens, events, out=np.ones(len(c)), where=(events > 0) & ~np.isnan(c.output_tokens))
    each = np.where((known == events)[request], c.chunks.tokens, share[request])
    return np.where(token, each, 0.0)


def _inside(times: FloatArray, window: Window) -> BoolArray:
    return (times >= window.start_ns) & (times < window.end_ns)


def _per_second(count: float, window: Window) -> float:
    return count / window.seconds if window.seconds > 0 else float("nan")


def request_throughput(c: RequestColumns, window: Window) -> float:
    """Return ok requests that end in the window, per second."""
    return _per_second(int(np.sum(c.ok & _inside(c.end_ns, window))), window)


def output_token_throughput(c: RequestColumns, window: Window) -> float:
    """Return output tokens that arrive in the window, per second, whatever became of their request.

    An answer that came in one piece arrives at its end.
    """
    streamed = float(np.sum(event_tokens(c)[_inside(c.chunks.ns, window)]))
    whole = c.ok & np.isnan(first_token_ns(c)) & _inside(c.end_ns, window)
    return _per_second(streamed + float(np.nansum(c.output_tokens[whole])), window)


def input_token_throughput(c: RequestColumns, window: Window) -> float:
    """Return prompt tokens of ok requests that end in the window, per second."""
    return _per_second(float(np.nansum(c.input_tokens[c.ok & _inside(c.end_ns, window)])), window)


def total_token_throughput(c: RequestColumns, window: Window) -> float:
    """Return input plus output token throughput."""
    return input_token_throughput(c, window) + output_token_throughput(c, window)


def error_rate(c: RequestColumns) -> float:
    """Return failed / (ok + failed), a share of 1; NaN when no request ended either way."""
    ended = int(np.sum(c.ok | c.failed))
    return int(np.sum(c.failed)) / ended if ended else float("nan")
