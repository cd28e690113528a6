"""Know how long each step of each answer took, where a locustfile made the answers of a run.

The own times of the steps add up to the time from sent to end: what no step covers is `other`.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from servebench.analysis.spans import FOLDER, OTHER, Span, own_times
from servebench.metrics import METRIC_BY_NAME, Metric
from servebench.metrics.columns import FloatArray, IntArray
from servebench.shards.reader import read_parts
from servebench.shards.span_schema import SPAN_SCHEMA, WHOLE

PREFIX = "step:"
_COLUMNS = ("worker", "answer_id", "number", "parent", "span", "start_ns", "end_ns", "request_id")


def step_times(
    folder: Path, run_id: str, rows: tuple[IntArray, IntArray], spent_ns: FloatArray
) -> dict[str, FloatArray]:
    """Return the own time of each step by name, ns, one element a row of `requests`; NaN where the answer lacks it.

    `rows` are seq and attempt of each row, which its X-Request-Id ends in. `spent_ns` is from sent to end, NaN for what
    does not count. Longest steps first, `other` last; empty where the run recorded none. Damaged parts are left out:
    `faults_beside` names them.
    """
    if not (folder / FOLDER).is_dir():
        return {}
    place = {
        f"{seq}-{attempt}": row for row, (seq, attempt) in enumerate(zip(*map(np.ndarray.tolist, rows), strict=True))
    }
    found: defaultdict[str, FloatArray] = defaultdict(lambda: np.full(len(spent_ns), np.nan))
    for request_id, own in _own_times(folder, run_id):
        row = place.get(request_id.partition("-")[2])
        if row is None or np.isnan(spent_ns[row]):
            continue
        for name, ns in own.items():
            if name != OTHER:
                found[name][row] = np.nan_to_num(found[name][row]) + ns
    if not found:
        return {}
    covered = np.nansum(list(found.values()), axis=0)
    by_size = dict(sorted(found.items(), key=lambda item: -float(np.nansum(item[1]))))
    return {**by_size, OTHER: np.maximum(spent_ns - covered, 0.0)}


def _own_times(folder: Path, run_id: str) -> list[tuple[str, dict[str, float]]]:
    """Return for each answer its request and the own times of its steps."""
    table = read_parts(folder / FOLDER, run_id, _COLUMNS, SPAN_SCHEMA).table
    answers: defaultdict[tuple[str, int], list[tuple[str, Span]]] = defaultdict(list)
    columns = (table[name].to_pylist() for name in _COLUMNS)
    for worker, answer, number, parent, span, start_ns, end_ns, request_id in zip(*columns, strict=True):
        answers[worker, answer].append((request_id, Span(number, parent or 0, span, start_ns, end_ns)))
    found = []
    for members in answers.values():
        whole = next((span for _, span in members if span.number == WHOLE), None)
        if whole is not None and members[0][0] is not None:
            steps = [span for _, span in members if span.number != WHOLE]
            found.append((members[0][0], own_times(whole.start_ns, whole.end_ns, steps)))
    return found


def step_metric(name: str) -> Metric:
    """Return what is said of the time of one step."""
    return Metric(
        name=f"{PREFIX}{name}",
        title=f"step: {name}",
        unit="ms",
        base_unit="ns",
        start_event="the step begins" if name != OTHER else "request sent",
        stop_event="the step ends" if name != OTHER else "answer ends",
        formula="time in which no step inside it is going on; steps side by side share theirs equally",
        undefined_when="the answer has no such step, or the request is not ok",
        kind="request",
        source="spans",
        shown="always",
    )


def metric_named(name: str) -> Metric:
    """Return the metric of a row of a table: of the registry, or of a step."""
    return METRIC_BY_NAME[name] if name in METRIC_BY_NAME else step_metric(name.removeprefix(PREFIX))


def means_ms(steps: Mapping[str, FloatArray], rows: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> dict[str, float]:
    """Return the mean of each step over all answers of some rows, in ms; they add up to the mean time of the answers.

    Empty where no answer of them ended well.
    """
    counted = rows & ~np.isnan(steps[OTHER]) if steps else rows
    if not steps or not counted.any():
        return {}
    return {name: float(np.nan_to_num(values[counted]).mean()) / 1e6 for name, values in steps.items()}
