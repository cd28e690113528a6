"""Know the result file of `vllm bench serve --save-result --save-detailed`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from servebench.analysis.chunks import works
from servebench.analysis.dialects import Speech, between_choices, dialect_named, speak
from servebench.analysis.digest import Examined
from servebench.analysis.numbers import plain
from servebench.analysis.source import RunData, workload_of
from servebench.metrics.columns import FloatArray

_VLLM = {"ttft": "ttft", "tpot": "tpot", "gap": "itl", "e2e": "e2el"}


def vllm_result(examined: Examined) -> bytes:
    """Return what `vllm bench serve --save-result --save-detailed` writes of such a run; null = undefined.

    Numbers are in that tool's definitions (`table --dialect vllm`); texts of answers are left out.
    """
    run, manifest = examined.run, examined.digest.manifest
    speech = speak(run, dialect_named("vllm"))
    workload = workload_of(manifest)
    closed = workload.closed if workload is not None else None
    content: dict[str, Any] = {
        "date": _date(manifest.created_utc),
        "backend": workload.target.endpoint if workload else None,
        "label": manifest.run_id,
        "model_id": examined.digest.model,
        "tokenizer_id": None,
        "num_prompts": examined.digest.counts.rows,
        "request_rate": plain(examined.digest.counts.planned / examined.digest.counts.seconds)
        if examined.digest.counts.seconds
        else None,
        "burstiness": None,
        "max_concurrency": closed.users if closed is not None else None,
        "duration": plain(speech.duration_s),
        "completed": speech.ok,
        "failed": speech.failed,
        "total_input_tokens": round(speech.input_tokens),
        "total_output_tokens": round(speech.output_tokens),
        "request_throughput": plain(speech.value("requests", "value")),
        "output_throughput": plain(speech.value("output", "value")),
        "total_token_throughput": plain(speech.value("tokens", "value")),
    }
    detail = _detail(run)
    return msgspec.json.format(msgspec.json.encode(content | _statistics(speech, detail) | detail), indent=1) + b"\n"


def _date(created_utc: str) -> str:
    try:
        return f"{datetime.fromisoformat(created_utc).astimezone(UTC):%Y%m%d-%H%M%S}"
    except ValueError:
        return created_utc


def _statistics(speech: Speech, detail: dict[str, list[Any]]) -> dict[str, float | None]:
    spread = {"ttft": detail["ttfts"], "itl": [gap for gaps in detail["itls"] for gap in gaps]}
    deviations = {f"std_{name}_ms": _deviation(seconds) for name, seconds in spread.items()}
    return deviations | {
        f"{name}_{_VLLM[item.quantity.key]}_ms": plain(value)
        for item in speech.spoken
        if item.quantity.key in _VLLM
        for name, value in item.statistics.items()
    }


def _deviation(seconds: Sequence[float | None]) -> float | None:
    """Return the standard deviation of known values in ms; None of none."""
    known = [value for value in seconds if value is not None]
    return plain(1000 * float(np.std(known))) if known else None


def _detail(run: RunData) -> dict[str, list[Any]]:
    """Return the lists with one element per measured ok request, in order of seq; seconds, start on the run clock."""
    c = run.columns
    rows = np.flatnonzero(run.measured & c.ok)
    gaps: list[list[float]] = [[] for _ in range(len(run.seq))]
    for part in works(run.chunks, c.ok & run.measured, ()):
        for own, chunks in part.blocks():
            found = between_choices(chunks, part.ok[own])
            places = part.part.place[own][found.request].tolist()
            for place, gap in zip(places, (found.ns / 1e9).tolist(), strict=True):
                gaps[place].append(gap)
    return {
        "input_lens": _whole(c.input_tokens[rows]),
        "output_lens": _whole(c.output_tokens[rows]),
        "ttfts": [plain(value, 9) for value in ((c.events.first_choice_ns - c.sent_ns)[rows] / 1e9).tolist()],
        "itls": [gaps[row] for row in rows.tolist()],
        "latencies": [plain(value, 9) for value in ((c.events.last_choice_ns - c.sent_ns)[rows] / 1e9).tolist()],
        "start_times": [plain(value, 9) for value in (c.sent_ns[rows] / 1e9).tolist()],
        "errors": [""] * len(rows),
    }


def _whole(values: FloatArray) -> list[int | None]:
    return [None if np.isnan(value) else int(value) for value in values.tolist()]
