"""Know how the breakdown of answers is shown: as text, as plain records, and as a drawing of its own."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from servebench.analysis.numbers import UNDEFINED, count, plain, significant
from servebench.analysis.palette import CYCLE, PLANNED
from servebench.analysis.render import Cell, align
from servebench.analysis.spans import OTHER, Breakdown

_HEAD = ("answer", "step", "n", "mean ms", "share %", "p50 ms", "p95 ms")


def as_text(found: Sequence[Breakdown]) -> str:
    """Return the breakdown for a terminal: each kind of answer, and below it its steps, the longest first."""
    rows: list[Sequence[str]] = [_HEAD]
    for item in found:
        rows.append((item.answer, "", count(item.ok), *_numbers(item.mean, None, item.p50, item.p95)))
        rows += [
            ("", part.span, count(part.n), *_numbers(part.mean, 100 * part.share, part.p50, part.p95))
            for part in item.parts
        ]
    lines = align(rows, 2)
    failed = sum(item.failed for item in found)
    lines += ["", "Own time of each step; the means of the steps add up to that of the answer."]
    lines += [f"{count(failed)} answers raised and are left out."] if failed else []
    return "\n".join(lines) + "\n"


def records(found: Sequence[Breakdown]) -> list[dict[str, Cell]]:
    """Return one plain object for each answer (`span` null) and step, for JSON and CSV; null = undefined."""
    rows: list[dict[str, Cell]] = []
    for item in found:
        rows.append(_record(item.answer, None, item.ok, (item.mean, item.p50, item.p95), 1.0))
        rows += [_record(item.answer, p.span, p.n, (p.mean, p.p50, p.p95), p.share) for p in item.parts]
    return rows


def drawing(found: Sequence[Breakdown]) -> str:
    """Return a page with one bar for each kind of answer, made of its steps; plotly's script is inside."""
    names = list(dict.fromkeys(part.span for item in found for part in item.parts))
    figure = go.Figure()
    for place, name in enumerate(names):
        means = {part.answer: part.mean for item in found for part in item.parts if part.span == name}
        figure.add_bar(
            name=escape(name),
            orientation="h",
            y=[escape(item.answer) for item in found],
            x=[means.get(item.answer, 0.0) for item in found],
            marker={"color": PLANNED if name == OTHER else CYCLE[place % len(CYCLE)]},
        )
    figure.update_layout(
        barmode="stack",
        template="none",
        title="Where the time of an answer goes (mean)",
        xaxis={"title": "ms", "rangemode": "tozero"},
        legend={"traceorder": "normal"},
    )
    page: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return page


def _numbers(*values: float | None) -> tuple[str, ...]:
    return tuple(UNDEFINED if value is None else significant(value) for value in values)


def _record(
    answer: str, span: str | None, n: int, ms: tuple[float | None, float | None, float | None], share: float
) -> dict[str, Cell]:
    mean, p50, p95 = map(plain, ms)
    return {
        "answer": answer,
        "span": span,
        "n": n,
        "mean_ms": mean,
        "share": plain(share),
        "p50_ms": p50,
        "p95_ms": p95,
    }
