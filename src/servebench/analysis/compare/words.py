"""Know how a comparison is written: for a terminal, for a pull request, for programs."""

import math

import msgspec

from servebench.analysis.compare.paired import LEAST_PAIRS, Difference, pairs_wanted
from servebench.analysis.compare.result import Comparison, LevelLine, Line
from servebench.analysis.numbers import UNDEFINED, plain, significant
from servebench.analysis.render import align, markdown_text
from servebench.analysis.words import printable
from servebench.metrics import METRIC_BY_NAME

_GLYPHS = {"ACCEPTED": "✓", "REJECTED": "✗", "UNDECIDED": "?"}


def headline(found: Comparison) -> str:
    """Return the first line: what was decided, with the primary number."""
    if found.judgement.refused:
        names = ", ".join(item.words for item in found.judgement.refused)
        return f"! not compared: {names} differs"
    if len(found.pairing.pairs) < LEAST_PAIRS:
        return "? no verdict: fewer than 3 pairs show no difference that can be told from the flicker between runs"
    broken = ", ".join(boundary.text for boundary, state in found.boundaries if state == "broken")
    why = f" ({broken} broken)" if broken else ""
    text = f"{_GLYPHS[found.acceptance]} B {found.acceptance}{why}"
    line = found.find(found.primary)
    return text if line is None else f"{text}: {line.wanted.title} {_moves(line)}"


def _moves(line: Line) -> str:
    change = line.difference.change
    if line.verdict == "inconclusive":
        return "inconclusive"
    if line.verdict.startswith("same"):
        return f"is the {line.verdict}"
    bound = line.difference.lo if change > 0 else line.difference.hi
    verb = "rises" if change > 0 else "falls"
    return f"{verb} by {_percent(abs(change))} (at least {_percent(abs(bound or 0.0))}): {line.verdict}"


def _percent(share: float) -> str:
    return f"{significant(100 * share)} %"


def _intro(found: Comparison) -> list[str]:
    pairs = found.pairing.pairs
    lines = [
        f"A  {', '.join(str(pair.base.folder) for pair in pairs)}",
        f"B  {', '.join(str(pair.candidate.folder) for pair in pairs)}",
    ]
    change = found.judgement.change
    lines.append(f"{len(pairs)} pair{'s' if len(pairs) != 1 else ''} on the same schedule; pooled measured phases.")
    if change is not None:
        lines.append(f"One condition differs: {change.words}.")
    return lines + [f"! {mark}" for mark in found.marks]


def way_out(found: Comparison) -> list[str]:
    """Return why a comparison was refused, and what to type to have it all the same."""
    names = " ".join(f"--allow {item.name}" for item in found.judgement.refused)
    return [
        "One change at a time: what else differs may be the reason of a difference.",
        f"  try: {names}   marks it instead",
    ]


def as_text(found: Comparison) -> str:
    """Return the comparison for a terminal."""
    lines = [printable(line) for line in (headline(found), *_intro(found))]
    if found.judgement.refused:
        return "\n".join([*lines, *map(printable, way_out(found))]) + "\n"
    lines += align(comparison_table(found), 2)
    if found.levels:
        lines += ["", f"{found.primary.title} by load level", *map(printable, align(level_table(found.levels), 2))]
    return "\n".join([*lines, *notes(found)]) + "\n"


def as_markdown(found: Comparison) -> str:
    """Return the comparison for a pull request."""
    lines = [f"**{markdown_text(headline(found))}**", "", *(f"- {markdown_text(line)}" for line in _intro(found))]
    if found.judgement.refused:
        return "\n".join([*lines, *(f"- {markdown_text(line)}" for line in way_out(found))]) + "\n"
    lines += ["", *_rows(comparison_table(found))]
    if found.levels:
        lines += ["", f"{found.primary.title} by load level", "", *_rows(level_table(found.levels))]
    return "\n".join([*lines, "", *(f"- {markdown_text(note)}" for note in notes(found))]) + "\n"


def _rows(table: list[list[str]]) -> list[str]:
    head, *rows = table
    escaped = [[markdown_text(cell) for cell in row] for row in rows]
    rule = ["---"] * 2 + ["---:"] * (len(head) - 3) + ["---"]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *escaped)]


def comparison_table(found: Comparison) -> list[list[str]]:
    """Return the head and a row per metric."""
    rows = [["metric", "unit", "A", "B", "change", "95 % interval", "verdict"]]
    single = len(found.pairing.pairs) < LEAST_PAIRS
    for line in found.lines:
        unit = "points" if line.wanted.is_share else "%"
        cells = [significant(line.base), significant(line.candidate), _change(line.difference, unit)]
        verdict = UNDEFINED if single else line.verdict + (" (primary)" if line.wanted == found.primary else "")
        rows.append(
            [line.wanted.title, METRIC_BY_NAME[line.wanted.metric].unit, *cells, _bounds(line.difference), verdict]
        )
    return rows


def level_table(levels: tuple[LevelLine, ...]) -> list[list[str]]:
    """Return the head and a row per load level."""
    rows = [["phase", "level", "offered /s", "A", "B", "change", "95 % interval"]]
    for item in levels:
        step = UNDEFINED if item.step is None else str(item.step + 1)
        cells = [significant(item.offered_per_s), significant(item.base), significant(item.candidate)]
        rows.append([item.phase, step, *cells, _change(item.difference, "%"), _bounds(item.difference)])
    return rows


def _change(found: Difference, unit: str) -> str:
    return UNDEFINED if math.isnan(found.change) else f"{100 * found.change:+.1f} {unit}"


def _bounds(found: Difference) -> str:
    if found.lo is None or found.hi is None:
        return UNDEFINED
    return f"[{100 * found.lo:+.1f}, {100 * found.hi:+.1f}]"


def notes(found: Comparison) -> list[str]:
    """Return what to know beside the table: boundaries, what so many pairs can find, how many would settle it."""
    said = [f"boundary {boundary.text}: {state}" for boundary, state in found.boundaries]
    line = found.find(found.primary)
    if line is not None and line.difference.detectable is not None:
        smallest = _percent(line.difference.detectable)
        said.append(f"{line.difference.pairs} pairs find a change of {smallest} in {line.wanted.title} 4 times in 5.")
        more = pairs_wanted(line.difference, line.margin)
        if line.verdict == "inconclusive" and more is not None:
            said.append(f"About {more} pairs would settle {line.wanted.title}.")
    if any(item.wanted != found.primary for item in found.lines) and len(found.pairing.pairs) >= LEAST_PAIRS:
        said.append("Words of the other metrics allow for their number (Holm).")
    return said


def as_json(found: Comparison) -> str:
    """Return the comparison for programs; changes and bounds as shares of 1, null = undefined."""
    content = {
        "headline": headline(found),
        "acceptance": found.acceptance if found.lines else None,
        "pairs": [[str(run.folder) for run in pair] for pair in found.pairing.pairs],
        "change": found.judgement.change,
        "refused": found.judgement.refused,
        "marks": found.marks,
        "primary": found.primary.name,
        "metrics": [
            {
                "name": line.wanted.name,
                "unit": METRIC_BY_NAME[line.wanted.metric].unit,
                "base": plain(line.base),
                "candidate": plain(line.candidate),
                **_numbers(line.difference),
                "verdict": line.verdict if line.difference.lo is not None else None,
            }
            for line in found.lines
        ],
        "levels": [
            {
                "phase": item.phase,
                "step": item.step,
                "offered_per_s": plain(item.offered_per_s),
                "base": plain(item.base),
                "candidate": plain(item.candidate),
                **_numbers(item.difference),
            }
            for item in found.levels
        ],
        "boundaries": [{"boundary": boundary.text, "state": state} for boundary, state in found.boundaries],
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def _numbers(found: Difference) -> dict[str, float | int | None]:
    return {
        "pairs": found.pairs,
        "change": plain(found.change),
        "lo": plain(found.lo),
        "hi": plain(found.hi),
        "p_value": plain(found.p_value),
        "detectable": plain(found.detectable),
    }
