"""Know the page of a comparison: what was decided, the changes, the boundaries, and the curves of all its runs."""

from collections.abc import Sequence

from servebench import __version__
from servebench.analysis.compare.result import Comparison
from servebench.analysis.compare.words import comparison_table, headline, level_table, notes, way_out
from servebench.analysis.page.model import Banner, Page, PageTable, PlotGroup
from servebench.analysis.page.several import several_groups
from servebench.analysis.plots.figure import Plot
from servebench.analysis.plots.several import Labelled
from servebench.metrics import METRICS

_TONES = {"✓": "good", "✗": "bad", "!": "bad", "?": "warn"}


def sides(found: Comparison) -> tuple[Labelled, ...]:
    """Return every run of the pairs under the name it has on the page; a colour a side."""
    runs: list[Labelled] = []
    for number, pair in enumerate(found.pairing.pairs, start=1):
        for side, (name, run) in enumerate(zip("AB", pair, strict=True)):
            runs.append(Labelled(f"{name}{number}", run.digest, side, name))
    return tuple(runs)


def build_comparison(found: Comparison, plots: Sequence[Plot]) -> Page:
    """Return the page of a comparison in words; the plots are those of the comparison, then those of its runs."""
    glyph, _, words = headline(found).partition(" ")
    change = found.judgement.change
    reasons = (*found.marks, *(way_out(found) if found.judgement.refused else ()))
    own = tuple(plot for plot in plots if plot.name in {"changes", "levels"})
    groups = (PlotGroup(title="Changes", plots=own),) if own else ()
    first = found.pairing.pairs[0]
    return Page(
        name=f"comparison of {first.base.manifest.name}",
        run_id=", ".join(run.manifest.run_id for pair in found.pairing.pairs for run in pair),
        version=__version__,
        when=f"{len(found.pairing.pairs)} pairs",
        verdict=Banner(headline=words, glyph=glyph, tone=_TONES.get(glyph, "warn"), reasons=reasons),
        conditions_line="" if change is None else f"One condition differs: {change.words}",
        tiles=(),
        standouts=tuple(notes(found)) if found.lines else (),
        findings=(),
        plot_groups=(*groups, *several_groups([plot for plot in plots if plot not in own])),
        tables=tuple(_tables(found)),
        conditions=(),
        command="",
        metrics=METRICS,
    )


def _tables(found: Comparison) -> list[PageTable]:
    tables = []
    if found.lines:
        head, *rows = comparison_table(found)
        tables.append(_table("metrics", "Metrics", head, rows))
    if found.levels:
        head, *rows = level_table(found.levels)
        tables.append(_table("by-level", f"{found.primary.title} by load level", head, rows))
    rows = [
        [f"{name}{number}", str(run.folder), str(run.manifest.seed), run.status]
        for number, pair in enumerate(found.pairing.pairs, start=1)
        for name, run in zip("AB", pair, strict=True)
    ]
    return [*tables, _table("runs", "Runs", ["run", "folder", "seed", "status"], rows, left=4)]


def _table(name: str, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 2) -> PageTable:
    return PageTable(name=name, title=title, head=tuple(head), rows=tuple(map(tuple, rows)), left=left)
