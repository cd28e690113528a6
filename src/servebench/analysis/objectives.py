"""Know how measured values stand to the objectives of a workload."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from servebench.metrics import METRIC_BY_NAME, Metric, enough, percentile
from servebench.metrics.columns import FloatArray
from servebench.workload.model import Objective, Workload

State = Literal["met", "close", "missed", "too few samples"]
CLOSE = 0.9
"""A value above this share of its limit is shown as close; it counts as met."""


class Result(NamedTuple):
    """One objective; `measured` and `limit` in display units of `metric`, None = undefined or too few samples."""

    metric: Metric
    quantile: float | None
    limit: float
    measured: float | None
    n: int
    state: State

    @property
    def label(self) -> str:
        """The measured side in words, such as `TTFT p95`."""
        return self.metric.title if self.quantile is None else f"{self.metric.title} {quantile_label(self.quantile)}"

    @property
    def sentence(self) -> str:
        """The whole objective in words, such as `TTFT p95 < 800 ms`."""
        return f"{self.label} < {self.limit:,.6g} {self.metric.unit}"


def quantile_label(q: float) -> str:
    """Return p95 for 0.95 and p999 for 0.999."""
    return "p" + f"{q:.6f}".rstrip("0").removeprefix("0.").ljust(2, "0")


def declared(workload: Mapping[str, Any]) -> tuple[Objective, ...]:
    """Return the objectives in a manifest's workload, none where it is of another form."""
    try:
        return msgspec.convert(dict(workload), Workload).objectives
    except msgspec.ValidationError:
        return ()


def assess(
    objectives: Sequence[Objective], samples: Mapping[str, FloatArray], shares: Mapping[str, tuple[float, int]]
) -> tuple[Result, ...]:
    """Return the state of each objective over the pooled measured samples.

    `samples` holds base units by metric; `shares` the value and n of each share. An unknown metric is left out.
    """
    return tuple(
        _assess(objective, METRIC_BY_NAME[objective.metric], samples, shares)
        for objective in objectives
        if objective.metric in samples or objective.metric in shares
    )


def _assess(
    objective: Objective, metric: Metric, samples: Mapping[str, FloatArray], shares: Mapping[str, tuple[float, int]]
) -> Result:
    if objective.quantile is None:
        value, n = shares[objective.metric]
        known = not math.isnan(value)
    else:
        values = samples[objective.metric]
        n = len(values)
        value, known = percentile(values, objective.quantile), n > 0 and enough(n, objective.quantile)
    return Result(
        metric=metric,
        quantile=objective.quantile,
        limit=objective.limit / metric.scale,
        measured=value / metric.scale if known else None,
        n=n,
        state=_state(value, objective.limit) if known else "too few samples",
    )


def _state(value: float, limit: float) -> State:
    if value > limit:
        return "missed"
    return "close" if value > CLOSE * limit else "met"


def overall(results: Sequence[Result]) -> str:
    """Return the word of the verdict: none, missed, undecided or met."""
    states = {result.state for result in results}
    if not states:
        return "none"
    if "missed" in states:
        return "missed"
    return "undecided" if "too few samples" in states else "met"
