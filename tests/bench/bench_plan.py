"""What planning costs: CPU of a plan of a million requests beside a sort of as many numbers, in one process.

Run: `pytest tests/bench/bench_plan.py -s`.
"""

import io
import time
from collections.abc import Callable

import numpy as np
import pytest

from servebench.workload.load import parse_workload
from servebench.workload.model import Workload
from servebench.workload.prompts import PromptSet
from servebench.workload.schedule import plan
from servebench.workload.trace_csv import read_csv
from servebench.workload.trace_layout import LAYOUTS

pytestmark = pytest.mark.bench

MILLION = 1_000_000
LAWS = {
    "poisson": "{process: poisson}",
    "gamma": "{process: gamma, cv: 2}",
    "onoff": "{process: onoff, on: 10s, off: 20s, inside: {process: gamma, cv: 2}}",
}


def soak(law: str) -> Workload:
    text = (
        "name: soak\nprompts:\n  sources: [{kind: mt-bench}, {kind: self-instruct}]\n"
        "  input_tokens: {from: trace, max: 4096}\n  output_tokens: {from: trace}\n  trace: {kind: azure}\n"
        f"load:\n  kind: open\n  arrivals: {law}\n"
        "  phases: [{name: soak, shape: diurnal, mean_per_s: 34.75, period: 1h, duration: 8h}]\n"
    )
    return parse_workload(text, "soak.yaml")


def cpu_s(work: Callable[[], object]) -> float:
    """Return the least CPU time of three runs."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.parametrize("law", LAWS)
def test_a_million_requests_are_planned_in_a_few_sorts_of_as_many_numbers(law: str) -> None:
    workload = soak(LAWS[law])
    prompts = PromptSet.load(workload.prompts)
    numbers = np.random.default_rng(1).random(MILLION)
    planned, sorting = cpu_s(lambda: plan(workload, prompts)), cpu_s(lambda: np.sort(numbers))
    print(f"\n{law}: plan {planned:.3f} s CPU, sort {sorting:.3f} s CPU, ratio {planned / sorting:.1f}")
    assert planned < 30 * sorting


def test_a_large_trace_is_read_faster_by_arrow_than_line_by_line() -> None:
    rows = 300_000
    data = ("timestamp,input_length,output_length\n" + "".join(f"{n / 100:.2f},100,10\n" for n in range(rows))).encode()

    def read(large_bytes: int) -> Callable[[], object]:
        return lambda: read_csv(io.BytesIO(data), "big.csv", LAYOUTS["csv"], large_bytes=large_bytes)

    by_arrow, by_line = cpu_s(read(1000)), cpu_s(read(1 << 40))
    print(
        f"\n{rows} rows: Arrow {by_arrow:.3f} s CPU, line by line {by_line:.3f} s CPU, ratio {by_line / by_arrow:.1f}"
    )
    assert by_line > 2 * by_arrow
