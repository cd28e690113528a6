"""Know the columns of CSV traces, and what their times may be."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.units import NS_PER_S
from servebench.workload.rows import Ints

FARTHEST_S = 4.6e9
"""Times in s beyond this, in the year 2115, are taken for another unit; twice as much is what int64 ns can hold."""


class Layout(NamedTuple):
    """The columns of a format; `dated`: times are dates, else seconds."""

    time: str
    input: str
    output: str
    session: str | None
    dated: bool


LAYOUTS: dict[str, Layout] = {
    "azure": Layout("TIMESTAMP", "ContextTokens", "GeneratedTokens", None, dated=True),
    "burstgpt": Layout("Timestamp", "Request tokens", "Response tokens", "Session ID", dated=False),
    "csv": Layout("timestamp", "input_length", "output_length", "session_id", dated=False),
}


class Found(NamedTuple):
    """Where the columns of a layout stand in a file; `names` are all of them."""

    time: int
    input: int
    output: int
    session: int | None
    names: tuple[str, ...]


def seconds_to_ns(times_s: npt.NDArray[np.float64]) -> Ints:
    """Return times in ns after the earliest: the difference first, so that a large base costs no digits."""
    if not len(times_s):
        return np.empty(0, dtype=np.int64)
    offset = times_s - times_s.min()
    offset *= NS_PER_S
    offset_ns: Ints = np.rint(offset, out=offset).astype(np.int64)
    return offset_ns
