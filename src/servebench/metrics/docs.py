"""Know how the registry and the dialects read as Markdown (`docs/metrics.md`, `docs/dialects.md`)."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from servebench.metrics.dialects import DIALECTS, Dialect
from servebench.metrics.metric import Metric
from servebench.metrics.registry import METRICS

_HEAD = """# Metrics

Written by `make gen`; `make test` says whether it is up to date.

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


_DIALECTS_HEAD = """# What other tools would print

Written by `make gen`; `make test` says whether it is up to date.

The same answers give different numbers in different tools, because each starts and stops its clocks at other events.
`servebench table RUN --dialect TOOL` prints a run by the formulas of that tool, `--dialects` prints all of them beside
ours. The formulas were read from the code of the versions named. What a formula cannot undo is how the tool measured:
its own clock, when it reads its socket, and the load that its client puts on the machine. What the tools printed of one
load, and our dialects of it, stand in [dialects-observed.md](dialects-observed.md).

All dialects use the measured requests of a run; totals are divided by the time from the first sending to the last end.
"""


def dialects_markdown(dialects: Sequence[Dialect] = DIALECTS) -> str:
    """Return the page about dialects."""
    lines = [_DIALECTS_HEAD]
    for dialect in dialects:
        statistics = ", ".join(dialect.statistics)
        lines += [f"## {dialect.name}", "", f"{dialect.version}; of latencies: {statistics}.", ""]
        lines += ["| its name | unit | compares with | what differs |", "| --- | --- | --- | --- |"]
        lines += [f"| `{q.name}` | {q.unit} | {_OURS[q.key]} | {q.because or 'nothing'} |" for q in dialect.quantities]
        lines.append("")
    return "\n".join(lines)


_OURS = {
    "ttft": "ttft",
    "tpot": "tpot",
    "gap": "chunk_gap",
    "e2e": "e2e",
    "requests": "request_throughput",
    "output": "output_token_throughput",
    "tokens": "total_token_throughput",
}
_PAGES: dict[str, Callable[[], str]] = {"metrics.md": markdown, "dialects.md": dialects_markdown}


def main(arguments: Sequence[str]) -> int:
    """Write the pages to the paths given, or with `--check` return 1 when a file there says something else."""
    stale = 0
    for path in (Path(argument) for argument in arguments if argument != "--check"):
        page = _PAGES[path.name]()
        if "--check" not in arguments:
            path.write_text(page, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != page:
            sys.stderr.write(f"{path} is out of date; run make gen\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
