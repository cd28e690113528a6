"""Know how measured values stand to the objectives of a workload."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from servebench.analysis.numbers import plain
from servebench.metrics import METRIC_BY_NAME, Metric, enough, percentile
from servebench.metrics.columns import FloatArray
from servebench.metrics.intervals import Interval, quantile_interval, share_interval
from servebench.workload.model import Objective

State = Literal["met", "close", "missed", "undecided", "too few samples"]
CLOSE = 0.9
"""A value above this share of its limit is shown as close; it counts as met."""


class Result(NamedTuple):
    """One objective; `measured`, its 95 % bounds and `limit` in display units of `metric`.

    None = undefined, or too few samples for a percentile, or for bounds of it. `n_eff`: how many independent requests
    the n are worth.
    """

    metric: Metric
    quantile: float | None
    limit: float
    measured: float | None
    lo: float | None
    hi: float | None
    n: int
    n_eff: float
    state: State
    at_least: bool = False

    @property
    def label(self) -> str:
        """The measured side in words, such as `TTFT p95`."""
        return self.metric.title if self.quantile is None else f"{self.metric.title} {quantile_label(self.quantile)}"

    @property
    def sentence(self) -> str:
        """The whole objective in words, such as `TTFT p95 < 800 ms` or `accepted > 99 %`."""
        return f"{self.label} {self.sign} {self.limit:,.6g} {self.metric.unit}"

    @property
    def sign(self) -> str:
        """On which side of the limit the measured value is wanted."""
        return ">" if self.at_least else "<"

    def record(self) -> dict[str, str | int | float | bool | None]:
        """Return a plain object for JSON; null = undefined."""
        return {
            "metric": self.metric.name,
            "quantile": self.quantile,
            "unit": self.metric.unit,
            "limit": plain(self.limit),
            "at_least": self.at_least,
            "measured": plain(self.measured),
            "lo": plain(self.lo),
            "hi": plain(self.hi),
            "n": self.n,
            "n_eff": plain(self.n_eff, 1),
            "state": self.state,
        }


def quantile_label(q: float) -> str:
    """Return p95 for 0.95 and p999 for 0.999."""
    return "p" + f"{q:.6f}".rstrip("0").removeprefix("0.").ljust(2, "0")


def assess(
    objectives: Sequence[Objective], samples: Mapping[str, FloatArray], shares: Mapping[str, FloatArray]
) -> tuple[Result, ...]:
    """Return the state of each objective over the measured samples, which are in sending order and without NaN.

    `samples` holds base units by metric; `shares` the 0/1 series of each share. An unknown metric is left out.
    """
    return tuple(
        _of_quantile(objective, samples[objective.metric])
        if objective.quantile is not None
        else _of_share(objective, shares[objective.metric])
        for objective in objectives
        if objective.metric in (shares if objective.quantile is None else samples)
    )


def _of_quantile(objective: Objective, values: FloatArray) -> Result:
    """Judge a percentile by its interval; where that is refused, by the share of requests above the limit."""
    q = objective.quantile or 0.0
    bounds = quantile_interval(values, q)
    known = len(values) > 0 and enough(len(values), q)
    value = percentile(values, q) if known else None
    if bounds.lo is not None and bounds.hi is not None:
        state = _state(value, bounds.lo, bounds.hi, objective.limit)
    elif known:
        above = share_interval((values > objective.limit).astype(np.float64))
        state = _state(value, above.lo, above.hi, objective.limit, budget=1 - q)
    else:
        state = "too few samples"
    return _result(objective, value, bounds, len(values), state)


def _of_share(objective: Objective, flags: FloatArray) -> Result:
    bounds = share_interval(flags)
    value = float(flags.mean()) if len(flags) else None
    if value is None:
        return _result(objective, None, bounds, 0, "too few samples")
    lo, hi = bounds.lo, bounds.hi
    if not objective.at_least:
        return _result(objective, value, bounds, len(flags), _state(value, lo, hi, objective.limit))
    # At least 99 % accepted is at most 1 % not accepted.
    rest = [None if share is None else 1 - share for share in (value, hi, lo)]
    state = _state(rest[0], rest[1], rest[2], 1 - objective.limit)
    return _result(objective, value, bounds, len(flags), state)


def _result(objective: Objective, value: float | None, bounds: Interval, n: int, state: State) -> Result:
    metric = METRIC_BY_NAME[objective.metric]

    def shown(base: float | None) -> float | None:
        return None if base is None else base / metric.scale

    return Result(
        metric=metric,
        quantile=objective.quantile,
        limit=objective.limit / metric.scale,
        measured=shown(value),
        lo=shown(bounds.lo),
        hi=shown(bounds.hi),
        n=n,
        n_eff=bounds.n_eff,
        state=state,
        at_least=objective.at_least,
    )


def _state(value: float | None, lo: float | None, hi: float | None, limit: float, budget: float | None = None) -> State:
    """Return where the interval [lo, hi] lies to the limit (or to the budget of requests above the limit)."""
    border = limit if budget is None else budget
    if hi is not None and hi <= border:
        return "close" if value is not None and value > CLOSE * limit else "met"
    return "missed" if lo is not None and lo > border else "undecided"


def overall(results: Sequence[Result]) -> str:
    """Return the word of the verdict: none, missed, undecided or met."""
    states = {result.state for result in results}
    if not states:
        return "none"
    if "missed" in states:
        return "missed"
    return "undecided" if states & {"undecided", "too few samples"} else "met"
