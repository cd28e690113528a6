"""Print what merging a large run costs: wall time, CPU and memory of all processes, beside DuckDB on the same files.

    python -m tests.bench.bench_merge [REQUESTS] [FOLDER]

A request has 100 events in the mean; the default of 1,000,000 makes 370 MB, once, in FOLDER (a folder of its own below
the temporary one). Each side is a process of its own; they run five times, in turns, and medians are shown. Other load
on the machine lengthens wall times, so ratios are of CPU. Memory is the most that all processes held at one moment.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from tests.bench.merge_data import write_large_run

ROUNDS = 5
QUANTILES = [0.5, 0.9, 0.95, 0.99, 0.999]
SQL = """
with answers as (
    select list_filter(
        list_transform(chunk_ns, lambda ns, i: case when chunk_kind[i] = 'content' then ns end),
        lambda ns: ns is not null) as ns
    from read_parquet('{folder}/requests/*.parquet') where outcome = 'ok' and measured),
gaps as (select unnest(list_transform(ns[2:], lambda later, i: later - ns[i])) as gap from answers)
select count(gap), quantile_cont(gap, {quantiles}) from gaps
"""


class Cost(NamedTuple):
    """What one process tree took, MB at their highest: `resident` counts shared pages in each process, `own` once."""

    wall_s: float
    cpu_s: float
    resident: float
    own: float
    printed: str


def merge(folder: Path) -> None:
    """Read the whole run, compute and write everything but the report."""
    from servebench.analysis.digest import examine
    from servebench.analysis.merge import write_outputs
    from servebench.analysis.pool import helpers

    with helpers(folder) as executor:
        write_outputs(folder, examine(folder, executor).digest)


def duckdb(folder: Path) -> None:
    """Print n and percentiles of the chunk gaps of measured ok requests."""
    import duckdb as database

    sql = SQL.format(folder=folder, quantiles=QUANTILES)
    print(json.dumps(database.connect().execute(sql).fetchone()))


def percentiles(folder: Path) -> None:
    """Print the same numbers by our own reader and reducers."""
    from servebench.analysis.chunks import BLOCK_EVENTS, CHUNK_COLUMNS, event_pieces
    from servebench.analysis.columns import flags, words
    from servebench.analysis.time_axis import TimeAxis
    from servebench.metrics.columns import row_blocks
    from servebench.metrics.events import chunk_gaps
    from servebench.metrics.exact import Finder, Tally
    from servebench.shards.open_part import open_part
    from servebench.shards.reader import part_paths

    def show_to(count: Tally | Finder) -> None:
        for path in part_paths(folder / "requests"):
            part, start = open_part(path), 0
            table = part.read(("outcome", "measured"))
            chosen = flags(table, "measured") & (words(table, "outcome") == "ok")
            for chunks in event_pieces(part, TimeAxis(), CHUNK_COLUMNS):
                for first, last in row_blocks(chunks.offsets, BLOCK_EVENTS):
                    count.add(chunk_gaps(chunks.rows(first, last), chosen[start + first : start + last]).ns)
                start += len(chunks.offsets) - 1

    tally = Tally()
    show_to(tally)
    finder = Finder(tally, QUANTILES)
    show_to(finder)
    print(json.dumps([tally.n, finder.found().tolist()]))


SIDES = {side.__name__: side for side in (merge, percentiles, duckdb)}


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command and watch its processes until it ends."""
    before, began, resident, own = os.times(), time.monotonic(), 0, 0
    process = psutil.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        held = _held(process)
        resident, own = max(resident, held[0]), max(own, held[1])
        time.sleep(0.1)
    printed = process.stdout.read()
    after = os.times()
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(time.monotonic() - began, cpu, resident / 1e3, own / 1e3, printed)


def _held(process: psutil.Process) -> tuple[int, int]:
    """Return the resident and the proportional KB of all processes now."""
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0
    found = [_rollup(one.pid) for one in tree]
    return sum(kb["Rss"] for kb in found), sum(kb["Pss"] for kb in found)


def _rollup(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        lines = []
    return {"Rss": 0, "Pss": 0} | {line.split(":")[0]: int(line.split()[1]) for line in lines}


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    requests = int(arguments[0]) if arguments else 1_000_000
    place = Path(arguments[1]) if len(arguments) > 1 else Path(tempfile.gettempdir()) / f"servebench-merge-{requests}"
    folder = write_large_run(place, requests)
    costs: dict[str, list[Cost]] = {name: [] for name in SIDES}
    for _ in range(ROUNDS):
        for name, found in costs.items():
            found.append(cost_of([sys.executable, "-m", "tests.bench.bench_merge", f"--{name}", str(folder)]))
    print(f"{requests:,} requests, load average {os.getloadavg()[0]:.1f}")
    for name, found in costs.items():
        wall, cpu, resident, own = (statistics.median(getattr(cost, key) for cost in found) for key in Cost._fields[:4])
        print(f"  {name:<12} wall {wall:6.1f} s   CPU {cpu:6.1f} s   RSS {resident:6.0f} MB   PSS {own:6.0f} MB")
    ours, theirs = (json.loads(costs[name][0].printed) for name in ("percentiles", "duckdb"))
    print(f"  n equal: {ours[0] == theirs[0]}; quantiles equal: {ours[1] == theirs[1]}")


if __name__ == "__main__":
    side = SIDES.get(sys.argv[1].removeprefix("--")) if len(sys.argv) > 1 else None
    side(Path(sys.argv[2])) if side else main(sys.argv[1:])
