"""Know how tables are written: aligned text, Markdown, CSV, JSON."""

import csv
import io
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from servebench.analysis.numbers import UNDEFINED, count, significant
from servebench.analysis.steps import metric_named
from servebench.analysis.table_rows import STATISTICS, TableRow
from servebench.analysis.tables import Table
from servebench.analysis.words import printable
from servebench.metrics import METRIC_BY_NAME

SHOWN: tuple[str, ...] = ("mean", "p50", "p95", "p99", "p999", "max")
_SPARED: tuple[str, ...] = ("p999", "p99", "max", "p50")
"""Left out in this order where a terminal is narrow; rates and shares have their value in `mean` only."""
_FORMULA_STARTS = (
    *"=+-@",
    "\N{FULLWIDTH EQUALS SIGN}",
    "\N{FULLWIDTH PLUS SIGN}",
    "\N{FULLWIDTH HYPHEN-MINUS}",
    "\N{FULLWIDTH COMMERCIAL AT}",
)
_LARGEST_MS = 9_999

Cell = str | int | float | None


def shown_unit(row: TableRow, names: Sequence[str] = SHOWN) -> tuple[str, float]:
    """Return the unit of a row for people, and by what to divide: milliseconds above 9,999 are shown in seconds."""
    largest = max((abs(value) for name in names if (value := getattr(row, name)) is not None), default=0.0)
    if row.unit == "ms" and largest > _LARGEST_MS:
        return "s", 1000.0
    return row.unit, 1.0


def for_people(table: Table, *, every: bool = False) -> tuple[TableRow, ...]:
    """Return the rows to show: of the main metrics, and of others that have something to tell; `every` = all."""
    if every:
        return table.rows
    telling = {row.metric for row in table.rows if row.n and (row.mean or row.max)}
    telling -= {"ttfo"} if "reasoning_time" not in telling else set()  # without reasoning it is ttft again

    def shows(name: str) -> bool:
        shown = metric_named(name).shown
        return shown == "always" or (shown == "present" and name in telling)

    return tuple(row for row in table.rows if shows(row.metric))


def _cells(
    table: Table, row: TableRow, names: Sequence[str] = SHOWN, shown: Callable[[str], str] = printable
) -> list[str]:
    """Return the cells of a row; `shown` makes text of the run harmless where it goes."""
    unit, divisor = shown_unit(row)
    numbers = [None if (value := getattr(row, name)) is None else value / divisor for name in names]
    name = row.metric if row.metric in METRIC_BY_NAME else shown(row.metric)  # a step has the name a locustfile gave it
    return [name, unit, *map(shown, row.group), count(row.n), *map(significant, numbers)]


def _header(table: Table, names: Sequence[str] = SHOWN) -> list[str]:
    return ["metric", "unit", *table.by, "n", *names]


def width(text: str) -> int:
    """Return how many terminal columns a text takes: wide characters two, combining ones none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def align(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return lines with columns padded to equal width; the first `left` columns flush left, the others right."""
    widths = [max(width(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = [
            text + " " * (size - width(text)) if index < left else " " * (size - width(text)) + text
            for index, (text, size) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def as_text(table: Table, *, every: bool = False, columns: int | None = None) -> str:
    """Return the table for a terminal, with the reason of its dashes below; `every` = metrics of minor interest too.

    Where `columns` are too few, statistics are left out, and said to be: first those that need the most samples.
    """
    names = list(SHOWN)
    lines = _text_rows(table, names, every=every)
    spare = iter(_SPARED)
    while columns is not None and max(map(width, lines)) > columns and (name := next(spare, None)) is not None:
        names.remove(name)
        lines = _text_rows(table, names, every=every)
    left_out = [name for name in SHOWN if name not in names]
    lines += [""] + ([f"Left out to fit the terminal: {', '.join(left_out)}."] if left_out else [])
    lines += ["Latency of ok requests, from sent unless the name says intended."]
    lines.append(f'"{UNDEFINED}": undefined, or too few samples.')
    if not every:
        lines.append("Main metrics only: --all-metrics shows the others.")
    lines.append("Definitions: servebench table --explain ttft")
    return "\n".join(lines) + "\n"


def _text_rows(table: Table, names: Sequence[str], *, every: bool) -> list[str]:
    rows = [_header(table, names), *(_cells(table, row, names) for row in for_people(table, every=every))]
    return align(rows, 2 + len(table.by))


def as_markdown(table: Table, *, every: bool = False) -> str:
    """Return a Markdown table that pastes into an issue; `every` = metrics of minor interest too."""
    head = _header(table)
    lines = [
        f"| {' | '.join(head)} |",
        f"| {' | '.join(['---'] * (2 + len(table.by)) + ['---:'] * (1 + len(SHOWN)))} |",
    ]
    lines += [f"| {' | '.join(_cells(table, row, shown=markdown_text))} |" for row in for_people(table, every=every)]
    return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    """Return text of a run without control characters, and without what Markdown or HTML would take as its own."""
    safe = printable(text.replace("\n", " ")).replace("\\", "\\\\").replace("&", "&amp;")
    for mark in "`*_[]|<>":
        safe = safe.replace(mark, {"<": "&lt;", ">": "&gt;"}.get(mark, f"\\{mark}"))
    return safe


def as_json(table: Table) -> str:
    """Return a list of objects; null where undefined or where samples are too few."""
    return msgspec.json.format(msgspec.json.encode(table.records()), indent=2).decode() + "\n"


def as_csv(table: Table) -> str:
    """Return CSV with one line a row of the table."""
    extra = [name for name in table.by if name != "phase"]
    return csv_text(["metric", "unit", "phase", *extra, "n", *STATISTICS], table.records())


def csv_text(names: Sequence[str], records: Iterable[Mapping[str, Cell]]) -> str:
    """Return RFC 4180 CSV; undefined is an empty cell, and no text cell can be taken for a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows([_csv_cell(record[name]) for name in names] for record in records)
    return out.getvalue()


def _csv_cell(value: Cell) -> Cell:
    return harmless(value) if isinstance(value, str) else value


def harmless(text: str) -> str:
    """Return the text with an apostrophe before it where a spreadsheet could run it as a formula."""
    bare = text.lstrip()
    if bare.startswith(_FORMULA_STARTS) or text.startswith(("\t", "\r", "\n")):
        return "'" + text
    return text
