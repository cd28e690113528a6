"""Know the page of several runs side by side: their verdicts, what differs between them, one curve each."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from servebench import __version__
from servebench.analysis.compare.conditions import facts
from servebench.analysis.compare.result import COMPARED, Wanted
from servebench.analysis.compare.sides import SideRun
from servebench.analysis.digest import Digest
from servebench.analysis.numbers import UNDEFINED, count, significant
from servebench.analysis.page.model import Banner, Page, PageTable, PlotGroup
from servebench.analysis.page.when import utc
from servebench.analysis.plots.figure import Plot, axis_unit
from servebench.analysis.tables import POOLED
from servebench.analysis.words import verdict_glyph, verdict_words
from servebench.core.outcomes import Status
from servebench.metrics import METRIC_BY_NAME, METRICS

UNDER_LOAD_NOTE = (
    "One point per measured load level, a colour and marker per run; no point where samples are too few. Bars: the "
    "95 % interval of p95."
)
_NO_VERDICT = (
    "One run each shows no difference that can be told from the flicker between runs: servebench compare takes pairs."
)


class Named(NamedTuple):
    """A run folder under the name it has on the page."""

    label: str
    folder: Path
    digest: Digest


def labels(digests: Sequence[Digest]) -> tuple[str, ...]:
    """Return a short name per run: a letter, and its id without the time."""
    found = []
    for index, digest in enumerate(digests):
        letter = f"{chr(ord('A') + index % 26)}{index // 26 or ''}"
        found.append(f"{letter} {digest.manifest.run_id.partition('-')[2] or digest.manifest.name}")
    return tuple(found)


def build_several(runs: Sequence[Named], plots: Sequence[Plot]) -> Page:
    """Return the page of several runs in words; the first plots are those under load."""
    differing = _differing(runs)
    return Page(
        name=", ".join(dict.fromkeys(run.digest.manifest.name for run in runs)),
        run_id=", ".join(run.digest.manifest.run_id for run in runs),
        version=__version__,
        when=f"{count(len(runs))} runs",
        verdict=_banner(runs, differing),
        conditions_line=f"Conditions that differ: {', '.join(row[0] for row in differing.rows) or 'none'}",
        tiles=(),
        standouts=tuple(f"{run.label}: {text}" for run in runs for text in run.digest.standouts),
        findings=(),
        plot_groups=several_groups(plots),
        tables=(_runs_table(runs), differing, _numbers(runs)),
        conditions=(),
        command="",
        metrics=METRICS,
    )


def several_groups(plots: Sequence[Plot]) -> tuple[PlotGroup, ...]:
    """Return the groups of the page: under load, then distributions."""
    spread = tuple(plot for plot in plots if plot.name.startswith("ecdf-"))
    rest = tuple(plot for plot in plots if plot not in spread)
    groups = (
        PlotGroup(title="Under load", plots=rest, note=UNDER_LOAD_NOTE),
        PlotGroup(title="Distributions", plots=spread),
    )
    return tuple(group for group in groups if group.plots)


def _banner(runs: Sequence[Named], differing: PageTable) -> Banner:
    verdicts = [run.digest.manifest.verdict for run in runs]
    bad = [
        run.label for run, verdict in zip(runs, verdicts, strict=True) if verdict and verdict.status == Status.INVALID
    ]
    load = [row[0] for row in differing.rows if row[0].startswith("load.") or row[0] in {"schedule", "endpoint"}]
    reasons = [f"{label} is INVALID: do not use its numbers" for label in bad]
    if load:
        reasons.append(f"not the same load: {', '.join(load)} {'differs' if len(load) == 1 else 'differ'}")
    reasons.append(_NO_VERDICT)
    tone = "bad" if bad else "warn"
    return Banner(
        headline=f"{count(len(runs))} runs side by side, no verdict", glyph="!" if bad else "?", tone=tone,
        reasons=tuple(reasons),
    )  # fmt: skip


def _runs_table(runs: Sequence[Named]) -> PageTable:
    rows = []
    for label, folder, digest in runs:
        verdict = digest.manifest.verdict
        words = UNDEFINED if verdict is None else f"{verdict_glyph(verdict)} {verdict_words(verdict)}"
        began = utc(digest.manifest.created_utc)
        rows.append((label, words, began, digest.model or UNDEFINED, str(folder), count(digest.counts.sent)))
    head = ("run", "verdict", "began", "model", "folder", "sent")
    return PageTable(name="runs", title="Runs", head=head, rows=tuple(rows), left=5)


def _differing(runs: Sequence[Named]) -> PageTable:
    """Return each condition that is not the same in all runs."""
    known = [facts(SideRun(folder=run.folder, digest=run.digest)) for run in runs]
    for one, run in zip(known, runs, strict=True):
        one["schedule"] = run.digest.manifest.schedule_hash or "none"
        one["target"] = run.digest.manifest.target_url
    rows = []
    for name in sorted({name for one in known for name in one}):
        values = [one.get(name, "not said") for one in known]
        if len(set(values)) > 1:
            rows.append((name, *values))
    return PageTable(
        name="differences",
        title="Conditions that differ",
        head=("condition", *(run.label for run in runs)),
        rows=tuple(rows),
        left=1 + len(runs),
        note="All others are the same, as far as they were declared or observed." if rows else "None.",
    )


def _numbers(runs: Sequence[Named]) -> PageTable:
    rows = []
    for wanted in COMPARED:
        values = [_value(run.digest, wanted) for run in runs]
        if any(value is not None for value in values):
            known = [value for value in values if value is not None]
            unit, divisor = axis_unit(METRIC_BY_NAME[wanted.metric].unit, max(known))
            shown = (None if value is None else value / divisor for value in values)
            rows.append((wanted.title, unit, *map(significant, shown)))
    return PageTable(
        name="numbers",
        title="Numbers",
        head=("metric", "unit", *(run.label for run in runs)),
        rows=tuple(rows),
        left=2,
        note=f"All measured phases of a run together. {UNDEFINED}: undefined, or too few samples. {_NO_VERDICT}",
    )


def _value(digest: Digest, wanted: Wanted) -> float | None:
    row = digest.table.find(wanted.metric, POOLED)
    value: float | None = getattr(row, wanted.statistic) if row is not None else None
    return value
