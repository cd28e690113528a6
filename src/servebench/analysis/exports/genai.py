"""Know the experiment folder of genai-bench: a file of metadata, and one of numbers per load level.

Numbers are in that tool's definitions (`table --dialect genai-bench`), times in seconds. It knows levels by a whole
number of concurrent requests: here the mean number in flight, rounded, and the next free number where two levels of a
phase round to the same.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from servebench.analysis.columns import floats
from servebench.analysis.curve import CurvePoint
from servebench.analysis.dialects import Speech, dialect_named, speak
from servebench.analysis.digest import Examined
from servebench.analysis.page.conditions import command
from servebench.analysis.source import RunData, workload_of
from servebench.analysis.windows import rows_of
from servebench.metrics.columns import BoolArray, FloatArray, take
from servebench.metrics.dialects import DIALECT_BY_NAME

VERSION = "0.0.5"
_QUANTILES = {"p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99}


class Stage(NamedTuple):
    """A load level under the number that the tool knows it by."""

    concurrency: int
    point: CurvePoint
    rows: BoolArray


def genai_experiment(examined: Examined) -> dict[str, bytes]:
    """Return the files of the experiment by name."""
    stages = list(_stages(examined))
    files = {"experiment_metadata.json": _encode(_metadata(examined, stages))}
    for stage in stages:
        speech = speak(examined.run, dialect_named("genai-bench"), stage.rows)
        if not np.isfinite(speech.duration_s):
            continue  # nothing ended: the format has no word for undefined
        seconds = max(1, round(stage.point.level.window.seconds))
        name = f"{_safe(stage.point.level.phase)}_text-to-text_num_concurrency_{stage.concurrency}_time_{seconds}s.json"
        files[name] = _encode(_level(examined.run, stage, speech))
    return files


def _encode(content: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def _safe(name: str) -> str:
    """Return a name as part of a file name on any system."""
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in name)[:80] or "phase"


def _stages(examined: Examined) -> Iterator[Stage]:
    taken: set[tuple[str, int]] = set()
    for point in sorted(examined.digest.curve, key=lambda point: point.in_flight_mean):
        number = max(1, round(point.in_flight_mean)) if np.isfinite(point.in_flight_mean) else 1
        while (point.level.phase, number) in taken:
            number += 1
        taken.add((point.level.phase, number))
        yield Stage(number, point, rows_of(examined.run, point.level))


def _metadata(examined: Examined, stages: list[Stage]) -> dict[str, Any]:
    digest, manifest = examined.digest, examined.digest.manifest
    workload, model = workload_of(manifest), digest.model or "unknown"
    return {
        "cmd": command(digest),
        "benchmark_version": VERSION,
        "api_backend": workload.target.endpoint if workload else "unknown",
        "auth_config": {},
        "api_model_name": model,
        "server_model_tokenizer": None,
        "model": model,
        "task": "text-to-text",
        "num_concurrency": sorted({stage.concurrency for stage in stages}),
        "batch_size": [1],
        "iteration_type": "num_concurrency",
        "traffic_scenario": list(dict.fromkeys(point.level.phase for point in digest.curve)),
        "additional_request_params": {},
        "server_engine": manifest.declared.get("engine"),
        "server_version": manifest.declared.get("engine_version"),
        "server_gpu_type": manifest.declared.get("accelerator"),
        "server_gpu_count": None,
        "max_time_per_run_s": max((round(stage.point.level.window.seconds) for stage in stages), default=0),
        "max_requests_per_run": max((stage.point.rows for stage in stages), default=0),
        "experiment_folder_name": manifest.run_id,
        "metrics_time_unit": "s",
        "dataset_path": None,
    }


def _level(run: RunData, stage: Stage, speech: Speech) -> dict[str, Any]:
    columns = _columns(run, stage.rows)
    codes = _error_codes(run, stage.rows)
    ended, duration = speech.ok + speech.failed, speech.duration_s
    per_s = {name: tokens / duration for name, tokens in (("in", speech.input_tokens), ("out", speech.output_tokens))}
    aggregated = {
        "scenario": stage.point.level.phase,
        "num_concurrency": stage.concurrency,
        "batch_size": 1,
        "iteration_type": "num_concurrency",
        "run_duration": duration,
        "mean_output_throughput_tokens_per_s": per_s["out"],
        "mean_input_throughput_tokens_per_s": per_s["in"],
        "mean_total_tokens_throughput_tokens_per_s": per_s["in"] + per_s["out"],
        "requests_per_second": speech.value("requests", "value"),
        "error_codes_frequency": {str(code): codes.count(code) for code in sorted(set(codes))},
        "error_rate": speech.failed / ended if ended else 0.0,
        "num_error_requests": speech.failed,
        "num_completed_requests": speech.ok,
        "num_requests": ended,
        "stats": {name: _stats(values) for name, values in columns.items()},
    }
    return {"aggregated_metrics": aggregated, "individual_request_metrics": _rows(columns), "_time_unit": "s"}


def _columns(run: RunData, rows: BoolArray) -> dict[str, FloatArray]:
    """Return the tool's numbers of each ok request, NaN = undefined, by its names."""
    by_key = {item.key: item for item in DIALECT_BY_NAME["genai-bench"].quantities}
    c = take(run.columns, rows & run.columns.ok)
    seconds = {key: of(c) / 1e9 for key, of in ((key, by_key[key].of) for key in ("ttft", "tpot", "e2e")) if of}
    after = seconds["e2e"] - seconds["ttft"]
    with np.errstate(divide="ignore", invalid="ignore"):
        speed, prefill = 1 / seconds["tpot"], c.input_tokens / seconds["ttft"]
    nothing = np.full(len(c), np.nan)
    reasoning = np.where(np.isnan(c.reasoning_tokens), 0.0, c.reasoning_tokens)
    return {
        "ttft": seconds["ttft"],
        "tpot": seconds["tpot"],
        "e2e_latency": seconds["e2e"],
        "output_latency": after,
        "output_inference_speed": np.where(np.isfinite(speed), speed, np.nan),
        "num_input_tokens": c.input_tokens,
        "num_output_tokens": c.output_tokens,
        "num_reasoning_tokens": reasoning,
        "total_tokens": c.input_tokens + c.output_tokens,
        "input_throughput": np.where(np.isfinite(prefill), prefill, np.nan),
        "output_throughput": np.where(np.isfinite(speed), speed, np.nan),
        "audio_throughput": nothing,
    }


def _stats(values: FloatArray) -> dict[str, float | None]:
    known = values[~np.isnan(values)]
    names = ("min", "max", "mean", "stddev", "sum", *_QUANTILES)
    if not len(known):
        return dict.fromkeys(names)
    moments = (known.min(), known.max(), known.mean(), known.std(), known.sum())
    return dict(zip(names, map(float, (*moments, *np.quantile(known, list(_QUANTILES.values())))), strict=True))


def _rows(columns: dict[str, FloatArray]) -> list[dict[str, Any]]:
    """Return the requests of which every number is known: the tool's own reader refuses others."""
    counts = {name for name in columns if name.startswith("num_") or name == "total_tokens"}
    wanted = [name for name in columns if name != "audio_throughput"]
    found = []
    for values in zip(*(columns[name].tolist() for name in wanted), strict=True):
        if not any(np.isnan(values)):
            numbers = {
                name: int(value) if name in counts else value for name, value in zip(wanted, values, strict=True)
            }
            found.append(numbers | {"audio_throughput": None, "error_code": None, "error_message": None})
    return found


def _error_codes(run: RunData, rows: BoolArray) -> list[int]:
    """Return the HTTP status of each failed request; -1, as the tool has it, where there was none."""
    status = floats(run.stored("http_status"), "http_status")[rows & run.columns.failed]
    return [-1 if np.isnan(code) else int(code) for code in status.tolist()]
