"""Know the six tiles on top of the report."""

from collections.abc import Sequence

from servebench.analysis.digest import Digest
from servebench.analysis.numbers import UNDEFINED, count, significant
from servebench.analysis.objectives import Result
from servebench.analysis.page.model import Tile
from servebench.analysis.tables import POOLED
from servebench.analysis.words import STATE_GLYPHS, closed_users
from servebench.metrics import METRIC_BY_NAME

_TONES = {"met": "good", "close": "good", "missed": "bad", "undecided": "warn", "too few samples": "warn"}


def tiles(found: Digest) -> tuple[Tile, ...]:
    """Return latency, output, errors, requests and client."""
    counts, client = found.counts, found.client
    errors = found.table.find("error_rate", POOLED)
    per_s = counts.sent / counts.seconds if counts.seconds else None
    clean = client.known and client.clean_s >= client.seconds
    return (
        *((_latency_tile(found, "e2e"),) if found.tokens.all_whole else ()),
        _latency_tile(found, "ttft"),
        *(() if found.tokens.all_whole else (_latency_tile(found, "tpot"),)),
        _output_tile(found),
        Tile(
            title="Errors",
            value=significant(errors.mean if errors else None),
            unit="%",
            definition=METRIC_BY_NAME["error_rate"].formula,
            **_goal(
                found.objectives, "error_rate", None, f"{count(counts.failed)} of {count(counts.ok + counts.failed)}"
            ),
        ),
        Tile(
            title="Requests",
            value=count(counts.sent),
            unit="sent",
            note=f"{significant(per_s)}/s, {closed_users(found.manifest) or f'{count(counts.planned)} planned'}",
            definition=f"Late {count(counts.late)}, shed {count(counts.shed)}, lost {count(counts.lost)}.",
        ),
        Tile(
            title="Client",
            value=("clean" if clean else "spoiled") if client.known else UNDEFINED,
            note=f"{client.clean_s:.0f} of {client.seconds:.0f} s clean" if client.known else "health not recorded",
            tone=("good" if clean else "warn") if client.known else "muted",
            definition="Seconds in which no worker was the limit: hub lag p99 within 20 ms of idle, CPU below 85 %.",
        ),
    )


def _output_tile(found: Digest) -> Tile:
    """Return tokens per second and who counted them; requests per second where nobody could count."""
    name = "request_throughput" if found.tokens.unknown else "output_token_throughput"
    row, metric = found.table.find(name, POOLED), METRIC_BY_NAME[name]
    return Tile(
        title="Answers" if found.tokens.unknown else "Output",
        value=significant(row.mean if row else None),
        unit="req/s" if found.tokens.unknown else "tok/s",
        note=found.tokens.words if not found.tokens.unknown else "without a token count",
        definition=metric.formula,
    )


def _latency_tile(found: Digest, name: str) -> Tile:
    metric, row = METRIC_BY_NAME[name], found.table.find(name, POOLED)
    quantile, value = ("p95", row.p95) if row and row.p95 is not None else ("p50", row.p50 if row else None)
    unit, divisor = (metric.unit, 1.0) if value is None or value <= 9_999 or metric.unit != "ms" else ("s", 1000.0)
    note = "p95 needs 200 samples" if quantile == "p50" and row and row.n else f"n {count(row.n if row else 0)}"
    if name == "ttft" and found.tokens.all_whole:
        note = "undefined: answers in one piece"
    return Tile(
        title=f"{metric.title} {quantile}",
        value=significant(None if value is None else value / divisor),
        unit=unit,
        definition=f"{metric.formula}; ok requests only.",
        **_goal(found.objectives, name, float(quantile[1:]) / 100, note),
    )


def _goal(results: Sequence[Result], metric: str, quantile: float | None, otherwise: str) -> dict[str, str]:
    """Return note and tone of a tile: its objective where the workload has one."""
    for result in results:
        if (result.metric.name, result.quantile) == (metric, quantile):
            note = (
                f"{STATE_GLYPHS[result.state]} {result.state}: {result.sign} {result.limit:,.6g} {result.metric.unit}"
            )
            return {"note": note, "tone": _TONES[result.state]}
    return {"note": otherwise, "tone": "muted"}
