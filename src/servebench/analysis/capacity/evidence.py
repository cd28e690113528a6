"""Know what one run says of each objective: which requests missed it, and how much they are alike in that."""

from collections.abc import Mapping, Sequence

import numpy as np

from servebench.analysis.capacity.fit import Share
from servebench.analysis.objectives import quantile_label
from servebench.analysis.source import RunData
from servebench.core.errors import InputError
from servebench.metrics import METRIC_BY_NAME
from servebench.metrics.columns import BoolArray, RequestColumns
from servebench.metrics.distributions import beta_quantile
from servebench.metrics.formulas import REQUEST_FORMULAS
from servebench.metrics.intervals import vif_of_flags
from servebench.workload.model import Objective


def label(objective: Objective) -> str:
    """Return an objective in words, such as `TTFT p95 < 800 ms`."""
    metric = METRIC_BY_NAME[objective.metric]
    quantile = "" if objective.quantile is None else f" {quantile_label(objective.quantile)}"
    sign = ">" if objective.at_least else "<"
    return f"{metric.title}{quantile} {sign} {objective.limit / metric.scale:,.6g} {metric.unit}"


def budgets(objectives: Sequence[Objective]) -> dict[str, float]:
    """Return which share of the requests may miss each objective, by its words.

    Raises InputError where there is none, or one that no single request can miss.
    """
    if not objectives:
        msg = (
            "the workload has no objectives; capacity is the highest load that meets them.\n  try: --slo ttft.p95=800ms"
        )
        raise InputError(msg)
    return {label(objective): _budget(objective) for objective in objectives}


def _budget(objective: Objective) -> float:
    metric = METRIC_BY_NAME[objective.metric]
    if metric.kind == "share":
        allowed = 1 - objective.limit if objective.at_least else objective.limit
    elif objective.metric in REQUEST_FORMULAS and objective.quantile is not None:
        allowed = objective.quantile if objective.at_least else 1 - objective.quantile
    else:
        msg = (
            f"capacity cannot be searched for by {label(objective)}: no single request meets or misses it.\n"
            "  try: an objective on ttft, tpot, e2e, longest_gap, error_rate or another metric of requests"
        )
        raise InputError(msg)
    if not 0 < allowed < 1:
        msg = f"{label(objective)} allows {allowed:.3g} of the requests to miss it: it must be between 0 and 1"
        raise InputError(msg)
    return allowed


def shares_of(run: RunData, objectives: Sequence[Objective], load: float) -> Mapping[str, Share]:
    """Return the share of measured requests over each objective; failed requests miss every one."""
    order = np.argsort(run.columns.sent_ns, kind="stable")
    judged = ((run.columns.ok | run.columns.failed) & run.measured)[order]
    found = {}
    for objective in objectives:
        flags = _missed(run.columns, objective)[order][judged].astype(np.float64)
        found[label(objective)] = Share(load=load, n=len(flags), over=int(flags.sum()), vif=vif_of_flags(flags))
    return found


def clearly_missed(share: Share, budget: float) -> bool:
    """Tell whether a share is over its budget even at the lower end of its 95 % interval."""
    n_eff, hits = share.n / share.vif, share.over / share.vif
    return hits > 0 and beta_quantile(0.025, hits, n_eff - hits + 1) > budget


def _missed(c: RequestColumns, objective: Objective) -> BoolArray:
    if objective.metric == "error_rate":
        return c.failed
    if objective.quantile is None:
        bad: BoolArray = c.failed | (c.accepted == 0.0)
        return bad
    values = REQUEST_FORMULAS[objective.metric](c)
    over = values < objective.limit if objective.at_least else values > objective.limit
    missed: BoolArray = c.failed | over
    return missed
