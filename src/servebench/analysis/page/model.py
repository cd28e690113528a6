"""Know the parts of the report as values: text cells only, no markup."""

from dataclasses import dataclass

from servebench.analysis.plots import Plot
from servebench.metrics import Metric


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
    findings: tuple[str, ...]
    plot_groups: tuple[PlotGroup, ...]
    tables: tuple[PageTable, ...]
    conditions: tuple[tuple[str, str], ...]
    command: str
    metrics: tuple[Metric, ...]
