"""Know what the engines counted while a load level lasted: tokens, batches, cache hits, requests that were given up."""

from collections.abc import Callable
from typing import NamedTuple

from servebench.analysis.engine import Telemetry
from servebench.analysis.numbers import count, significant
from servebench.metrics.columns import Window


class Count(NamedTuple):
    """One number of a level; `of` gives it from the engines' counters, None = they do not tell it."""

    title: str
    of: Callable[[Telemetry, Window], float | None]
    shown: Callable[[float | None], str]


def grown(series: str) -> Callable[[Telemetry, Window], float | None]:
    """Return how to read by how much a counter grew."""
    return lambda telemetry, window: telemetry.growth(series, window)


def ratio(part: str, *whole: str, scale: float = 1.0) -> Callable[[Telemetry, Window], float | None]:
    """Return how to read the growth of a counter by that of others together; None where those did not grow."""

    def read(telemetry: Telemetry, window: Window) -> float | None:
        over, under = telemetry.growth(part, window), [telemetry.growth(one, window) for one in whole]
        known = [one for one in under if one is not None]
        if over is None or len(known) < len(under) or not sum(known):
            return None
        return scale * over / sum(known)

    return read


def _whole(value: float | None) -> str:
    return count(None if value is None else round(value))


COUNTS: tuple[Count, ...] = (
    Count("prompt tokens", grown("prompt_tokens"), _whole),
    Count("output tokens", grown("output_tokens"), _whole),
    Count("prefix hits, % of tokens", ratio("prefix_hits", "prefix_queries", scale=100), significant),
    Count("answers from its cache, %", ratio("cache_hits", "cache_hits", "cache_misses", scale=100), significant),
    Count("requests a batch", ratio("inferences", "executions"), significant),
    Count("drafted tokens kept, %", ratio("accepted_tokens", "drafted_tokens", scale=100), significant),
    Count("preempted", grown("preemptions"), _whole),
    Count("left by their client", grown("aborted"), _whole),
)
