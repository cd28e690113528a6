"""Know how many answers had the length that was asked for."""

from typing import NamedTuple

import numpy as np

from servebench.analysis.columns import floats
from servebench.analysis.numbers import plain
from servebench.analysis.source import RunData, workload_of
from servebench.wire.endpoints import ENDPOINTS


class AskedLengths(NamedTuple):
    """Measured, well answered requests that had a limit and told their tokens: `asked`; `met` were as long as it.

    `mode` is the workload's word, max_only or exact. `typical` is the median of got over asked. `pinned` says whether
    the dialect has words for exact lengths.
    """

    mode: str
    endpoint: str
    pinned: bool
    asked: int
    met: int
    typical: float

    def record(self) -> dict[str, str | int | float | bool | None]:
        """Return a plain object for JSON."""
        return {**self._asdict(), "typical": plain(self.typical)}

    @property
    def mark(self) -> str | None:
        """Return what stands beside the verdict, None where exact lengths were met or not asked for."""
        if self.mode != "exact" or (self.pinned and self.met == self.asked):
            return None
        share = f"the median {100 * self.typical:.0f} % of it"
        got = f"{self.met:,} of {self.asked:,} answers had the wanted length, {share}"
        if not self.pinned:
            return f"exact lengths could not be pinned: {self.endpoint} has no words for them; {got}"
        return f"exact lengths were asked for, but {got}: the server does not keep to min_tokens and ignore_eos"

    @property
    def sentence(self) -> str | None:
        """Return that exact lengths were met, None where there is nothing to say or `mark` says it."""
        if self.mode != "exact" or self.mark is not None:
            return None
        return f"All {self.asked:,} answers had the wanted length."


def asked_lengths(run: RunData) -> AskedLengths | None:
    """Return how answers compare with their limits; None where none had a limit and told its tokens."""
    workload = workload_of(run.manifest)
    limit, got = floats(run.table, "max_tokens"), run.columns.output_tokens
    mine = run.measured & run.columns.ok & (limit > 0) & ~np.isnan(got)
    if workload is None or not mine.any():
        return None
    limit, got = limit[mine], got[mine]
    endpoint = workload.target.endpoint
    return AskedLengths(
        mode=workload.requests.lengths,
        endpoint=endpoint,
        pinned=ENDPOINTS[endpoint].pin is not None,
        asked=len(got),
        met=int(np.sum(got == limit)),
        typical=float(np.median(got / limit)),
    )
