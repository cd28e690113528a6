"""Know the summary that stands at the end of a run: at most 30 lines of 80 columns, plain text."""

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator

from servebench.analysis.digest import Digest
from servebench.analysis.numbers import UNDEFINED, bounds, clock, count, significant
from servebench.analysis.objectives import Result
from servebench.analysis.render import align, shown_unit, width
from servebench.analysis.table_rows import QUANTILES, TableRow
from servebench.analysis.tables import POOLED
from servebench.analysis.words import STATE_GLYPHS, closed_users, printable, verdict_glyph, verdict_words
from servebench.core.outcomes import Outcome, Status
from servebench.metrics import METRIC_BY_NAME, needed
from servebench.shards.manifest import Verdict

WIDTH = 80
MOST_REASONS = 4
_COLUMNS = ("p50", "p95", "p99", "p999", "max")
_METRICS = ("ttft", "tpot", "chunk_gap", "e2e")
_QUANTILE = dict(QUANTILES)


def summary_lines(found: Digest, folder: str, *, report: str | None = None, show_invalid: bool = False) -> list[str]:
    """Return the lines of the summary; `folder` and `report` are paths as the user can paste them.

    Numbers of an INVALID run are left out unless `show_invalid`.
    """
    verdict = found.manifest.verdict
    if verdict is None:
        msg = "a digest carries a verdict"
        raise ValueError(msg)
    lines = [*_opening(found, verdict), *_reasons(verdict)]
    if verdict.status != Status.INVALID or show_invalid:
        lines += [*_objectives(found.objectives), "", *_counts(found), *_table(found), *_standouts(found)]
    elif found.outcomes:
        lines += ["", *_wrap(f"  {_outcome_words(found)}.")]
    if report is not None:
        lines.append(f"Report   {printable(report)}")
    lines.append(f"Next     servebench table {shlex.quote(folder)} --by phase")
    return lines


def verdict_line(found: Digest) -> str:
    """Return the first line alone."""
    verdict = found.manifest.verdict
    return "" if verdict is None else "     ".join(_headline(found, verdict))


def _opening(found: Digest, verdict: Verdict) -> list[str]:
    """Return the first line, or two where one would be too wide."""
    words, what = _headline(found, verdict)
    line = f"{words}     {what}"
    return [line] if width(line) <= WIDTH else [words, *_wrap(f"  {what}")]


def _headline(found: Digest, verdict: Verdict) -> tuple[str, str]:
    manifest = found.manifest
    on = f" on {printable(found.model)[:40]}" if found.model else ""
    length = clock(max((phase.window.end_ns for phase in found.phases), default=0.0) / 1e9)
    workers = len(manifest.workers)
    what = f"{printable(manifest.name)}{on}, {length}, {workers} worker{'s' if workers != 1 else ''}"
    return f"{verdict_glyph(verdict)} {verdict_words(verdict)}", what


def _reasons(verdict: Verdict) -> Iterator[str]:
    shown, hidden = verdict.reasons[:MOST_REASONS], len(verdict.reasons) - MOST_REASONS
    for reason in [*shown, f"and {hidden} more in run.json"] if hidden > 0 else shown:
        yield from textwrap.wrap(printable(reason), WIDTH, initial_indent="  - ", subsequent_indent="    ")


def _objectives(results: tuple[Result, ...]) -> list[str]:
    if not results:
        return []
    rows = [("", "objective", "measured", "95 % interval", "")]
    rows += [
        (
            STATE_GLYPHS[result.state],
            result.sentence,
            UNDEFINED if result.measured is None else f"{significant(result.measured)} {result.metric.unit}",
            _interval(result),
            result.state,
        )
        for result in results
    ]
    lines = ["  " + line for line in align(rows, 5)]
    if any(result.state == "undecided" for result in results):
        lines += _wrap("  undecided: the run is too short to tell; a longer one narrows the interval.")
    return lines


def _interval(result: Result) -> str:
    """Return the bounds, else for how many independent requests the n stand, which were too few for bounds."""
    if result.measured is None:
        return f"{count(result.n)} samples"
    if result.lo is None or result.hi is None:
        return f"{UNDEFINED} (n is worth {count(round(result.n_eff))})"
    return bounds(result.lo, result.hi)


def _outcome_words(found: Digest) -> str:
    totals: Counter[str] = Counter()
    for item in found.outcomes:
        totals[item.outcome] += item.n
    shown = [Outcome.OK.value, *(word for word in totals if word not in (Outcome.OK, Outcome.SHED))]
    return ", ".join(f"{count(totals[word])} {word}" for word in shown)


def _counts(found: Digest) -> list[str]:
    counts = found.counts
    warmup = f" ({count(counts.warmup)} of the warm-up left out)" if counts.warmup else ""
    client = found.client
    plural = "s" if counts.spoiled != 1 else ""
    spoiled = f" ({count(counts.spoiled)} request{plural} left out of latency)" if counts.spoiled else ""
    clean = (
        f"Client clean in {client.clean_s:.0f} of {client.seconds:.0f} s{spoiled}."
        if client.known
        else "Client health not recorded."
    )
    return _wrap(
        f"  {count(counts.rows)} measured requests{warmup}: {_outcome_words(found)}; {count(counts.late)} late, "
        f"{count(counts.shed)} shed, {count(counts.lost)} lost. {_load(found)} {_output(found)} {clean}"
    )


def _load(found: Digest) -> str:
    """Return what was planned and sent per second; of closed load, where nothing is planned, who sent it."""
    counts = found.counts
    planned, sent, ok = (
        significant(number / counts.seconds if counts.seconds else None)
        for number in (counts.planned, counts.sent, counts.ok)
    )
    users = closed_users(found.manifest)
    if users is None:
        return f"Planned {planned} req/s, sent {sent}."
    return f"Closed load of {users}: sent {sent} req/s, answered {ok}."


def _output(found: Digest) -> str:
    """Return what came out per second and who counted it; requests where no token was counted, with the reason."""
    tokens = found.tokens
    said = [ratio.sentence for ratio in tokens.ratios if ratio.counted != "asked"]
    if tokens.unknown:
        answered = found.table.find("request_throughput", POOLED)
        text = f"Answered {significant(answered.mean if answered else None)} req/s."
    else:
        output = found.table.find("output_token_throughput", POOLED)
        text = f"Output {significant(output.mean if output else None)} tok/s ({tokens.words})."
    return " ".join([text, *([tokens.reason] if tokens.reason else []), *said])


def _table(found: Digest) -> list[str]:
    notes: dict[str, str] = {}
    rows = [["", "unit", "n", *_COLUMNS]]
    for name in _METRICS:
        row = found.table.find(name, POOLED)
        if row is not None:
            rows.append(_cells(row, notes))
    return ["  " + line for line in align(rows, 2)] + [f"  {mark} {text}" for text, mark in notes.items()]


def _cells(row: TableRow, notes: dict[str, str]) -> list[str]:
    unit, divisor = shown_unit(row, _COLUMNS)
    cells = []
    for name in _COLUMNS:
        value = getattr(row, name)
        if value is not None:
            cells.append(significant(value / divisor))
        elif name in _QUANTILE and row.n:
            text = f"{name} needs {count(needed(_QUANTILE[name]))} samples, there are {count(row.n)}."
            cells.append(UNDEFINED + notes.setdefault(text, str(len(notes) + 1)))
        else:
            cells.append(UNDEFINED)
    return [METRIC_BY_NAME[row.metric].title, unit, count(row.n), *cells]


def _standouts(found: Digest) -> Iterator[str]:
    if found.standouts:
        yield "What stands out"
    for sentence in found.standouts:
        yield from _wrap("  " + printable(sentence))


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="", subsequent_indent="  ", break_on_hyphens=False)
