"""Know the samples of every metric of a run, each tied to the row it comes from, and the rates of a set of rows."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from servebench.metrics import RequestColumns, Window, formulas
from servebench.metrics.columns import BoolArray, FloatArray, IntArray


class Samples(NamedTuple):
    """Values in base units without NaN, and the row of each; both of shape (n,)."""

    values: FloatArray
    row: IntArray


def _defined(values: FloatArray) -> Samples:
    row = np.flatnonzero(~np.isnan(values))
    return Samples(values[row], row)


def sample_all(c: RequestColumns) -> Mapping[str, Samples]:
    """Return the samples of each metric of kind `request` or `chunk`, by name."""
    gaps = formulas.chunk_gaps(c)
    return {
        "ttft": _defined(formulas.ttft_ns(c)),
        "ttft_intended": _defined(formulas.ttft_intended_ns(c)),
        "ttfo": _defined(formulas.ttfo_ns(c)),
        "tpot": _defined(formulas.tpot_ns(c)),
        "chunk_gap": Samples(gaps.ns, gaps.request),
        "e2e": _defined(formulas.e2e_ns(c)),
        "e2e_intended": _defined(formulas.e2e_intended_ns(c)),
        "time_to_last_token": _defined(formulas.time_to_last_token_ns(c)),
        "dispatch_lag": _defined(formulas.dispatch_lag_ns(c)),
        "send_lag": _defined(formulas.send_lag_ns(c)),
    }


def of_rows(samples: Samples, rows: BoolArray) -> FloatArray:
    """Return the values that come from the rows of a mask."""
    return samples.values[rows[samples.row]]


RATES = {
    "request_throughput": formulas.request_throughput,
    "output_token_throughput": formulas.output_token_throughput,
    "input_token_throughput": formulas.input_token_throughput,
    "total_token_throughput": formulas.total_token_throughput,
}


def rate_over(name: str, c: RequestColumns, windows: Iterable[Window]) -> float:
    """Return a rate over several windows together: all that was counted by all the seconds; NaN without seconds."""
    every = [window for window in windows if window.seconds > 0]
    seconds = sum(window.seconds for window in every)
    counted = sum(RATES[name](c, window) * window.seconds for window in every)
    return counted / seconds if seconds else float("nan")
