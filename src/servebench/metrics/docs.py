"""Know how the registry reads as Markdown (`docs/metrics.md`)."""

import sys
from collections.abc import Sequence
from pathlib import Path

from servebench.metrics.metric import Metric
from servebench.metrics.registry import METRICS

_HEAD = """# Metrics

Written by `python -m servebench.metrics.docs docs/metrics.md`; `--check` says whether it is up to date.

A latency exists for `ok` requests only. "sent" is the moment before the first byte goes out, after connecting; "token
event" is an event of the stream that carries generated text. Percentiles interpolate linearly between order statistics
of the pooled samples; p90 and above stay blank below 10 / (1 - q) samples. An undefined value is null and never 0.
"""

_ONE_PER = {"request": "request", "chunk": "gap", "rate": "window", "share": "set of requests"}


def _row(metric: Metric) -> str:
    cells = (f"`{metric.name}`", metric.title, metric.unit, metric.formula, metric.undefined_when)
    return f"| {' | '.join(cells)} |"


def _section(metric: Metric) -> list[str]:
    lines = [
        "",
        f"## {metric.name}",
        "",
        f"- shown as: {metric.title}, in {metric.unit} (base unit {metric.base_unit})",
        f"- from: {metric.start_event}",
        f"- to: {metric.stop_event}",
        f"- formula: {metric.formula}",
        f"- undefined when: {metric.undefined_when}",
        f"- one value per: {_ONE_PER[metric.kind]}",
        f"- columns: {metric.source}",
    ]
    if metric.aka:
        lines.append("- elsewhere: " + ", ".join(f"{tool}: {name}" for tool, name in metric.aka.items()))
    return lines


def markdown(metrics: Sequence[Metric] = METRICS) -> str:
    """Return the whole page."""
    lines = [_HEAD, "| metric | title | unit | formula | undefined when |", "| --- | --- | --- | --- | --- |"]
    lines += [_row(metric) for metric in metrics]
    for metric in metrics:
        lines += _section(metric)
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page to the path given, or with `--check` return 1 when the file there says something else."""
    path = Path(next(argument for argument in arguments if argument != "--check"))
    if "--check" not in arguments:
        path.write_text(markdown(), encoding="utf-8")
        return 0
    if path.read_text(encoding="utf-8") == markdown():
        return 0
    sys.stderr.write(f"{path} is out of date; run python -m servebench.metrics.docs {path}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
