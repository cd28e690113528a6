"""Know what the newest readings of all engines say together: sums, the fullest cache, means of the last seconds."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from servebench.telemetry.rules import HARDWARE
from servebench.telemetry.series import SERIES

WINDOW_S = 10.0
SILENT_S = 5.0
"""A reading older than this says nothing of now: gauges are left out, the age is told."""

_TIMES = ("ttft", "queue", "prefill", "decode", "compute", "e2e")

Values = Mapping[str, float]


class Point(NamedTuple):
    """One reading of one source; `t_s` on the monotonic clock."""

    t_s: float
    dialect: str | None
    values: Values


class EngineView:
    """The readings of the last seconds by source."""

    def __init__(self) -> None:
        self._points: dict[str, deque[Point]] = {}

    def take(self, source: str, point: Point) -> bool:
        """Keep a reading; True when a counter fell, so that the engine began again."""
        points = self._points.setdefault(source, deque())
        began_again = bool(points) and _fell(points[-1].values, point.values)
        if began_again:
            points.clear()
        points.append(point)
        while point.t_s - points[0].t_s > WINDOW_S:
            points.popleft()
        return began_again

    def figures(self, now_s: float) -> dict[str, Any] | None:
        """Return the figures of a status line; None while no engine has been read.

        Gauges of sources that fell silent are left out. Times are means over requests in ms, null where none ended.
        """
        points = {source: p for source, p in self._points.items() if p and p[-1].dialect not in HARDWARE}
        if not points:
            return None
        newest = [p[-1] for p in points.values()]
        fresh = [p.values for p in newest if now_s - p.t_s <= SILENT_S]
        grown, span_s = self._grown(list(points.values()))
        return {
            "dialect": ", ".join(sorted({p.dialect or "unknown" for p in newest})),
            "sources": len(points),
            "age_s": now_s - min(p.t_s for p in newest),
            "running": _summed(fresh, "running"),
            "waiting": _summed(fresh, "waiting"),
            "batch_size": _either(
                _summed(fresh, "batch_size"), _ratio(grown.get("inferences"), grown.get("executions"))
            ),
            "kv_usage": max((v["kv_usage"] for v in fresh if "kv_usage" in v), default=None),
            "preemptions_per_s": _ratio(grown.get("preemptions"), span_s),
            "out_tokens_per_s": _ratio(grown.get("output_tokens"), span_s),
            "in_tokens_per_s": _ratio(grown.get("prompt_tokens"), span_s),
            "prefix_hit_share": _ratio(grown.get("prefix_hits"), grown.get("prefix_queries")),
            "accepted_share": _ratio(grown.get("accepted_tokens"), grown.get("drafted_tokens")),
            **{f"{name}_ms": _mean_ms(grown, name) for name in _TIMES},
        }

    @staticmethod
    def _grown(points: list["deque[Point]"]) -> tuple[dict[str, float], float | None]:
        """Return by how much the counters of all sources grew in the window, and how long that is."""
        grown: dict[str, float] = {}
        span_s = 0.0
        for one in points:
            first, last = one[0], one[-1]
            span_s = max(span_s, last.t_s - first.t_s)
            for name in last.values.keys() & first.values.keys():
                if SERIES[name].kind == "counter":
                    grown[name] = grown.get(name, 0.0) + last.values[name] - first.values[name]
        return grown, span_s or None


def _fell(before: Values, after: Values) -> bool:
    return any(SERIES[name].kind == "counter" and after[name] < before[name] for name in before.keys() & after.keys())


def _summed(values: list[Values], name: str) -> float | None:
    found = [v[name] for v in values if name in v]
    return sum(found) if found else None


def _either(first: float | None, second: float | None) -> float | None:
    return second if first is None else first


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _mean_ms(grown: Values, name: str) -> float | None:
    mean_s = _ratio(grown.get(f"{name}_s"), grown.get(f"{name}_n"))
    return None if mean_s is None else 1e3 * mean_s
