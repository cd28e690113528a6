"""Know what the operator's page is told: one point a second, what happened, the percentiles of the whole run.

For watching, never of record. It lives as long as the master and is bounded: an hour of points, the last events.
"""

import datetime
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from servebench.core.units import NS_PER_MS
from servebench.loadgen.progress import LATENCIES
from servebench.loadgen.sketch import Sketch
from servebench.metrics.registry import METRIC_BY_NAME
from servebench.workload.model import Objective

MAX_POINTS = 3600
MAX_EVENTS = 200
POINTS_A_POLL = 150
"""A page that opens late asks again at once for the rest; so no answer is large."""
QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))

_PLACES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("t_s", ("t_s",)),
    ("planned", ("planned_per_s",)),
    ("sent", ("sent_per_s",)),
    ("answered", ("answered_per_s",)),
    ("inflight", ("inflight",)),
    ("ttft_p50", ("ttft_ms", "p50")),
    ("ttft_p95", ("ttft_ms", "p95")),
    ("ttft_p99", ("ttft_ms", "p99")),
    ("gap_p50", ("chunk_gap_ms", "p50")),
    ("gap_p95", ("chunk_gap_ms", "p95")),
    ("tpot_p95", ("tpot_ms", "p95")),
    ("e2e_p50", ("e2e_ms", "p50")),
    ("e2e_p95", ("e2e_ms", "p95")),
    ("out_tokens", ("out_tokens_per_s",)),
    ("in_tokens", ("in_tokens_per_s",)),
    ("cached", ("cached_share",)),
    ("dispatch_lag", ("client", "dispatch_lag_ms_p99")),
    ("read_delay", ("client", "read_delay_ms_p99")),
    ("hub_lag", ("client", "hub_lag_ms_p99")),
    ("cpu", ("client", "cpu")),
    ("running", ("server", "running")),
    ("waiting", ("server", "waiting")),
    ("kv", ("server", "kv_usage")),
    ("queue", ("server", "queue_ms")),
    ("dot", ("dot",)),
)
"""Column of a point, and where a status line has it; `dot` is null but every 10 s."""

COLUMNS: tuple[str, ...] = (*(name for name, _ in _PLACES), "errors")
"""`errors` is a map of class to number in that second, {} in most."""

_HEAD = (
    "state",
    "run_id",
    "phase",
    "t_s",
    "duration_s",
    "workers",
    "sent",
    "answered",
    "ok",
    "inflight",
    "late",
    "shed",
    "planned",
    "planned_total",
    "planned_per_s",
    "sent_per_s",
    "errors",
    "client",
    "server",
)


class LiveBoard:
    """What the page shows of the newest run. Called by greenlets of the master; nothing blocks."""

    def __init__(self) -> None:
        self._points: deque[list[Any]] = deque(maxlen=MAX_POINTS)
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._first = 0
        self._head: dict[str, Any] = {"state": "ready"}
        self._errors: Mapping[str, int] = {}
        self._whole: Mapping[str, Sketch] = {}
        self._phases: Mapping[str, Mapping[str, Sketch]] = {}
        self._limits: list[dict[str, Any]] = []
        self._rows: list[dict[str, Any]] | None = []
        self._phase_rows: list[dict[str, Any]] = []

    def begin(self, run_id: str, objectives: Sequence[Objective] = ()) -> None:
        """Forget the run before; the objectives of this one are drawn as limits."""
        self._limits = limits_of(objectives)
        self._first += len(self._points)
        self._points.clear()
        self._events.clear()
        self._head, self._errors, self._rows = {"state": "preparing", "run_id": run_id}, {}, []
        self._phase_rows = []

    def take(
        self,
        line: Mapping[str, Any],
        whole: Mapping[str, Sketch],
        phases: Mapping[str, Mapping[str, Sketch]] | None = None,
    ) -> None:
        """Add a status line of the run, the sketches since it began, and those of its phases."""
        if len(self._points) == MAX_POINTS:
            self._first += 1
        self._points.append([*(_rounded(_at(line, path)) for _, path in _PLACES), self._newly_failed(line)])
        self._head = {name: line.get(name) for name in _HEAD}
        self._head["now"] = _now()
        self._whole, self._phases, self._rows = whole, phases or {}, None

    def event(self, kind: str, text: str, t_ns: int | None) -> None:
        """Add something that happened."""
        self._events.append({"kind": kind, "text": text, "t_s": None if t_ns is None else t_ns / 1e9, "at": _now()})

    def answer(self, since: int) -> dict[str, Any]:
        """Return what a page that has the points before number `since` is to be told."""
        begin = min(max(since, self._first), self._first + len(self._points)) - self._first
        points = [self._points[index] for index in range(begin, min(begin + POINTS_A_POLL, len(self._points)))]
        end = self._first + begin + len(points)
        if self._rows is None:  # only when somebody looks, and once a second however many do
            self._rows = percentile_rows(self._whole)
            self._phase_rows = [
                {"phase": phase, **row} for phase, whole in self._phases.items() for row in phase_rows(whole)
            ]
        return {
            "run": self._head,
            "columns": COLUMNS,
            "first": self._first,
            "next": end,
            "more": end < self._first + len(self._points),
            "points": points,
            "events": list(self._events)[-40:],
            "table": self._rows,
            "phases": self._phase_rows,
            "limits": self._limits,
        }

    def _newly_failed(self, line: Mapping[str, Any]) -> dict[str, int]:
        errors: Mapping[str, int] = line.get("errors") or {}
        new = {name: count - self._errors.get(name, 0) for name, count in errors.items()}
        self._errors = errors
        return {name: count for name, count in new.items() if count > 0}


def limits_of(objectives: Sequence[Objective]) -> list[dict[str, Any]]:
    """Return the objectives that a live chart can show: metric, label of the quantile, limit in ms."""
    return [
        {"metric": o.metric, "quantile": f"p{100 * o.quantile:g}", "limit": o.limit / NS_PER_MS}
        for o in objectives
        if o.quantile is not None and o.metric in LATENCIES
    ]


def phase_rows(whole: Mapping[str, Sketch]) -> list[dict[str, Any]]:
    """Return n, p50 and p95 of a phase by metric; a metric without a value has no row."""
    kept = ("name", "title", "unit", "n", "p50", "p95")
    return [{name: row[name] for name in kept} for row in percentile_rows(whole) if row["n"]]


def percentile_rows(whole: Mapping[str, Sketch]) -> list[dict[str, Any]]:
    """Return the table of the live percentiles in ms; those with fewer than 10 values beyond them are null."""
    rows = []
    for name in LATENCIES:
        sketch, metric = whole[name], METRIC_BY_NAME[name]
        n = len(sketch)
        *values, largest_ns = sketch.quantiles_ns([*(q for _, q in QUANTILES), 1.0])
        cells = {
            label: _rounded(_ms(ns) if _enough(n, q) else None)
            for (label, q), ns in zip(QUANTILES, values, strict=True)
        }
        about = f"{metric.title}: from {metric.start_event} to {metric.stop_event}"
        rows.append(
            {
                "name": name,
                "title": metric.title,
                "unit": metric.unit,
                "about": about,
                "n": n,
                **cells,
                "max": _rounded(_ms(largest_ns)),
            }
        )
    return rows


def _enough(n: int, q: float) -> bool:
    return n >= 1 if q == 0.5 else n * (1 - q) >= 10 - 1e-9


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _at(line: Mapping[str, Any], path: tuple[str, ...]) -> Any:  # noqa: ANN401 - a JSON value
    value: Any = line
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _rounded(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    """Return a float with four significant digits, anything else as it is: the page has fewer pixels than that."""
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
