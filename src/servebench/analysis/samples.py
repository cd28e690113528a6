"""Know the samples of every metric of a run, each tied to the row it comes from, and the rates of a set of rows."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from servebench.analysis.flow import window_tokens
from servebench.analysis.source import RunData
from servebench.metrics import RequestColumns, Window, formulas
from servebench.metrics.columns import BoolArray, FloatArray, IntArray, take


class Samples(NamedTuple):
    """Values in base units without NaN, and the row of each; both of shape (n,)."""

    values: FloatArray
    row: IntArray


def _defined(values: FloatArray) -> Samples:
    row = np.flatnonzero(~np.isnan(values))
    return Samples(values[row], row)


def sample_all(c: RequestColumns) -> Mapping[str, Samples]:
    """Return the samples of each metric of kind `request`, by name."""
    return {name: _defined(formula(c)) for name, formula in formulas.REQUEST_FORMULAS.items()}


def of_rows(samples: Samples, rows: BoolArray) -> FloatArray:
    """Return the values that come from the rows of a mask."""
    return samples.values[rows[samples.row]]


_BY_END = {
    "request_throughput": formulas.request_throughput,
    "goodput": formulas.goodput,
    "input_token_throughput": formulas.input_token_throughput,
}


def rate_over(name: str, run: RunData, windows: Iterable[Window], rows: BoolArray | None = None) -> float:
    """Return a rate over several windows together: all that was counted by all the seconds; NaN without seconds.

    `rows`: whose work counts, None = everybody's.
    """
    every = [window for window in windows if window.seconds > 0]
    if name == "total_token_throughput":
        return rate_over("input_token_throughput", run, every, rows) + rate_over(
            "output_token_throughput", run, every, rows
        )
    seconds = sum(window.seconds for window in every)
    if not seconds:
        return float("nan")
    if name == "output_token_throughput":
        return window_tokens(run.flow, every, rows) / seconds
    c = run.columns if rows is None else take(run.columns, rows)
    return sum(_BY_END[name](c, window) * window.seconds for window in every) / seconds
