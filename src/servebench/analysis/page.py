"""Know what the report says and in which order; words and numbers only, no markup."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from servebench.analysis.digest import Digest
from servebench.analysis.numbers import UNDEFINED, clock, count, significant
from servebench.analysis.objectives import Result
from servebench.analysis.plots import Plot
from servebench.analysis.render import SHOWN, shown_unit
from servebench.analysis.tables import POOLED
from servebench.analysis.words import STATE_GLYPHS, verdict_glyph, verdict_words
from servebench.core.outcomes import Status
from servebench.metrics import METRIC_BY_NAME, METRICS, Metric
from servebench.shards.manifest import Verdict

MOST_LOST_SHOWN = 20
_TONES = {"met": "good", "close": "good", "missed": "bad", "too few samples": "warn"}
_SOURCES = {"usage": "by server usage", "events": "one per event: an estimate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """The verdict as the page shows it; `tone` is good, warn or bad."""

    headline: str
    glyph: str
    tone: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One main result. `definition` opens behind its title."""

    title: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = "muted"
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table of text cells; the first `left` columns are flush left, column `text` may wrap."""

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    text: int | None = None
    pooled: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotGroup:
    """Plots under one heading."""

    title: str
    plots: tuple[Plot, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that the template fills in."""

    name: str
    run_id: str
    version: str
    when: str
    verdict: Banner
    conditions_line: str
    tiles: tuple[Tile, ...]
    standouts: tuple[str, ...]
    plot_groups: tuple[PlotGroup, ...]
    tables: tuple[PageTable, ...]
    conditions: tuple[tuple[str, str], ...]
    command: str
    metrics: tuple[Metric, ...]


def build_page(found: Digest, plots: Sequence[Plot]) -> Page:
    """Return the report of a digest in words."""
    manifest = found.manifest
    length = max((phase.window.end_ns for phase in found.phases), default=0.0) / 1e9
    return Page(
        name=manifest.name,
        run_id=manifest.run_id,
        version=manifest.servebench_version,
        when=f"{_utc(manifest.created_utc)}, {clock(length)} long",
        verdict=_banner(manifest.verdict),
        conditions_line=_conditions_line(found),
        tiles=_tiles(found),
        standouts=found.standouts,
        plot_groups=_groups(plots),
        tables=(_percentiles(found), _curve(found), _phases(found), _outcomes(found), *_objectives(found)),
        conditions=_conditions(found),
        command=_command(found),
        metrics=METRICS,
    )


def _utc(text: str) -> str:
    """Return an ISO time in UTC to the second, or the text as it is where it is no such time."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text


def _banner(verdict: Verdict | None) -> Banner:
    if verdict is None:
        return Banner(headline="no verdict yet", glyph="?", tone="warn", reasons=())
    tone = "warn" if verdict.status == Status.INTERRUPTED or verdict.objectives == "undecided" else "good"
    if verdict.status == Status.INVALID or verdict.objectives == "missed":
        tone = "bad"
    return Banner(
        headline=verdict_words(verdict), glyph=verdict_glyph(verdict), tone=tone, reasons=tuple(verdict.reasons)
    )


def _part(workload: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401 - JSON
    """Return a member deep in the workload's JSON, None where it is not there."""
    found: Any = workload
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _model(found: Digest) -> str:
    return found.model or _part(found.manifest.workload, "target", "model") or "model not named"


def _cache(found: Digest) -> str:
    return str(_part(found.manifest.workload, "target", "cache") or "undeclared")


def _declared(found: Digest) -> dict[str, str]:
    declared = found.manifest.declared or _part(found.manifest.workload, "target", "declared") or {}
    return {str(name): str(value) for name, value in declared.items()}


def _conditions_line(found: Digest) -> str:
    return " · ".join([_model(found), *_declared(found).values(), f"cache {_cache(found)}"])


def _tiles(found: Digest) -> tuple[Tile, ...]:
    counts, client = found.counts, found.client
    output, errors = found.table.find("output_token_throughput", POOLED), found.table.find("error_rate", POOLED)
    per_s = counts.sent / counts.seconds if counts.seconds else None
    clean = client.known and client.clean_s >= client.seconds
    return (
        _latency_tile(found, "ttft"),
        _latency_tile(found, "tpot"),
        Tile(
            title="Output",
            value=significant(output.mean if output else None),
            unit="tok/s",
            note=_SOURCES.get(found.token_source or "", "source unknown"),
            definition=METRIC_BY_NAME["output_token_throughput"].formula,
        ),
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
            note=f"{significant(per_s)}/s, {count(counts.planned)} planned",
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


def _latency_tile(found: Digest, name: str) -> Tile:
    metric, row = METRIC_BY_NAME[name], found.table.find(name, POOLED)
    quantile, value = ("p95", row.p95) if row and row.p95 is not None else ("p50", row.p50 if row else None)
    unit, divisor = (metric.unit, 1.0) if value is None or value <= 9_999 or metric.unit != "ms" else ("s", 1000.0)
    note = "p95 needs 200 samples" if quantile == "p50" and row and row.n else f"n {count(row.n if row else 0)}"
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
            note = f"{STATE_GLYPHS[result.state]} {result.state}: < {result.limit:,.6g} {result.metric.unit}"
            return {"note": note, "tone": _TONES[result.state]}
    return {"note": otherwise, "tone": "muted"}


def _groups(plots: Sequence[Plot]) -> tuple[PlotGroup, ...]:
    def under(title: str, names: Sequence[str], note: str = "") -> PlotGroup:
        return PlotGroup(title=title, plots=tuple(p for p in plots if p.name in names), note=note)

    groups = (
        under(
            "Under load",
            ("throughput", "ttft-load", "tpot-load", "e2e-load"),
            "One point per measured load level, a marker shape per phase; no point where samples are too few.",
        ),
        under("Over the run", ("rates", "latency", "tokens", "in-flight")),
        under("Distributions", [p.name for p in plots if p.name.startswith("ecdf-")]),
        under("Client", ("hub-lag", "cpu")),
    )
    return tuple(group for group in groups if group.plots)


def _percentiles(found: Digest) -> PageTable:
    rows = []
    for row in found.table.rows:
        unit, divisor = shown_unit(row)
        numbers = [None if (value := getattr(row, name)) is None else value / divisor for name in SHOWN]
        title = METRIC_BY_NAME[row.metric].title
        rows.append((title, unit, *row.group, count(row.n), *map(significant, numbers)))
    return PageTable(
        name="percentiles",
        title="Percentiles by phase",
        head=("metric", "unit", "phase", "n", *SHOWN),
        rows=tuple(rows),
        left=3,
        pooled=True,
        note=f"Latency of ok requests. {UNDEFINED}: undefined, or fewer samples than 10 / (1 - q).",
    )


def _curve(found: Digest) -> PageTable:
    names = (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "request"))
    rows = []
    for point in found.curve:
        level = UNDEFINED if point.level.step is None else str(point.level.step + 1)
        rates = (point.level.offered_per_s, point.sent_per_s, point.achieved_per_s, point.in_flight_mean)
        latency = [
            significant(value) for name, _ in names for value in (point.latency[name].p50, point.latency[name].p95)
        ]
        rows.append(
            (point.level.phase, level, *map(significant, rates), count(point.ok), count(point.failed), *latency)
        )
    latency_head = [f"{title} {q}, {METRIC_BY_NAME[name].unit}" for name, title in names for q in ("p50", "p95")]
    return PageTable(
        name="curve",
        title="Throughput and latency under load",
        head=("phase", "level", "offered /s", "sent /s", "answered /s", "in flight", "ok", "failed", *latency_head),
        rows=tuple(rows),
    )


def _phases(found: Digest) -> PageTable:
    rows = tuple(
        (
            phase.name,
            phase.shape,
            "yes" if phase.measured else "no, warm-up",
            f"{clock(phase.window.start_ns / 1e9)} to {clock(phase.window.end_ns / 1e9)}",
            *(count(number) for number in (phase.planned, phase.sent, phase.ok, phase.failed, phase.cancelled)),
            *(count(number) for number in (phase.late, phase.shed, phase.lost)),
        )
        for phase in found.phases
    )
    head = (
        "phase",
        "shape",
        "measured",
        "time",
        "planned",
        "sent",
        "ok",
        "failed",
        "cancelled",
        "late",
        "shed",
        "lost",
    )
    return PageTable(name="phases", title="Phases", head=head, rows=rows, left=3)


def _outcomes(found: Digest) -> PageTable:
    total = sum(item.n for item in found.outcomes)
    rows = tuple(
        (
            item.outcome,
            item.error_class or UNDEFINED,
            count(item.n),
            f"{significant(100 * item.n / total)} %",
            item.example or "",
        )
        for item in found.outcomes
    )
    return PageTable(
        name="outcomes",
        title="Outcomes of measured requests",
        head=("outcome", "class", "n", "share", "what was said, once"),
        rows=rows,
        left=2,
        text=4,
    )


def _objectives(found: Digest) -> tuple[PageTable, ...]:
    if not found.objectives:
        return ()
    rows = tuple(
        (
            result.sentence,
            significant(result.measured),
            result.metric.unit,
            count(result.n),
            f"{STATE_GLYPHS[result.state]} {result.state}",
        )
        for result in found.objectives
    )
    head = ("objective", "measured", "unit", "n", "state")
    return (PageTable(name="objectives", title="Objectives", head=head, rows=rows),)


def _conditions(found: Digest) -> tuple[tuple[str, str], ...]:
    manifest = found.manifest
    hosts = ", ".join(f"{worker.worker} on {worker.host} ({worker.state})" for worker in manifest.workers)
    lost = ", ".join(
        f"{item.first}-{item.last} ({item.worker or 'unknown'}: {item.cause})"
        for item in found.accounting.lost[:MOST_LOST_SHOWN]
    )
    if len(found.accounting.lost) > MOST_LOST_SHOWN:
        lost += f" and {count(len(found.accounting.lost) - MOST_LOST_SHOWN)} further ranges, all in run.json"
    pairs = [
        ("target", manifest.target_url),
        ("model", _model(found)),
        *_declared(found).items(),
        ("cache", _cache(found)),
        ("engine of arrivals", manifest.engine),
        ("seed", str(manifest.seed)),
        ("schedule hash", manifest.schedule_hash or UNDEFINED),
        ("workload hash", manifest.workload_hash),
        ("workers", hosts or UNDEFINED),
        ("planned", f"{count(manifest.planned)} of {count(manifest.planned_total)} in the whole schedule"),
        ("rows", f"{count(manifest.rows)} in {count(len(manifest.shards))} parts"),
        ("lost", lost or "none"),
        ("stopped", manifest.stop_cause or "the master ended without a word"),
    ]
    return tuple(pairs)


def _command(found: Digest) -> str:
    said = found.manifest.observed.get("command")
    if isinstance(said, list):
        return shlex.join(without_secrets(str(word)) for word in said)
    return f"servebench run workload.yaml --url {shlex.quote(found.manifest.target_url)}"


def without_secrets(word: str) -> str:
    """Return a word of a command line without the userinfo and query of a URL in it."""
    bare = re.sub(r"://[^/?#\s]*@", "://", word)
    return bare.partition("?")[0] if "://" in bare else bare
