"""Know how each metric follows from the columns of requests.

Spans are float64 ns of shape (n,), NaN where undefined. Spans that describe a response exist for `ok` requests only, so
that fast failures cannot improve a latency. A span below zero, or of months, is no measurement (a stamp is wrong): it
becomes NaN and `impossible_spans` counts it. Rates are numbers per second of a half-open window, NaN for a window
without length. Shares come with the n that they are out of, NaN of nothing.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from servebench.metrics.columns import BoolArray, FloatArray, RequestColumns, Window

_ROUNDING_NS = 1024.0
"""Stamps of events are rounded to ticks of this length; others are not."""
_LONGEST_NS = 90 * 86_400e9
"""A span of 90 days is of two clocks and no measurement."""


class Share(NamedTuple):
    """A share of 1 and how many it is out of; NaN of nothing."""

    value: float
    n: int


def _span(later: FloatArray, earlier: FloatArray, where: BoolArray) -> FloatArray:
    """Return later - earlier where it is defined and possible."""
    span = later - earlier
    return np.where(where & (span >= 0) & (span <= _LONGEST_NS), span, np.nan)


def _quotient(above: FloatArray, below: FloatArray, where: BoolArray) -> FloatArray:
    found = np.full(len(above), np.nan)
    np.divide(above, below, out=found, where=where & (below > 0))
    return found


def dispatch_lag_ns(c: RequestColumns) -> FloatArray:
    """Return dispatched - intended of every request with both, whatever came of it; NaN for closed load."""
    return c.dispatched_ns - c.intended_ns


def send_lag_ns(c: RequestColumns) -> FloatArray:
    """Return sent - intended of every request with both; holds connecting and TLS."""
    return c.sent_ns - c.intended_ns


def connect_time_ns(c: RequestColumns) -> FloatArray:
    """Return connection ready - start of connecting, of requests that opened a connection."""
    return _span(c.connect_end_ns, c.connect_start_ns, np.ones(len(c), bool))


def head_time_ns(c: RequestColumns) -> FloatArray:
    """Return response head - sent of ok requests."""
    return _span(c.headers_ns, c.sent_ns, c.ok)


def ttft_ns(c: RequestColumns) -> FloatArray:
    """Return first token event - sent of ok requests."""
    return _span(c.events.first_token_ns, c.sent_ns, c.ok)


def ttft_intended_ns(c: RequestColumns) -> FloatArray:
    """Return first token event - intended of ok requests; holds the wait before sending."""
    return _span(c.events.first_token_ns, c.intended_ns, c.ok)


def ttfo_ns(c: RequestColumns) -> FloatArray:
    """Return first token event that is not reasoning - sent, of ok requests."""
    return _span(c.events.first_answer_ns, c.sent_ns, c.ok)


def reasoning_time_ns(c: RequestColumns) -> FloatArray:
    """Return first answer token - first token of ok requests that reasoned before they answered."""
    span = _span(c.events.first_answer_ns, c.events.first_token_ns, c.ok)
    return np.where(span > 0, span, np.nan)


def e2e_ns(c: RequestColumns) -> FloatArray:
    """Return end - sent of ok requests."""
    return _span(c.end_ns, c.sent_ns, c.ok)


def e2e_with_retries_ns(c: RequestColumns) -> FloatArray:
    """Return end - sent of the first attempt, of ok requests; e2e where nothing was sent again."""
    return _span(c.end_ns, c.first_sent_ns, c.ok)


def e2e_intended_ns(c: RequestColumns) -> FloatArray:
    """Return end - intended of ok requests; holds the wait before sending."""
    return _span(c.end_ns, c.intended_ns, c.ok)


def time_to_validated_ns(c: RequestColumns) -> FloatArray:
    """Return end + the time of its checks - sent of answers that were checked, whatever came of it."""
    return _span(c.validated_ns, c.sent_ns, c.ok)


def validation_time_ns(c: RequestColumns) -> FloatArray:
    """Return how long the checks of an answer took by themselves."""
    return _span(c.validated_ns, c.end_ns, c.ok)


def time_to_last_token_ns(c: RequestColumns) -> FloatArray:
    """Return last token event - sent of ok requests; leaves out what the server sends after it."""
    return _span(c.events.last_token_ns, c.sent_ns, c.ok)


def tpot_ns(c: RequestColumns) -> FloatArray:
    """Return mean time per output token after the first, ns per token, of ok requests.

    NaN without two token events at different times and two output tokens.
    Formula: (last token event - first token event) / (output_tokens - 1).
    """
    span = c.events.last_token_ns - c.events.first_token_ns
    return _quotient(span, c.output_tokens - 1, c.ok & (span > 0) & (c.output_tokens >= 2))


def e2e_per_token_ns(c: RequestColumns) -> FloatArray:
    """Return (end - sent) / output_tokens of ok requests, ns per token."""
    return _quotient(e2e_ns(c), c.output_tokens, c.ok)


def user_speed(c: RequestColumns) -> FloatArray:
    """Return 1 / tpot, tokens per second as one reader sees them."""
    tpot = tpot_ns(c)
    return _quotient(np.full(len(c), 1e9), tpot, ~np.isnan(tpot))


def prefill_speed(c: RequestColumns) -> FloatArray:
    """Return input_tokens / ttft, prompt tokens per second; holds the wait in the server's queue."""
    ttft = ttft_ns(c)
    return _quotient(c.input_tokens * 1e9, ttft, ~np.isnan(ttft))


def tokens_per_chunk(c: RequestColumns) -> FloatArray:
    """Return output_tokens / token events of ok requests."""
    return _quotient(c.output_tokens, c.events.token_events, c.ok)


def input_length(c: RequestColumns) -> FloatArray:
    """Return prompt tokens of ok requests by server usage."""
    return np.where(c.ok, c.input_tokens, np.nan)


def output_length(c: RequestColumns) -> FloatArray:
    """Return output tokens of ok requests."""
    return np.where(c.ok, c.output_tokens, np.nan)


def reasoning_length(c: RequestColumns) -> FloatArray:
    """Return reasoning tokens of ok requests by server usage."""
    return np.where(c.ok, c.reasoning_tokens, np.nan)


def longest_gap_ns(c: RequestColumns) -> FloatArray:
    """Return the longest chunk gap of each ok request."""
    return np.where(c.ok, c.events.longest_gap_ns, np.nan)


def stalls(c: RequestColumns) -> FloatArray:
    """Return how many chunk gaps of each ok request are stalls."""
    return np.where(c.ok & ~np.isnan(c.events.longest_gap_ns), c.events.stalls, np.nan)


def stall_time_ns(c: RequestColumns) -> FloatArray:
    """Return the time that each ok request spent in stalls."""
    return np.where(c.ok & ~np.isnan(c.events.longest_gap_ns), c.events.stall_ns, np.nan)


def late_tokens(c: RequestColumns) -> FloatArray:
    """Return the share of tokens of each ok request that a steady reader had to wait for."""
    return 1 - _quotient(c.events.on_time, c.events.tokens, c.ok)


def retry_waste_ns(c: RequestColumns) -> FloatArray:
    """Return end - sent of attempts that were followed by another attempt of the same request."""
    return _span(c.end_ns, c.sent_ns, c.replaced)


def impossible_spans(c: RequestColumns, rows: BoolArray) -> int:
    """Return how many ok requests of a mask hold times that cannot be.

    No sending or no end; a head, first token or end before the sending or 90 days after it; a last token before the
    first, or after the end by more than rounding.
    """
    first, last = c.events.first_token_ns, c.events.last_token_ns
    wrong = np.isnan(c.sent_ns) | np.isnan(c.end_ns) | (last < first) | (last > c.end_ns + _ROUNDING_NS)
    for later in (c.headers_ns, first, c.end_ns):
        span = later - c.sent_ns
        wrong |= (span < 0) | (span > _LONGEST_NS)
    return int(np.sum(c.ok & rows & wrong))


REQUEST_FORMULAS: Mapping[str, Callable[[RequestColumns], FloatArray]] = {
    "ttft": ttft_ns,
    "ttft_intended": ttft_intended_ns,
    "ttfo": ttfo_ns,
    "reasoning_time": reasoning_time_ns,
    "tpot": tpot_ns,
    "longest_gap": longest_gap_ns,
    "stalls": stalls,
    "stall_time": stall_time_ns,
    "late_tokens": late_tokens,
    "e2e": e2e_ns,
    "e2e_with_retries": e2e_with_retries_ns,
    "e2e_intended": e2e_intended_ns,
    "time_to_validated": time_to_validated_ns,
    "validation_time": validation_time_ns,
    "time_to_last_token": time_to_last_token_ns,
    "e2e_per_token": e2e_per_token_ns,
    "head_time": head_time_ns,
    "connect_time": connect_time_ns,
    "user_speed": user_speed,
    "prefill_speed": prefill_speed,
    "tokens_per_chunk": tokens_per_chunk,
    "input_length": input_length,
    "output_length": output_length,
    "reasoning_length": reasoning_length,
    "dispatch_lag": dispatch_lag_ns,
    "send_lag": send_lag_ns,
    "retry_waste": retry_waste_ns,
}
"""Metrics with one value a request, in base units."""


def within(c: RequestColumns, limits: Mapping[str, float]) -> FloatArray:
    """Return which requests are useful: ok, not refused by an acceptance check, no metric above its limit.

    `limits` holds base units by request metric. 1.0 = useful, 0.0 = not, NaN = neither ok nor failed, or ok but its
    check could not be made. A metric that is undefined for an ok request breaks no limit.
    """
    useful = c.ok & (c.accepted != 0.0)
    for name, limit in limits.items():
        useful &= ~(REQUEST_FORMULAS[name](c) > limit)
    return np.where((c.ok | c.failed) & ~c.unchecked, useful.astype(np.float64), np.nan)


def _inside(times: FloatArray, window: Window) -> BoolArray:
    return (times >= window.start_ns) & (times < window.end_ns)


def per_second(count: float, window: Window) -> float:
    """Return count per second of the window, NaN for a window without length."""
    return count / window.seconds if window.seconds > 0 else float("nan")


def concurrency(c: RequestColumns, window: Window) -> float:
    """Return the mean number of open requests, by their overlap with the window; one without an end is open still."""
    sent = ~np.isnan(c.sent_ns)
    end = np.nan_to_num(c.end_ns[sent], nan=np.inf)
    overlap = np.minimum(end, window.end_ns) - np.maximum(c.sent_ns[sent], window.start_ns)
    return per_second(float(np.sum(np.maximum(overlap, 0))) / 1e9, window)


def request_throughput(c: RequestColumns, window: Window) -> float:
    """Return ok requests that end in the window, per second."""
    return per_second(int(np.sum(c.ok & _inside(c.end_ns, window))), window)


def goodput(c: RequestColumns, window: Window) -> float:
    """Return useful requests that end in the window, per second; NaN where nobody said what is useful."""
    if np.isnan(c.good).all():
        return float("nan")
    return per_second(int(np.sum((c.good == 1.0) & _inside(c.end_ns, window))), window)


def input_token_throughput(c: RequestColumns, window: Window) -> float:
    """Return prompt tokens of ok requests that end in the window, per second."""
    return per_second(float(np.nansum(c.input_tokens[c.ok & _inside(c.end_ns, window)])), window)


EVERY: BoolArray = np.ones((), bool)
"""The mask of all rows."""


def _share(part: BoolArray, whole: BoolArray) -> Share:
    n = int(np.sum(whole))
    return Share(int(np.sum(part & whole)) / n if n else float("nan"), n)


def error_rate(c: RequestColumns, rows: BoolArray = EVERY) -> Share:
    """Return failed / (ok + failed)."""
    return _share(c.failed, (c.ok | c.failed) & rows)


def good_share(c: RequestColumns, rows: BoolArray = EVERY) -> Share:
    """Return useful / (ok + failed); of nothing where nobody said what is useful."""
    return _share(c.good == 1.0, ~np.isnan(c.good) & rows)


def accepted_share(c: RequestColumns, rows: BoolArray = EVERY) -> Share:
    """Return accepted / checked answers."""
    return _share(c.accepted == 1.0, ~np.isnan(c.accepted) & rows)


def cached_share(c: RequestColumns, rows: BoolArray = EVERY) -> Share:
    """Return cached_tokens / input_tokens of ok requests whose usage names both; n counts requests."""
    known = c.ok & rows & ~np.isnan(c.cached_tokens) & (c.input_tokens > 0)
    total = float(np.sum(c.input_tokens[known]))
    return Share(float(np.sum(c.cached_tokens[known])) / total if total else float("nan"), int(np.sum(known)))


def coalesced_share(c: RequestColumns, rows: BoolArray = EVERY) -> Share:
    """Return the share of token events of ok requests that shared a read with another one; n counts events."""
    events = float(np.sum(c.events.token_events[c.ok & rows]))
    return Share(float(np.sum(c.events.coalesced[c.ok & rows])) / events if events else float("nan"), int(events))


SHARES: Mapping[str, Callable[[RequestColumns, BoolArray], Share]] = {
    "error_rate": error_rate,
    "good_share": good_share,
    "accepted_share": accepted_share,
    "cached_share": cached_share,
    "coalesced_share": coalesced_share,
}
