"""Know how to write engine and hardware parts of a run without the product: rows straight through pyarrow."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.builders import RUN_ID

from servebench.shards.engine_schema import ENGINE_SCHEMA
from servebench.shards.schema import SCHEMA_VERSION

ADDRESS = "http://127.0.0.1:8000/metrics"

Reading = tuple[int, Mapping[str, float]]


def write_pages(
    folder: Path,
    readings: Sequence[Reading],
    *,
    dialect: str | None = "vllm",
    source: str = ADDRESS,
    kind: str = "engine",
    number: int = 0,
) -> None:
    """Write one part of canonical rows; each reading is (ns of the run clock, value by series)."""
    rows: list[dict[str, Any]] = [
        {"run_id": RUN_ID, "t_ns": t_ns, "source": source, "dialect": dialect, "series": series, "value": value}
        for t_ns, values in readings
        for series, value in values.items()
    ]
    rows += [
        {
            "run_id": RUN_ID,
            "t_ns": t_ns,
            "source": source,
            "dialect": dialect,
            "name": "raw",
            "labels": "{}",
            "value": 1,
        }
        for t_ns, _ in readings
    ]
    blank = dict.fromkeys(ENGINE_SCHEMA.names)
    metadata = {"run_id": RUN_ID, "schema_version": SCHEMA_VERSION, "worker": "master"}
    table = pa.Table.from_pylist([blank | row for row in rows], schema=ENGINE_SCHEMA.with_metadata(metadata))
    (folder / kind).mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / kind / f"part-master-{number:06d}.parquet")


def write_events(folder: Path, *events: Mapping[str, Any]) -> None:
    """Write events.jsonl."""
    text = "".join(json.dumps(event) + "\n" for event in events)
    (folder / "events.jsonl").write_text(text, encoding="utf-8")


def counters(n: int, **mean_s: float) -> dict[str, float]:
    """Return counters after `n` requests with these mean times, such as queue=0.2."""
    found: dict[str, float] = {}
    for name, seconds in mean_s.items():
        found |= {f"{name}_s": seconds * n, f"{name}_n": float(n)}
    return found
