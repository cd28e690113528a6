"""Know the mark that a server's kernel leaves on the first tokens when it waits for an acknowledgement (Nagle).

Without TCP_NODELAY a server's kernel holds small segments back while one is unacknowledged, and the client's kernel
delays the acknowledgement by about 40 ms. So the head of the answer comes at once, the first token 40 ms later in one
read with those that were made meanwhile, and the rest one by one.
"""

from dataclasses import dataclass

import numpy as np

from servebench.metrics.columns import BoolArray, RequestColumns

DELAY_NS = (35e6, 60e6)
"""How long after the head the first token then comes: Linux delays an acknowledgement by 40 ms at least."""
_LEAST = 10
_OFTEN = 0.5
_REST_ALONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """Answers whose first tokens seem held back: their `share` of `n` ok answers, the median wait after the head."""

    n: int
    share: float
    wait_ms: float


def held_back(c: RequestColumns, rows: BoolArray) -> HeldBack | None:
    """Return the mark where half of the ok answers of a mask bear it; None elsewhere and below 10 answers."""
    wait = c.events.first_token_ns - c.headers_ns
    known = c.ok & rows & ~np.isnan(wait)
    together, events = c.events.coalesced, c.events.token_events
    marked = known & (wait >= DELAY_NS[0]) & (wait <= DELAY_NS[1])
    marked &= (together >= 2) & (events >= _REST_ALONE * together)
    n = int(known.sum())
    if n < _LEAST or marked.sum() < _OFTEN * n:
        return None
    return HeldBack(n=n, share=float(marked.sum()) / n, wait_ms=float(np.median(wait[marked])) / 1e6)
