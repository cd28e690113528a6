"""Know where the time of answers went that are made of several steps: a breakdown that adds up to the whole.

Each moment of an answer belongs to the innermost steps that are going on; where several run side by side it is shared
equally among them, and what no step covers is `other`. So the parts of an answer add up to its time, whatever its steps
do.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from servebench.core.errors import ShardError
from servebench.metrics import enough, percentile
from servebench.shards.reader import read_parts
from servebench.shards.span_schema import SPAN_SCHEMA, WHOLE

OTHER = "other"
FOLDER = "spans"


class Span(NamedTuple):
    """One step of an answer; ns on any clock. `parent` is the number of the step around it, 0 = the answer."""

    number: int
    parent: int
    name: str
    start_ns: int
    end_ns: int


class Part(NamedTuple):
    """What one step means for the answers of a name, in ms; `n` = answers that had it, percentiles over those.

    `mean` is over all answers that ended well, so the means of all parts add up to the mean of the whole. None = too
    few for that percentile.
    """

    answer: str
    span: str
    n: int
    mean: float
    p50: float
    p95: float | None
    share: float


class Breakdown(NamedTuple):
    """The answers of one name: how many ended well and how many raised, their time in ms, and its parts."""

    answer: str
    ok: int
    failed: int
    mean: float | None
    p50: float | None
    p95: float | None
    parts: tuple[Part, ...]


def own_times(start_ns: int, end_ns: int, spans: Sequence[Span]) -> dict[str, float]:
    """Return how much of [start_ns, end_ns) each step has for itself, by name; ns, they add up to the whole.

    Steps with one name add up. What lies outside the answer does not count.
    """
    edges = sorted({start_ns, end_ns, *(t for s in spans for t in (s.start_ns, s.end_ns) if start_ns < t < end_ns)})
    found: defaultdict[str, float] = defaultdict(float)
    for left, right in pairwise(edges):
        going = [span for span in spans if span.start_ns <= left and span.end_ns >= right]
        around = {span.parent for span in going}
        inner = [span.name for span in going if span.number not in around] or [OTHER]
        for name in inner:
            found[name] += (right - left) / len(inner)
    return dict(found)


def breakdowns(folder: Path) -> tuple[Breakdown, ...]:
    """Return the breakdown of each kind of answer that a folder's `spans` hold, by name.

    Raises ShardError where there are none, or a part of them cannot be read.
    """
    rows = read_parts(folder / FOLDER, schema=SPAN_SCHEMA)
    if rows.faults:
        raise ShardError("; ".join(map(str, rows.faults)))
    answers: defaultdict[tuple[str, int], list[dict[str, object]]] = defaultdict(list)
    for row in rows.table.to_pylist():
        answers[row["worker"], row["answer_id"]].append(row)
    by_name: defaultdict[str, list[list[dict[str, object]]]] = defaultdict(list)
    for members in answers.values():
        by_name[str(members[0]["answer"])].append(members)
    if not by_name:
        msg = f"{folder / FOLDER} holds no answer"
        raise ShardError(msg)
    return tuple(_breakdown(name, by_name[name]) for name in sorted(by_name))


def _breakdown(name: str, answers: Sequence[Sequence[dict[str, object]]]) -> Breakdown:
    spent: list[float] = []
    times: defaultdict[str, list[float]] = defaultdict(list)
    for members in answers:
        whole = next(row for row in members if row["number"] == WHOLE)
        if whole["error"] is not None:
            continue
        start_ns, end_ns = _int(whole, "start_ns"), _int(whole, "end_ns")
        spent.append((end_ns - start_ns) / 1e6)
        for span, ns in own_times(start_ns, end_ns, _steps(members)).items():
            times[span].append(ns / 1e6)
    total = np.array(spent)
    parts = [_part(name, span, np.array(values), float(total.sum()), len(spent)) for span, values in times.items()]
    return Breakdown(
        answer=name,
        ok=len(spent),
        failed=len(answers) - len(spent),
        mean=float(total.mean()) if spent else None,
        p50=percentile(total, 0.5) if spent else None,
        p95=percentile(total, 0.95) if enough(len(spent), 0.95) else None,
        parts=tuple(sorted(parts, key=lambda part: (part.span == OTHER, -part.mean))),
    )


def _part(
    answer: str, span: str, values: "np.ndarray[tuple[int], np.dtype[np.float64]]", total: float, ok: int
) -> Part:
    return Part(
        answer=answer,
        span=span,
        n=len(values),
        mean=float(values.sum()) / ok,
        p50=percentile(values, 0.5),
        p95=percentile(values, 0.95) if enough(len(values), 0.95) else None,
        share=float(values.sum()) / total if total else 0.0,
    )


def _steps(members: Sequence[dict[str, object]]) -> list[Span]:
    return [
        Span(_int(row, "number"), _int(row, "parent"), str(row["span"]), _int(row, "start_ns"), _int(row, "end_ns"))
        for row in members
        if row["number"] != WHOLE
    ]


def _int(row: dict[str, object], name: str) -> int:
    value = row[name]
    if not isinstance(value, int):
        msg = f"a span has {value!r} in column {name}"
        raise ShardError(msg)
    return value
