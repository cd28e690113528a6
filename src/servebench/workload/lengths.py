"""Know the laws of token lengths: drawn, recorded, and what happens to a length above its cap."""

import numpy as np
import numpy.typing as npt

from servebench.workload.model import Lengths

NONE = -1
"""In columns: no length asked for."""
LONGEST = 10_000_000

Tokens = npt.NDArray[np.int32]

DRAWN = frozenset({"uniform", "lognormal", "empirical"})
"""Kinds whose lengths are drawn from the law itself."""


def fits(law: Lengths, recorded: Tokens) -> npt.NDArray[np.bool_]:
    """Return which rows of a trace a law keeps: all, unless it drops those above its cap."""
    if law.kind != "trace" or law.cap is None or law.over != "drop":
        return np.ones(len(recorded), dtype=np.bool_)
    return recorded <= law.cap


def factor_for(law: Lengths, recorded: Tokens) -> float:
    """Return what `over: scale` multiplies recorded lengths by, so that the longest of them fits; at most 1."""
    if law.kind != "trace" or law.cap is None or law.over != "scale" or not len(recorded):
        return 1.0
    return min(law.cap / int(recorded.max()), 1.0)


def capped(law: Lengths, lengths: Tokens, factor: float = 1.0) -> tuple[Tokens, int]:
    """Return lengths brought below the cap of their law, and how many of them were changed for that."""
    if law.cap is None or law.over == "drop":
        return lengths, 0
    if law.over == "scale":
        fitting = np.maximum(np.rint(lengths * factor), 1).astype(np.int32)
    else:
        fitting = np.minimum(lengths, np.int32(law.cap))
    return fitting, int(np.count_nonzero(fitting != lengths))


def drawn_lengths(law: Lengths, count: int, draws: np.random.Generator) -> Tokens:
    """Return lengths of a law that is drawn from, before its cap; at least 1.

    Raises ValueError for a kind that is not drawn.
    """
    if law.kind == "uniform" and law.low is not None and law.high is not None:
        return draws.integers(law.low, law.high, count, dtype=np.int32, endpoint=True)
    if law.kind == "lognormal" and law.median is not None and law.sigma is not None:
        values = law.median * np.exp(law.sigma * draws.standard_normal(count))
        return np.clip(np.rint(values), 1, LONGEST).astype(np.int32)
    if law.kind == "empirical" and law.values:
        return np.array(law.values, dtype=np.int32)[draws.integers(0, len(law.values), count)]
    msg = f"lengths {law.kind} are not drawn from a law"
    raise ValueError(msg)
