"""Know how a run folder becomes complete: checked, counted, summarised. Rows are never changed."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from servebench.analysis.accounting import never_closed
from servebench.analysis.curve import CurvePoint
from servebench.analysis.digest import Digest, examine
from servebench.analysis.findings import Findings
from servebench.analysis.markdown import summary_markdown
from servebench.analysis.numbers import plain
from servebench.analysis.render import Cell, as_csv, csv_text
from servebench.core.errors import HarnessError
from servebench.shards.clock_schema import CLOCK_SCHEMA
from servebench.shards.compaction import compact
from servebench.shards.health_schema import HEALTH_SCHEMA
from servebench.shards.manifest import Manifest, read_manifest, write_atomic, write_manifest
from servebench.shards.refusals import refused
from servebench.shards.remote import RemoteFolder
from servebench.shards.schema import REQUESTS_SCHEMA
from servebench.shards.span_schema import SPAN_SCHEMA

SUMMARY_NAME = "summary.json"
MARKDOWN_NAME = "summary.md"
TABLES = "tables"
_COMPACTED = (
    ("requests", REQUESTS_SCHEMA),
    ("health", HEALTH_SCHEMA),
    ("clock", CLOCK_SCHEMA),
    ("spans", SPAN_SCHEMA),
)


def merge(folder: Path) -> Manifest:
    """Check and count the parts of a run; write summary.json, tables/*.csv and last run.json, each atomically.

    Running it again writes the same bytes. Raises ShardError where the folder is no run folder.
    """
    found = examine(folder).digest
    write_outputs(folder, found)
    return found.manifest


def fetch_parts(folder: Path) -> None:
    """Copy the parts that workers put at a URL into the run folder, once.

    Raises ShardError where the folder is no run folder, HarnessError where the URL cannot be read.
    """
    manifest = read_manifest(folder)
    where = str(manifest.observed.get("collect", ""))
    if "://" in where and manifest.state != "merged":
        RemoteFolder(where, manifest.run_id).fetch(folder)


def compact_parts(folder: Path) -> None:
    """Put the small parts of a run that ended in order together; one that did not, or is going on, stays as it is.

    What the disk does not take stays as it is too. Raises ShardError where the folder is no run folder.
    """
    manifest = read_manifest(folder)
    if never_closed(manifest):
        return
    for name, schema in _COMPACTED:
        if (folder / name).is_dir():
            with suppress(HarnessError):
                compact(folder / name, manifest.run_id, schema)


def write_outputs(folder: Path, found: Digest) -> None:
    """Write the files that `merge` owns. Raises HarnessError where the disk does not take one, with the way out."""
    try:
        (folder / TABLES).mkdir(exist_ok=True)
    except OSError as error:
        raise refused(folder / TABLES, error) from error
    write_atomic(folder / TABLES / "percentiles.csv", as_csv(found.table).encode())
    if found.turns is not None:
        write_atomic(folder / TABLES / "turns.csv", as_csv(found.turns).encode())
    write_atomic(folder / TABLES / "curve.csv", curve_csv(found.curve).encode())
    write_atomic(folder / TABLES / "phases.csv", _records_csv([phase.record() for phase in found.phases]).encode())
    arrivals = [item.record() for item in found.findings.arrivals]
    write_atomic(folder / TABLES / "arrivals.csv", _records_csv(arrivals).encode())
    write_atomic(folder / TABLES / "time-split.csv", _records_csv(found.server.records()).encode())
    write_atomic(folder / SUMMARY_NAME, summary_json(found))
    write_atomic(folder / MARKDOWN_NAME, summary_markdown(found).encode())
    write_manifest(folder, found.manifest)


def curve_csv(points: Sequence[CurvePoint]) -> str:
    """Return the throughput-under-load curve, one line a level; text cells cannot be formulas."""
    return _records_csv([point.record() for point in points])


def _records_csv(records: Sequence[dict[str, Cell]]) -> str:
    return csv_text(list(records[0]), records) if records else ""


def summary_json(found: Digest) -> bytes:
    """Return what other programs read: verdict, counts, objectives, outcomes, percentiles, curve; null = undefined."""
    manifest, counts = found.manifest, found.counts
    content = {
        "run_id": manifest.run_id,
        "name": manifest.name,
        "model": found.model,
        "verdict": manifest.verdict,
        "planned": manifest.planned,
        "planned_total": manifest.planned_total,
        "rows": manifest.rows,
        "lost": found.accounting.lost_count,
        "measured": {
            "requests": counts.rows,
            "left_out_warmup": counts.warmup,
            "planned": counts.planned,
            "sent": counts.sent,
            "ok": counts.ok,
            "failed": counts.failed,
            "cancelled": counts.cancelled,
            "shed": counts.shed,
            "late": counts.late,
            "lost": counts.lost,
            "left_out_spoiled": counts.spoiled,
            "sent_outside_window": counts.sent_outside,
            "seconds": plain(counts.seconds),
        },
        "client": {
            "clean_s": plain(found.client.clean_s) if found.client.known else None,
            "seconds": plain(found.client.seconds),
        },
        "token_source": found.token_source,
        "token_counts": found.tokens.record(),
        "objectives": [result.record() for result in found.objectives],
        "outcomes": [item._asdict() for item in found.outcomes],
        "phases": [phase.record() for phase in found.phases],
        "percentiles": found.table.records(),
        "curve": [point.record() for point in found.curve],
        "acceptance": found.acceptance.record(),
        "leaving": found.leaving.record(),
        "cache": None if found.cache is None else found.cache.record(),
        "lengths": None if found.findings.lengths is None else found.findings.lengths.record(),
        "findings": _findings(found.findings),
        "time_split": found.server.records(),
        "standouts": list(found.standouts),
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _findings(found: Findings) -> dict[str, list[dict[str, Any]]]:
    """Return the findings as JSON: fields of their types, rates per second, times in s of the run clock."""
    return {
        "settling": [item._asdict() for item in found.settling],
        "arrivals": [item.record() for item in found.arrivals],
        "saturation": [item._asdict() for item in found.saturation],
        "recovery": [item._asdict() for item in found.recovery],
        "drift": [item._asdict() for item in found.drift],
        "stalls": [item._asdict() for item in found.stalls],
        "memory": [item._asdict() for item in found.memory],
    }
