"""Know throughput under load: for each load level what was offered, what was achieved, and the latency there."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from servebench.analysis.numbers import plain
from servebench.analysis.rates import rate_over
from servebench.analysis.source import RunData
from servebench.analysis.table_rows import TableRow, statistics_row
from servebench.analysis.windows import Level, levels, rows_of
from servebench.metrics import METRIC_BY_NAME, formulas
from servebench.metrics.columns import FloatArray, IntArray

CURVE_METRICS: tuple[str, ...] = ("ttft", "tpot", "e2e")
CURVE_QUANTILES: tuple[str, ...] = ("p50", "p95", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One measured load level; latencies are table rows in display units."""

    level: Level
    rows: int
    ok: int
    failed: int
    sent_per_s: float
    achieved_per_s: float
    output_tokens_per_s: float
    in_flight_mean: float
    latency: dict[str, TableRow]

    def record(self) -> dict[str, str | int | float | None]:
        """Return a plain object for JSON, CSV and frames; times on the run clock, units in the names."""
        level = self.level
        found: dict[str, str | int | float | None] = {
            "phase": level.phase,
            "step": level.step,
            "start_s": plain(level.window.start_ns / 1e9),
            "end_s": plain(level.window.end_ns / 1e9),
            "offered_per_s": plain(level.offered_per_s),
            "sent_per_s": plain(self.sent_per_s),
            "achieved_per_s": plain(self.achieved_per_s),
            "in_flight_mean": plain(self.in_flight_mean),
            "output_tokens_per_s": plain(self.output_tokens_per_s),
            "requests": self.rows,
            "ok": self.ok,
            "failed": self.failed,
        }
        for name, row in self.latency.items():
            unit = row.unit.replace("/", "_per_")
            found[f"{name}_n"] = row.n
            found |= {f"{name}_{q}_{unit}": plain(getattr(row, q)) for q in (*CURVE_QUANTILES, "p95_lo", "p95_hi")}
        return found


def curve(run: RunData) -> tuple[CurvePoint, ...]:
    """Return one point per measured level that ran, in order of time."""
    order = np.argsort(run.columns.sent_ns, kind="stable")
    values = {name: formulas.REQUEST_FORMULAS[name](run.columns)[order] for name in CURVE_METRICS}
    return tuple(_point(run, level, order, values) for level in levels(run) if level.measured)


def _point(run: RunData, level: Level, order: IntArray, values: Mapping[str, FloatArray]) -> CurvePoint:
    rows = rows_of(run, level)
    clean = (rows & ~run.spoiled)[order]
    return CurvePoint(
        level=level,
        rows=int(np.sum(rows)),
        ok=int(np.sum(rows & run.columns.ok)),
        failed=int(np.sum(rows & run.columns.failed)),
        sent_per_s=int(np.sum(rows & ~np.isnan(run.columns.sent_ns))) / level.window.seconds,
        achieved_per_s=rate_over("request_throughput", run, [level.window]),
        output_tokens_per_s=rate_over("output_token_throughput", run, [level.window]),
        in_flight_mean=rate_over("concurrency", run, [level.window]),
        latency={
            name: statistics_row(METRIC_BY_NAME[name], (), found[clean & ~np.isnan(found)], bound=True)
            for name, found in values.items()
        },
    )
