"""Know a run over time: load, answers, errors, tokens and latency in bins of at least a second."""

from dataclasses import dataclass

import numpy as np

from servebench.analysis.source import RunData
from servebench.metrics import RequestColumns, formulas
from servebench.metrics.columns import FloatArray

MAX_BINS = 1_200


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Series over bins that start at `start_s` and last `bin_s`; rates per second, latencies ms by sending time.

    `in_flight` is the mean over the bin. A latency is NaN in a bin without samples. `planned_per_s` counts rows by
    intended time (lost requests have no row), and is all 0 for closed load.
    """

    bin_s: float
    start_s: FloatArray
    planned_per_s: FloatArray
    sent_per_s: FloatArray
    answered_per_s: FloatArray
    failed_per_s: FloatArray
    output_tokens_per_s: FloatArray
    in_flight: FloatArray
    ttft_p50_ms: FloatArray
    ttft_p95_ms: FloatArray


def timeline(run: RunData, max_bins: int = MAX_BINS) -> Timeline:
    """Return the series from 0 to the last stamp of any row; bins widen past a second to stay within `max_bins`."""
    c = run.columns
    last_s = float(np.nanmax(np.concatenate((c.sent_ns, c.end_ns, c.intended_ns)), initial=0.0)) / 1e9
    bin_s = float(max(1, int(np.ceil(last_s / max_bins))))
    edges: FloatArray = np.arange(int(last_s // bin_s) + 2, dtype=np.float64) * (bin_s * 1e9)
    ttft = formulas.ttft_ns(c) / 1e6
    p50, p95 = _quantiles(c.sent_ns, ttft, edges)
    return Timeline(
        bin_s=bin_s,
        start_s=edges[:-1] / 1e9,
        planned_per_s=_counts(c.intended_ns, edges) / bin_s,
        sent_per_s=_counts(c.sent_ns, edges) / bin_s,
        answered_per_s=_counts(c.end_ns[c.ok], edges) / bin_s,
        failed_per_s=_counts(c.end_ns[c.failed], edges) / bin_s,
        output_tokens_per_s=_tokens(run.flow.per_second, bin_s, len(edges) - 1) / bin_s,
        in_flight=_in_flight(c, edges),
        ttft_p50_ms=p50,
        ttft_p95_ms=p95,
    )


def _counts(times: FloatArray, edges: FloatArray) -> FloatArray:
    known = ~np.isnan(times)
    counted, _ = np.histogram(times[known], bins=edges)
    return counted.astype(np.float64)


def _tokens(per_second: FloatArray, bin_s: float, bins: int) -> FloatArray:
    """Return tokens per bin; a bin is a whole number of seconds."""
    size = int(bin_s)
    found: FloatArray = np.bincount(np.arange(len(per_second)) // size, per_second, minlength=bins).astype(np.float64)
    return found[:bins]


def _in_flight(c: RequestColumns, edges: FloatArray) -> FloatArray:
    """Return the mean number of open requests per bin, from the integral of openings minus closings."""
    known = ~np.isnan(c.sent_ns)
    ends = np.nan_to_num(c.end_ns[known], nan=np.inf)

    def elapsed(times: FloatArray) -> FloatArray:
        ordered = np.sort(times[np.isfinite(times)])
        index = np.searchsorted(ordered, edges)
        total = np.concatenate((np.zeros(1), np.cumsum(ordered)))
        return index * edges - total[index]  # sum over events before each edge of (edge - event)

    return np.diff(elapsed(c.sent_ns[known]) - elapsed(ends)) / np.diff(edges)


def _quantiles(times: FloatArray, values: FloatArray, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    p50 = np.full(len(edges) - 1, np.nan)
    p95 = p50.copy()
    known = (times >= edges[0]) & ~np.isnan(values)
    place = np.searchsorted(edges, times[known], side="right") - 1
    order = np.argsort(place, kind="stable")
    ordered = values[known][order]
    found, starts = np.unique(place[order], return_index=True)
    for index, start, stop in zip(found, starts, np.append(starts[1:], len(ordered)), strict=False):
        p50[index], p95[index] = np.quantile(ordered[start:stop], (0.5, 0.95))
    return p50, p95
