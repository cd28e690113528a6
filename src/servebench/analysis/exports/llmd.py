"""Know the benchmark report of llm-d (schema 0.2): one report per load level, in our own definitions.

A report is JSON, which is YAML too, as its readers want. A number that is undefined is left out, as the schema has no
null for it. Latencies are those of clean ok requests, rates those of the level's window.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import numpy as np

from servebench import __version__
from servebench.analysis.curve import CurvePoint
from servebench.analysis.digest import Examined
from servebench.analysis.gaps import gap_statistics
from servebench.analysis.rates import rate_over
from servebench.analysis.source import RunData, workload_of
from servebench.analysis.windows import rows_of
from servebench.analysis.words import verdict_words
from servebench.metrics import METRIC_BY_NAME, formulas
from servebench.metrics.columns import BoolArray, FloatArray
from servebench.shards.manifest import Manifest

QUANTILES: Mapping[str, float] = {
    "p0p1": 0.001, "p1": 0.01, "p5": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95,
    "p99": 0.99, "p99p9": 0.999,
}  # fmt: skip
_LATENCIES = {
    "time_to_first_token": "ttft",
    "normalized_time_per_output_token": "ntpot",
    "time_per_output_token": "tpot",
    "request_latency": "e2e",
}
_RATES = {
    "request_rate": ("request_throughput", "queries/s"),
    "input_token_rate": ("input_token_throughput", "tokens/s"),
    "output_token_rate": ("output_token_throughput", "tokens/s"),
    "total_token_rate": ("total_token_throughput", "tokens/s"),
}


class Stage(NamedTuple):
    """A load level as the report counts them from 0, and the rows planned for it."""

    number: int
    point: CurvePoint
    rows: BoolArray


def llmd_reports(examined: Examined) -> dict[str, bytes]:
    """Return the reports of a run by file name, one per measured load level."""
    run, digest = examined
    stages = [Stage(index, point, rows_of(run, point.level)) for index, point in enumerate(digest.curve)]
    return {
        f"benchmark_report_v0.2,_stage_{stage.number}.yaml": msgspec.json.format(
            msgspec.json.encode(_report(examined, stage)), indent=1
        )
        + b"\n"
        for stage in stages
    }


def _report(examined: Examined, stage: Stage) -> dict[str, Any]:
    run, digest = examined
    manifest = digest.manifest
    aggregate = {"requests": _requests(run, stage), "latency": _latency(run, stage), "throughput": _rates(run, stage)}
    return {
        "version": "0.2",
        "run": _run(manifest, stage),
        "scenario": {"stack": [_stack(examined)], "load": _load(run, manifest, stage)},
        "results": {"request_performance": {"aggregate": aggregate}},
    }


def _run(manifest: Manifest, stage: Stage) -> dict[str, Any]:
    began = datetime.fromtimestamp(manifest.epoch_unix_ns / 1e9, UTC)
    start, end = (began + timedelta(microseconds=ns / 1000) for ns in stage.point.level.window)
    verdict = manifest.verdict
    return {
        "uid": f"{manifest.run_id}-{stage.number}",
        "eid": manifest.run_id,
        "time": {
            "start": start.isoformat(),
            "end": end.isoformat(),
            "duration": f"PT{stage.point.level.window.seconds:.3f}S",
        },
        "description": f"{manifest.name}, phase {stage.point.level.phase}"
        + ("" if verdict is None else f": {verdict_words(verdict)}"),
    }


def _stack(examined: Examined) -> dict[str, Any]:
    """Return the service as far as it was declared; its `cfg_id` is a hash of that."""
    manifest, model = examined.digest.manifest, examined.digest.model
    declared = {f"declared_{name}": value for name, value in manifest.declared.items()}
    said = {"model": model, **declared, "address": manifest.target_url}
    known = {name: value for name, value in said.items() if value is not None}
    content = msgspec.json.encode(known, order="sorted")
    return {
        "metadata": {"label": "service", "cfg_id": hashlib.sha256(content).hexdigest()},
        "standardized": {
            "kind": "generic",
            "tool": manifest.declared.get("engine", "unknown"),
            "tool_version": manifest.declared.get("engine_version", "unknown"),
            **known,
        },
        "native": {},
    }


def _load(run: RunData, manifest: Manifest, stage: Stage) -> dict[str, Any]:
    workload = workload_of(manifest)
    offered = stage.point.level.offered_per_s
    closed = workload.closed if workload is not None else None
    c = run.columns
    known: dict[str, Any] = {
        "tool": "servebench",
        "tool_version": manifest.servebench_version or __version__,
        "parallelism": max(1, len(manifest.workers)),
        "source": "sampled",
        "stage": stage.number,
        "input_seq_len": _lengths(c.input_tokens[stage.rows]) or {"distribution": "other", "value": 0},
        "output_seq_len": _lengths(c.output_tokens[stage.rows]),
        "rate_qps": offered if offered > 0 and closed is None else None,
        "concurrency": closed.users if closed is not None else None,
    }
    return {
        "metadata": {"cfg_id": manifest.workload_hash, "description": manifest.name},
        "standardized": {name: value for name, value in known.items() if value is not None},
        "native": {"config": manifest.workload},
    }


def _lengths(tokens: FloatArray) -> dict[str, Any] | None:
    """Return how long prompts or answers were, None where nobody counted them."""
    known = tokens[~np.isnan(tokens)]
    if not len(known):
        return None
    spread = {"std_dev": float(known.std()), "min": int(known.min()), "max": max(1, int(known.max()))}
    return {"distribution": "other", "value": float(known.mean()), **spread}


def _requests(run: RunData, stage: Stage) -> dict[str, Any]:
    c, rows = run.columns, stage.rows
    ended = c.ok | c.failed
    sent = rows & ~np.isnan(c.sent_ns)
    found = {
        "total": int(np.sum(sent)),
        "failures": int(np.sum(rows & c.failed)),
        "incomplete": int(np.sum(sent & ~ended)),
        "input_length": _statistics(c.input_tokens[rows & c.ok], "count"),
        "output_length": _statistics(c.output_tokens[rows & c.ok], "count"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _latency(run: RunData, stage: Stage) -> dict[str, Any]:
    clean = stage.rows & ~run.spoiled
    found = {}
    for name, metric in _LATENCIES.items():
        values, unit = _values(run, metric)
        found[name] = _statistics(values[clean], unit)
    (gaps,) = gap_statistics(run, [clean], tuple(QUANTILES.values()))
    if gaps.n:
        numbers = zip(("mean", "min", "max", *QUANTILES), (gaps.mean, gaps.min, gaps.max, *gaps.quantiles), strict=True)
        found["inter_token_latency"] = {"units": "ms/token"} | {name: float(ns) / 1e6 for name, ns in numbers}
    return {name: value for name, value in found.items() if value is not None}


def _values(run: RunData, metric: str) -> tuple[FloatArray, str]:
    """Return a metric of each row in milliseconds, or milliseconds per token."""
    if metric == "ntpot":
        c = run.columns
        per_token = formulas.e2e_ns(c) / np.where(c.output_tokens > 0, c.output_tokens, np.nan)
        return per_token / 1e6, "ms/token"
    known = METRIC_BY_NAME[metric]
    return formulas.REQUEST_FORMULAS[metric](run.columns) / known.scale, known.unit


def _statistics(values: FloatArray, unit: str) -> dict[str, Any] | None:
    """Return the statistics of samples; None of none."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    quantiles = zip(QUANTILES, np.quantile(known, list(QUANTILES.values())).tolist(), strict=True)
    spread = {"stddev": float(known.std()), "min": float(known.min()), "max": float(known.max())}
    return {"units": unit, "mean": float(known.mean()), **spread, **dict(quantiles)}


def _rates(run: RunData, stage: Stage) -> dict[str, Any]:
    found = {
        name: (rate_over(metric, run, [stage.point.level.window]), unit) for name, (metric, unit) in _RATES.items()
    }
    return {name: {"units": unit, "mean": rate} for name, (rate, unit) in found.items() if np.isfinite(rate)}
