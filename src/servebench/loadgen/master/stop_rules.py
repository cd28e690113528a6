"""Know when a run should end before its time, by the rules of its workload: too many errors, or an objective lost.

An objective counts as lost only when nothing that may still come can save it: its allowance is used up even if every
request that is planned goes well. So no run is ended that could have met it.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from servebench.core.units import NS_PER_S, format_duration
from servebench.loadgen.messages import Totals
from servebench.metrics.columns import FAILED_OUTCOMES
from servebench.metrics.registry import METRIC_BY_NAME
from servebench.shards.manifest import OUT_OF_REACH
from servebench.workload.model import Objective, StopRules, limit_key

SLACK = 1
"""Requests by which a quantile may be interpolated."""


class _Ended(NamedTuple):
    at_s: float
    ok: int
    failed: int


class StopWatch:
    """Looks at the totals of a run as they come and says once why it should end.

    `planned`: measured requests that the run will have at most, None where nobody knows.
    """

    def __init__(self, rules: StopRules, objectives: Sequence[Objective], planned: int | None) -> None:
        self._rules, self._planned = rules, planned
        self._objectives = tuple(objectives) if rules.objectives else ()
        self._seen: deque[_Ended] = deque()

    def why(self, total: Totals, at_s: float) -> str | None:
        """Return why the run should end now, None where it should not; `at_s` on any clock that does not go back."""
        now = _Ended(at_s, total.outcomes.get("ok", 0), _failed(total))
        self._seen.append(now)
        while len(self._seen) > 1 and at_s - self._seen[1].at_s >= self._rules.window_ns / NS_PER_S:
            self._seen.popleft()
        return self._count(now) or self._rate(now) or self._lost(total)

    def _count(self, now: _Ended) -> str | None:
        most = self._rules.errors
        if most is None or now.failed < most:
            return None
        return f"stop rule: {now.failed:,} requests failed (stop.errors: {most:,})"

    def _rate(self, now: _Ended) -> str | None:
        """Judge the last window; a run that is younger than it is judged once enough requests have ended."""
        limit, before = self._rules.error_rate, self._seen[0]
        if limit is None:
            return None
        failed = now.failed - before.failed
        ended = failed + now.ok - before.ok
        if ended < self._rules.least or failed <= limit * ended:
            return None
        span = format_duration(self._rules.window_ns)
        return (
            f"stop rule: {100 * failed / ended:.3g} % of the {ended:,} requests that ended in the last {span} failed "
            f"(stop.error_rate: {100 * limit:g} %)"
        )

    def _lost(self, total: Totals) -> str | None:
        if self._planned is None:
            return None
        for objective in self._objectives:
            if objective.at_least:
                continue
            if objective.quantile is None:
                bad, most = total.measured_failed, objective.limit * self._planned
            else:
                bad = total.beyond.get(limit_key(objective), 0)
                most = (1 - objective.quantile) * self._planned + SLACK
            if bad > most:
                return _words(objective, bad, self._planned)
        return None


def _words(objective: Objective, bad: int, planned: int) -> str:
    metric = METRIC_BY_NAME[objective.metric]
    limit = f"{objective.limit / metric.scale:,.6g} {metric.unit}"
    if objective.quantile is None:
        return f"{OUT_OF_REACH}{metric.title} < {limit}: {bad:,} of {planned:,} planned requests have failed already"
    label = f"{metric.title} p{100 * objective.quantile:g}"
    return f"{OUT_OF_REACH}{label} < {limit}: {bad:,} of {planned:,} planned requests are above it already"


def _failed(total: Totals) -> int:
    return sum(n for name, n in total.outcomes.items() if name in FAILED_OUTCOMES)
