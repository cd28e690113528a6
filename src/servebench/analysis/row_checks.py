"""Know what the rows of a part and the phases of a run must hold to be read at all; both may be made by hand.

A part with a row that no worker writes is refused as a whole, as a damaged one is.
"""

import numpy as np
import pyarrow as pa

from servebench.analysis.columns import floats
from servebench.analysis.flow import MOST_SECONDS
from servebench.analysis.numbers import count, significant
from servebench.core.errors import ShardError
from servebench.core.units import NS_PER_S
from servebench.shards.manifest import Manifest

_EVERY_ROW_HAS = ("seq", "attempt", "worker", "phase", "measured", "outcome")
_NOT_NEGATIVE = ("seq", "attempt", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


def check_rows(table: pa.Table) -> None:
    """Raise ShardError for the first column that lacks what every row has, or counts below zero."""
    for name in _EVERY_ROW_HAS:
        if table[name].null_count:
            msg = f"lacks {name} in {count(table[name].null_count)} of {count(len(table))} rows; every row has it"
            raise ShardError(msg)
    for name in _NOT_NEGATIVE:
        below = int(np.sum(floats(table, name) < 0))
        if below:
            msg = f"has {name} below 0 in {count(below)} of {count(len(table))} rows; what is not known is null"
            raise ShardError(msg)


def check_manifest(manifest: Manifest) -> None:
    """Raise ShardError for a phase or level that lasts longer than any run; its times are of another unit or clock."""
    for phase in manifest.phases:
        lengths = [phase.end_ns - phase.start_ns, *(step.end_ns - step.start_ns for step in phase.steps)]
        seconds = max(lengths) / NS_PER_S
        if seconds > MOST_SECONDS:
            days = significant(seconds / 86_400)
            msg = f"run.json: phase {phase.name} lasts {days} days; times are ns since the planned start"
            raise ShardError(msg)
