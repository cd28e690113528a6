"""Know the recorded traffic that a workload names: which reader a format has, and which rows a slice of it takes."""

import numpy as np

from servebench.core.units import NS_PER_S
from servebench.workload.builtin import data_path, open_data
from servebench.workload.model import TraceKind, TraceSlice
from servebench.workload.rows import Trace, in_order
from servebench.workload.servegen import read_servegen
from servebench.workload.trace_csv import read_csv
from servebench.workload.trace_json import read_json_lines
from servebench.workload.trace_layout import LAYOUTS

WITH_SESSIONS: tuple[TraceKind, ...] = ("burstgpt", "csv", "qwen-bailian", "ragpulse")
WITH_BLOCKS: tuple[TraceKind, ...] = ("mooncake", "qwen-bailian", "ragpulse")
FOLDERS: tuple[TraceKind, ...] = ("ragpulse", "servegen")
"""Formats that are more than one file; ragpulse may be named by its folder or by the file of its rows."""


def read_trace(part: TraceSlice, seed: int = 0) -> Trace:
    """Return the whole trace that a slice is part of; of a ServeGen folder, which is generated, no more than the slice.

    Rows that generated nothing are failed calls in the source: they are left out and counted, unless the slice gives
    them a length. Rows out of order are sorted, stably, and the steps back are counted.
    Raises SpecError with the faults of the file, at most 20 of them, and InputError where it cannot be read.
    """
    if part.kind == "servegen":
        return read_servegen(data_path(part.path), part, seed)
    if part.kind in LAYOUTS:
        with open_data(part.path) as stream:
            rows = read_csv(stream, part.path, LAYOUTS[part.kind])
    else:
        rows = read_json_lines(part.path, part.kind)
    return in_order(rows, part.path, part.empty_output)


class Traces:
    """The traces of one workload, each read once."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._read: dict[object, Trace] = {}

    def read(self, part: TraceSlice) -> Trace:
        """Return a trace like `read_trace`."""
        key: object = part if part.kind == "servegen" else (part.kind, part.path, part.empty_output)
        if key not in self._read:
            self._read[key] = read_trace(part, self._seed)
        return self._read[key]


def rows_of(trace: Trace, part: TraceSlice) -> slice:
    """Return which rows a slice of a trace selects: start <= offset < start + length."""
    first, last = np.searchsorted(trace.offset_ns, [part.start_ns, _end_ns(part)], side="left")
    return slice(int(first), int(last))


def left_out_of(trace: Trace, part: TraceSlice) -> int:
    """Return how many rows without input or output lie in a slice of a trace; those before its first row count too."""
    begun = (trace.left_out_ns >= part.start_ns) | (part.start_ns == 0)
    return int(np.count_nonzero(begun & (trace.left_out_ns < _end_ns(part))))


def whole_seconds_ns(trace: Trace, start_ns: int) -> int:
    """Return the length from `start_ns` to the end of a trace, rounded up to a whole second that holds the last row."""
    if trace.end_ns is not None:
        return trace.end_ns - start_ns
    return ((int(trace.offset_ns[-1]) - start_ns) // NS_PER_S + 1) * NS_PER_S


def _end_ns(part: TraceSlice) -> int:
    return np.iinfo(np.int64).max if part.length_ns is None else part.start_ns + part.length_ns
