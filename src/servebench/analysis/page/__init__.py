"""Know what the report says and in which order; words and numbers only, no markup."""

from collections.abc import Sequence

from servebench.analysis.digest import Digest
from servebench.analysis.numbers import clock
from servebench.analysis.page.acceptance import acceptance_tables
from servebench.analysis.page.conditions import command, conditions, conditions_line
from servebench.analysis.page.model import Banner, Page, PlotGroup
from servebench.analysis.page.server import server_tables
from servebench.analysis.page.tables import tables
from servebench.analysis.page.tiles import tiles
from servebench.analysis.page.when import utc
from servebench.analysis.plots import Plot
from servebench.analysis.words import verdict_glyph, verdict_words
from servebench.core.outcomes import Status
from servebench.metrics import METRICS
from servebench.shards.manifest import Verdict


def build_page(found: Digest, plots: Sequence[Plot]) -> Page:
    """Return the report of a digest in words."""
    manifest = found.manifest
    length = max((phase.window.end_ns for phase in found.phases), default=0.0) / 1e9
    return Page(
        name=manifest.name,
        run_id=manifest.run_id,
        version=manifest.servebench_version,
        when=f"{utc(manifest.created_utc)}, {clock(length)} long",
        verdict=_banner(manifest.verdict),
        conditions_line=conditions_line(found),
        tiles=tiles(found),
        standouts=found.standouts,
        findings=tuple(text for text in found.findings.sentences if text not in found.standouts),
        plot_groups=_groups(plots),
        tables=(*tables(found), *acceptance_tables(found.acceptance), *server_tables(found.server)),
        conditions=conditions(found),
        command=command(found),
        metrics=METRICS,
    )


def _banner(verdict: Verdict | None) -> Banner:
    if verdict is None:
        return Banner(headline="no verdict yet", glyph="?", tone="warn", reasons=())
    tone = "warn" if verdict.status == Status.INTERRUPTED or verdict.objectives == "undecided" else "good"
    if verdict.status == Status.INVALID or verdict.objectives == "missed":
        tone = "bad"
    return Banner(
        headline=verdict_words(verdict), glyph=verdict_glyph(verdict), tone=tone, reasons=tuple(verdict.reasons)
    )


def _groups(plots: Sequence[Plot]) -> tuple[PlotGroup, ...]:
    def under(title: str, names: Sequence[str], note: str = "") -> PlotGroup:
        return PlotGroup(title=title, plots=tuple(p for p in plots if p.name in names), note=note)

    groups = (
        under(
            "Under load",
            ("throughput", "ttft-load", "tpot-load", "e2e-load", "tokens-concurrency"),
            "One point per measured load level, a marker shape per phase; no point where samples are too few. "
            "Bars: the 95 % interval of p95.",
        ),
        under(
            "The steps of an answer",
            ("steps",),
            "Own time of each step, as the locustfile named it; what no step covers is other. The means add up to E2E.",
        ),
        under("Over the run", ("rates", "latency", "tokens", "in-flight")),
        under(
            "The server beside the client",
            ("where-time-goes", *(p.name for p in plots if p.name.startswith(("server-", "hardware", "power")))),
            "What the server and its hardware said of themselves, once a second, on the run's own time axis. What was "
            "measured, what inferred, and what was missing stands in the tables below.",
        ),
        under("Distributions", [p.name for p in plots if p.name.startswith("ecdf-")]),
        under("Client", ("hub-lag", "cpu")),
    )
    return tuple(group for group in groups if group.plots)
