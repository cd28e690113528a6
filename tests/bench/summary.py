"""Turn what `make bench` printed into the cost table of README.

    make bench | tee bench.txt; python -m tests.bench.summary bench.txt > cost.md
    python docs/fill_readme.py runs/<run of the demo> --cost cost.md

A row whose bench is not in the file is left out.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """What is said, where the benches print it (all matches are handed over), how, and which command prints it."""

    what: str
    pattern: str
    figure: Callable[[list[tuple[str, ...]]], str]
    command: str


INTRO = """\
On two shared virtual cores, client and server together; absolute times move with the machine, so read the ratios. The
server is the C one in `tests/bench/floor`, 20 ms per token where nothing else is said; errors are against its own log.
`floor-py` is a Python epoll loop that only counts events, `floor-c` the same in C.
{load}"""
OUTRO = "[docs/performance.md](docs/performance.md) has the split by part, and which targets are missed."


def first(text: str) -> Callable[[list[tuple[str, ...]]], str]:
    """Return a figure that fills in the last match: the last alternation, or the summary of all."""
    return lambda found: text.format(*found[-1])


def each(text: str) -> Callable[[list[tuple[str, ...]]], str]:
    """Return a figure that names each case."""
    return lambda found: "; ".join(text.format(*one) for one in found)


def newest(text: str) -> Callable[[list[tuple[str, ...]]], str]:
    """Return a figure that names each case, by its last match."""
    return lambda found: "; ".join(text.format(*one) for one in {one[0]: one for one in found}.values())


ROWS = (
    Row(
        "CPU per streamed token: transport (read, HTTP, events, JSON, chunk columns)",
        r"^(p256|p512|u32|fast): ([\d.]+) x the floor$",
        each("{0} {1} x floor-py"),
        "bench_cases",
    ),
    Row(
        "the same, whole process tree with Locust, recorder, Parquet, merge; marginal",
        r"^([pu]\d+): ([\d.]+) us/token = ([\d.]+) x floor-c, ([\d.]+) x floor-py",
        each("{0} {3} x floor-py, {2} x floor-c"),
        "bench_whole",
    ),
    Row(
        "of which the worker, us per token and CPU s to start and end",
        r"^([pu]\d+): .*worker ([\d.-]+) us \(([\d.-]+) s\)",
        each("{0} {1} us, {2} s"),
        "bench_whole",
    ),
    Row(
        "reading one event: HTTP, event stream, JSON, account",
        r"^timeline, one event per read, text kept +([\d,]+)",
        first("{0} ns"),
        "bench_decode",
    ),
    Row(
        "error of a token gap with a read of its own, p99; of the time to first token, p50 / p99",
        r"^(p\d+) servebench .*alone ([\d.]+) .*?ttft error (\d+) / (\d+) us",
        newest("{0} {1} us; {2} / {3} us"),
        "bench_whole",
    ),
    Row(
        "40,000 tokens/s in one worker (800 streams): got; dispatch lag p50 / p99; hub lag p99 over idle",
        r"^o800 servebench .*?([\d,]+) tok/s.*dispatch_p50_ms ([\d.]+)  dispatch_p99_ms ([\d.]+)"
        r"  hub_over_idle_p99_ms ([\d.-]+)",
        first("{0} tok/s; {1} / {2} ms; {3} ms"),
        "bench_whole o800",
    ),
    Row(
        "hub lag p99 over idle in the second in which 512 answers end together",
        r"^s512 servebench .*hub_worst_ms ([\d.-]+)",
        first("{0} ms"),
        "bench_whole s512",
    ),
    Row(
        "lag p99 behind the schedule at 1,000 requests/s from one worker",
        r"^(dispatch|send) lag p99 at 1000/s: (\d+) us = ([\d.]+) x the floor",
        each("{0} {1} us, {2} x a bare timerfd loop"),
        "bench_dispatch",
    ),
    Row(
        "memory of the worker, peak PSS",
        r"^(p\d+) servebench .*worker (\d+) MiB",
        newest("{0} {1} MiB"),
        "bench_whole",
    ),
    Row("recorded, all columns", r"^([\d.]+) bytes a chunk", first("{0} bytes per chunk"), "bench_flush"),
    Row(
        "the simulator, per token",
        r"^(unpaced|20 ms per step): server ([\d.]+) us/token, ([\d.]+)x",
        each("{0} {1} us, {2} x a C client"),
        "bench_sim",
    ),
)


def table(printed: str) -> str:
    """Return README's block for what the benches printed."""
    loads = re.findall(r"load average: ([\d.]+)", printed)
    load = f"The load average was {loads[0]} before the first run and {loads[-1]} after the last.\n" if loads else ""
    lines = ["| what | figure | command |", "| --- | --- | --- |"]
    for what, pattern, figure, command in ROWS:
        found = [match.groups() for match in re.finditer(pattern, printed, re.MULTILINE)]
        if found:
            program = "pytest -s" if command in {"bench_flush", "bench_sim"} else "python -m"
            where = f"tests/bench/{command}.py" if program == "pytest -s" else f"tests.bench.{command}"
            lines.append(f"| {what} | {figure(found)} | `{program} {where}` |")
    return "\n".join([INTRO.format(load=load), *lines, "", OUTRO])


if __name__ == "__main__":
    print(table(Path(sys.argv[1]).read_text(encoding="utf-8")))
