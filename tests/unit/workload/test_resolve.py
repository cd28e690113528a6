"""A spec becomes base units and segments, and the workload can be written down and read again."""

from pathlib import Path

import pytest

from servebench.core.errors import SpecError
from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.workload.load import load_workload, parse_workload
from servebench.workload.model import Lengths, Objective, Segment, TraceSlice
from servebench.workload.resolve import dump_yaml, quick_workload

CONV = "builtin:azure-llm-2023-conv"
ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "workloads").glob("*.yaml"))

TEXT = """\
name: all-of-it
prompts:
  sources: [{kind: mt-bench}, {kind: self-instruct}]
  order: sequential
  input_tokens: {from: trace, max: 900}
  output_tokens: {from: fixed, tokens: 64}
load:
  kind: open
  arrivals: {process: constant}
  phases:
    - {name: up, shape: steps, rates_per_s: [2, 4, 8], duration: 10s, measured: false}
    - {name: burst, shape: burst, base_per_s: 4, peak_per_s: 20, every: 6s, length: 1s, duration: 9s}
    - {name: rep, shape: replay, trace: {kind: azure}, start: 1m, length: 10s, speed: 4}
    - {name: rest, shape: replay, trace: {kind: azure}, start: 58m}
requests: {timeouts: {first_token: 9s}, params: {temperature: 0, echo: false, stop: null}, max_inflight: 64}
objectives: {ttft: {p95: 800ms, p999: 2s}, error_rate: 1%}
"""


def test_shapes_become_segments() -> None:
    up, burst, _, _ = parse_workload(TEXT, "w.yaml").phases
    third = 10 * NS_PER_S // 3
    assert up.segments == (
        Segment(duration_ns=third, from_per_s=2, to_per_s=2, step=0),
        Segment(duration_ns=third, from_per_s=4, to_per_s=4, step=1),
        Segment(duration_ns=third + 1, from_per_s=8, to_per_s=8, step=2),
    )
    assert not up.measured
    assert [(segment.duration_ns // NS_PER_S, segment.from_per_s) for segment in burst.segments] == [
        (5, 4.0),
        (1, 20.0),
        (3, 4.0),
    ]
    assert burst.duration_ns == 9 * NS_PER_S


def test_step_duration_is_that_of_each_step() -> None:
    text = TEXT.replace("duration: 10s, measured", "step_duration: 10s, measured")
    assert [segment.duration_ns for segment in parse_workload(text, "w.yaml").phases[0].segments] == [10 * NS_PER_S] * 3


def test_a_replay_lasts_its_trace_time_over_its_speed() -> None:
    _, _, rep, rest = parse_workload(TEXT, "w.yaml").phases
    assert rep.replay == TraceSlice(kind="azure", path=CONV, start_ns=60 * NS_PER_S, length_ns=10 * NS_PER_S, speed=4.0)
    assert rep.duration_ns == 2_500_000_000
    # The trace ends at 3501.72 s: from 3480 s on, 22 whole seconds hold the rest.
    assert rest.duration_ns == 22 * NS_PER_S


def test_lengths_come_from_the_first_replayed_trace_where_none_is_named() -> None:
    prompts = parse_workload(TEXT, "w.yaml").prompts
    assert prompts.lengths_trace == TraceSlice(kind="azure", path=CONV, start_ns=60 * NS_PER_S, length_ns=10 * NS_PER_S)
    assert prompts.input_tokens == Lengths(kind="trace", cap=900, over="clip")
    assert prompts.output_tokens == Lengths(kind="fixed", tokens=64)


def test_objectives_have_base_units() -> None:
    assert parse_workload(TEXT, "w.yaml").objectives == (
        Objective(metric="ttft", quantile=0.95, limit=800.0 * NS_PER_MS),
        Objective(metric="ttft", quantile=0.999, limit=2.0 * NS_PER_S),
        Objective(metric="error_rate", quantile=None, limit=0.01),
    )


def test_timeouts_that_are_not_given_keep_their_defaults() -> None:
    timeouts = parse_workload(TEXT, "w.yaml").requests.timeouts
    assert (timeouts.connect_ns, timeouts.first_token_ns, timeouts.idle_ns, timeouts.total_ns) == tuple(
        seconds * NS_PER_S for seconds in (5, 9, 30, 600)
    )


def test_a_dumped_workload_loads_as_the_same_one() -> None:
    workload = parse_workload(TEXT, "w.yaml")
    assert parse_workload(dump_yaml(workload), "/elsewhere/w.yaml") == workload


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_workload_opens_with_its_purpose_and_survives_a_dump(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Purpose: ")
    assert "\n# Source: " in text
    workload = load_workload(path)
    assert workload.name == path.stem
    assert parse_workload(dump_yaml(workload), "w.yaml") == workload


def test_there_are_shipped_workloads() -> None:
    assert {path.stem for path in SHIPPED} >= {"demo", "azure-conv", "steps-to-saturation", "bursty"}


def test_the_demo_is_short_and_loads_by_name() -> None:
    demo = load_workload("builtin:demo")
    assert 35 * NS_PER_S <= demo.duration_ns <= 60 * NS_PER_S
    assert [phase.name for phase in demo.phases] == ["replay", "pause-1", "steps", "pause-2", "burst"]


def test_the_quick_form_is_one_steady_phase_that_can_be_written_down() -> None:
    workload = quick_workload(rate_per_s=10, duration_ns=60 * NS_PER_S, input_tokens=100, model="tiny")
    (phase,) = workload.phases
    assert phase.segments == (Segment(duration_ns=60 * NS_PER_S, from_per_s=10.0, to_per_s=10.0),)
    assert workload.prompts.input_tokens == Lengths(kind="fixed", tokens=100)
    assert workload.prompts.output_tokens == Lengths(kind="prompt")
    assert workload.target.model == "tiny"
    assert parse_workload(dump_yaml(workload), "w.yaml") == workload


def test_the_quick_form_names_the_options_that_are_wrong() -> None:
    with pytest.raises(SpecError) as caught:
        quick_workload(rate_per_s=-1, duration_ns=0, input_tokens=0)
    assert {fault.place for fault in caught.value.faults} == {"--rate", "--duration", "--input-tokens"}
