"""Know the forms in which a run leaves servebench: one row per event, and the result file of `vllm bench serve`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from servebench.analysis.chunks import works
from servebench.analysis.dialects import Speech, between_choices, dialect_named, speak
from servebench.analysis.digest import Examined
from servebench.analysis.frames import chunk_pieces
from servebench.analysis.numbers import plain
from servebench.analysis.render import harmless
from servebench.analysis.source import RunData, workload_of
from servebench.metrics.columns import FloatArray

TEXT_COLUMNS: tuple[str, ...] = ("kind", "worker", "phase")
_VLLM = {"ttft": "ttft", "tpot": "tpot", "gap": "itl", "e2e": "e2el"}


def write_chunks(run: RunData, path: Path, form: Literal["parquet", "csv"]) -> int:
    """Write one row per event of every response, a part at a time; return how many.

    No text cell of a CSV file can be taken for a formula. Raises ShardError where a part changed since it was read.
    """
    temporary = path.with_name(path.name + ".tmp")
    rows = _parquet(run, temporary) if form == "parquet" else _csv(run, temporary)
    temporary.replace(path)
    return rows


def _parquet(run: RunData, path: Path) -> int:
    rows = 0
    schema = pa.Table.from_pandas(next(chunk_pieces(run)), preserve_index=False).schema
    texts = [schema.field(index).with_type(pa.utf8()) for index in map(schema.get_field_index, TEXT_COLUMNS)]
    for field in texts:
        schema = schema.set(schema.get_field_index(field.name), field)
    with pq.ParquetWriter(path, schema.remove_metadata(), compression="zstd") as writer:
        for piece in chunk_pieces(run):
            writer.write_table(pa.Table.from_pandas(piece, schema=schema.remove_metadata(), preserve_index=False))
            rows += len(piece)
    return rows


def _csv(run: RunData, path: Path) -> int:
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for index, piece in enumerate(chunk_pieces(run)):
            safe = piece.assign(**{name: piece[name].map(harmless, na_action="ignore") for name in TEXT_COLUMNS})
            safe.to_csv(file, index=False, header=index == 0, lineterminator="\r\n")
            rows += len(piece)
    return rows


def vllm_result(examined: Examined) -> bytes:
    """Return what `vllm bench serve --save-result --save-detailed` writes of such a run; null = undefined.

    Numbers are in that tool's definitions (`table --dialect vllm`); texts of answers are left out.
    """
    run, manifest = examined.run, examined.digest.manifest
    speech = speak(run, dialect_named("vllm"))
    workload = workload_of(manifest)
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
        "duration": plain(speech.duration_s),
        "completed": speech.ok,
        "failed": speech.failed,
        "total_input_tokens": round(speech.input_tokens),
        "total_output_tokens": round(speech.output_tokens),
        "request_throughput": plain(speech.value("requests", "value")),
        "output_throughput": plain(speech.value("output", "value")),
        "total_token_throughput": plain(speech.value("tokens", "value")),
    }
    return msgspec.json.format(msgspec.json.encode(content | _statistics(speech) | _detail(run)), indent=1) + b"\n"


def _date(created_utc: str) -> str:
    try:
        return f"{datetime.fromisoformat(created_utc).astimezone(UTC):%Y%m%d-%H%M%S}"
    except ValueError:
        return created_utc


def _statistics(speech: Speech) -> dict[str, float | None]:
    return {
        f"{name}_{_VLLM[item.quantity.key]}_ms": plain(value)
        for item in speech.spoken
        if item.quantity.key in _VLLM
        for name, value in item.statistics.items()
    }


def _detail(run: RunData) -> dict[str, list[Any]]:
    """Return the lists with one element per measured ok request, in order of seq; seconds."""
    c = run.columns
    rows = np.flatnonzero(run.measured & c.ok)
    gaps: list[list[float]] = [[] for _ in range(len(run.seq))]
    for part in works(run.chunks, c.ok & run.measured, ()):
        found = between_choices(part.chunks(), part.ok)
        for place, gap in zip(part.part.place[found.request].tolist(), (found.ns / 1e9).tolist(), strict=True):
            gaps[place].append(gap)
    return {
        "input_lens": _whole(c.input_tokens[rows]),
        "output_lens": _whole(c.output_tokens[rows]),
        "ttfts": [plain(value, 9) for value in ((c.events.first_choice_ns - c.sent_ns)[rows] / 1e9).tolist()],
        "itls": [gaps[row] for row in rows.tolist()],
    }


def _whole(values: FloatArray) -> list[int | None]:
    return [None if np.isnan(value) else int(value) for value in values.tolist()]
