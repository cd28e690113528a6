"""Know the rates of a run: what a set of rows did within windows, per second."""

from collections.abc import Iterable

from servebench.analysis.flow import window_tokens
from servebench.analysis.source import RunData
from servebench.metrics import Window, formulas
from servebench.metrics.columns import BoolArray, take

_OF_ROWS = {
    "concurrency": formulas.concurrency,
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
    return sum(_OF_ROWS[name](c, window) * window.seconds for window in every) / seconds
