"""What each process of a command's tree uses: CPU by part of servebench, and the memory of its workers."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
LOOK_EVERY_S = 0.05
WEIGH_EVERY_S = 1.0
"""How often memory is looked at, which walks the pages of the process that is measured."""


class Usage(NamedTuple):
    """CPU seconds of a tree, in all and by part: master, workers, command (root and helpers).

    `worker_pss_mib` is the most that one worker took, pages that it shares counted in part; None without worker.
    """

    cpu_s: float
    parts_s: dict[str, float]
    worker_pss_mib: float | None


def run_tree(command: Sequence[str], *, env: Mapping[str, str], log: Path, timeout_s: float = 300) -> tuple[int, Usage]:
    """Run a command to its end; return its exit code and what it used. Its output goes to `log`.

    Parts are looked at 20 times a second, so what a process does in its last moments counts as the command's.
    """
    before, cpu_s, pss_mib = os.times(), dict[int, tuple[str, float]](), list[float]()
    began = weighed = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    while process.poll() is None:
        now = time.monotonic()
        for pid in _descendants(process.pid):
            found = _part_and_cpu(pid)
            if found is not None:
                cpu_s[pid] = found
        if now - weighed >= WEIGH_EVERY_S:
            weighed = now
            pss_mib += [mib for pid, (part, _) in cpu_s.items() if part == "worker" and (mib := _pss_mib(pid))]
        if now - began > timeout_s:
            process.terminate()
        time.sleep(LOOK_EVERY_S)
    after = os.times()
    total = after.children_user + after.children_system - before.children_user - before.children_system
    parts = {name: sum(s for part, s in cpu_s.values() if part == name) for name in ("worker", "master")}
    return process.returncode, Usage(
        total, {**parts, "command": total - sum(parts.values())}, max(pss_mib, default=None)
    )


def _descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, those that end meanwhile left out."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield child
        yield from _descendants(child)


def _part_and_cpu(pid: int) -> tuple[str, float] | None:
    """Return which part a process is and its CPU seconds; None when it is neither master nor worker, or over."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    part = "worker" if b"--worker" in words else "master" if b"--master" in words else None
    return None if part is None else (part, (int(numbers[11]) + int(numbers[12])) * TICK_S)


def _pss_mib(pid: int) -> float | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), None)
