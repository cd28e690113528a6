"""Know which part of a request grows with the load.

Compared are the levels with the least and the most load. Silence is the answer where there is nothing to compare: one
level, few requests, nearly equal loads, or a difference that chance explains (3 standard errors of the two means).
"""

from collections.abc import Sequence
from typing import NamedTuple

from servebench.analysis.engine_split import ORDER, Split
from servebench.analysis.numbers import significant

LEAST_N = 20
LOAD_RATIO = 1.25
GROWTH_RATIO = 1.1
ERRORS = 3.0
MOST_OF_IT = 0.5
"""A part alone makes the growth when it is at least this share of it; else the two largest are named."""


class Grown(NamedTuple):
    """A part's length at the least and at the most load, ms, and its share of the growth of E2E."""

    part: str
    low_ms: float
    high_ms: float
    share: float


class Growth(NamedTuple):
    """E2E at the least and at the most load, ms, and the parts that make the difference, largest first."""

    low_per_s: float
    high_per_s: float
    low_ms: float
    high_ms: float
    parts: tuple[Grown, ...]

    @property
    def sentence(self) -> str:
        """Say which part grows."""
        named = " and ".join(
            f"{one.part} ({significant(one.low_ms)} to {significant(one.high_ms)} ms, {100 * one.share:.0f} %)"
            for one in self.parts
        )
        return (
            f"From {significant(self.low_per_s)} to {significant(self.high_per_s)} req/s mean E2E from intended grows "
            f"from {significant(self.low_ms)} to {significant(self.high_ms)} ms; most of that is {named}."
        )


def growth(found: Sequence[Split]) -> Growth | None:
    """Return what grows with load; None where nothing can be said. Only parts that both levels have are compared."""
    usable = [split for split in found if split.n >= LEAST_N]
    if len(usable) < 2:
        return None
    low, high = min(usable, key=lambda s: s.load_per_s), max(usable, key=lambda s: s.load_per_s)
    rise = high.total_ms - low.total_ms
    chance = ERRORS * (low.error_ms**2 + high.error_ms**2) ** 0.5
    if high.load_per_s < LOAD_RATIO * low.load_per_s or high.total_ms < GROWTH_RATIO * low.total_ms or rise <= chance:
        return None
    grown = []
    for name in ORDER:
        before, after = low.ms(name), high.ms(name)
        if before is not None and after is not None and after > before:
            grown.append(Grown(name, before, after, (after - before) / rise))
    grown.sort(key=lambda one: -one.share)
    parts = tuple(grown[: 1 if grown and grown[0].share >= MOST_OF_IT else 2])
    return Growth(low.load_per_s, high.load_per_s, low.total_ms, high.total_ms, parts) if parts else None
