"""Every preset says what it is for and where it comes from, loads, and plans the load that it promises."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from servebench.core.units import NS_PER_S
from servebench.workload.arrivals import arrivals
from servebench.workload.builtin import DATA_FILES, read_data
from servebench.workload.load import load_workload
from servebench.workload.prompts import PromptSet
from servebench.workload.resolve import dump_yaml
from servebench.workload.schedule import Schedule, plan
from servebench.workload.traces import read_trace

Floats = npt.NDArray[np.float64]
WORKLOADS = sorted((Path(__file__).parents[3] / "workloads").glob("*.yaml"), key=lambda path: path.name)
NAMES = [path.stem for path in WORKLOADS]


def planned(name: str) -> Schedule:
    return plan(load_workload(f"builtin:{name}"))


def test_there_is_a_preset_for_every_question() -> None:
    assert set(NAMES) >= {
        *("azure-conv", "azure-code", "bursty", "diurnal-soak", "long-context-prefix"),
        *("rag-sessions", "multi-tenant", "steps-to-saturation", "cold-vs-warm"),
    }


@pytest.mark.parametrize("path", WORKLOADS, ids=NAMES)
def test_a_preset_opens_with_its_purpose_and_its_source_and_is_shipped_as_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head = text.split("\nname:")[0]
    assert head.startswith("# Purpose: ")
    assert "\n# Source: " in head
    assert all(line.startswith("#") for line in head.splitlines())
    assert read_data(f"builtin:{path.stem}").decode() == text
    assert DATA_FILES[path.stem] == f"workloads/{path.name}"


@pytest.mark.parametrize("path", WORKLOADS, ids=NAMES)
def test_a_preset_loads_plans_and_can_be_written_down_again(path: Path, tmp_path: Path) -> None:
    workload = load_workload(path)
    assert workload.name == path.stem
    (tmp_path / "again.yaml").write_text(dump_yaml(workload), encoding="utf-8")
    assert load_workload(tmp_path / "again.yaml") == workload
    schedule = plan(workload)
    assert all(phase.planned > 0 for phase in schedule.phases)
    assert schedule.max_tokens.max() <= 2048


def dispersion(times_ns: np.typing.NDArray[np.int64], window_s: int) -> float:
    counts = np.bincount(times_ns // (window_s * NS_PER_S))[:-1]
    return float(counts.var(ddof=1) / counts.mean())


def test_azure_code_is_as_bursty_as_the_trace_at_1_10_and_60_seconds() -> None:
    # The whole public file has 13, 72 and 164; this law gives 12.3, 57 and 127 in 20-hour simulations.
    workload = load_workload("builtin:azure-code")
    found, busiest, silent = [], [], []
    for seed in range(60):
        due = arrivals(workload.arrivals, workload.phases[1].segments, np.random.Generator(np.random.PCG64(seed)))
        found.append([dispersion(due.offset_ns, window) for window in (1, 10, 60)])
        seconds = np.bincount(due.offset_ns // NS_PER_S, minlength=1800)
        busiest.append(seconds.max())
        silent.append(np.mean(seconds == 0))
    assert np.median(busiest) == pytest.approx(40, abs=4)
    assert np.mean(silent) == pytest.approx(0.7, abs=0.05)
    assert np.mean(found, axis=0) == pytest.approx([13, 72, 164], rel=0.3)
    assert np.mean(found, axis=0) == pytest.approx([12.3, 57, 127], rel=0.15)


def test_azure_conv_has_the_swells_of_the_trace() -> None:
    schedule = planned("azure-conv")
    found = [dispersion(schedule.intended_ns, window) for window in (1, 10, 60)]
    assert found == pytest.approx([1.4, 3.9, 16.1], rel=0.1)
    # One of 19,366 requests is longer than 8,192 tokens.
    assert (len(schedule), schedule.notes) == (19_365, {"dropped_input": 1})
    assert np.bincount(schedule.intended_ns // NS_PER_S).max() == 16
    assert schedule.input_tokens.mean() == pytest.approx(1_155, abs=1)
    assert schedule.max_tokens.mean() == pytest.approx(211, abs=1)


def gaps_s(schedule: Schedule, phase: str) -> Floats:
    chosen = schedule.phase == schedule.phase_names.index(phase)
    gaps: Floats = np.diff(schedule.intended_ns[chosen]) / NS_PER_S
    return gaps


def variation(gaps: Floats) -> float:
    return float(gaps.std() / gaps.mean())


def test_bursty_has_one_mean_rate_three_times_and_each_law_that_it_names() -> None:
    schedule = planned("bursty")
    rates = {phase.name: phase.planned / (phase.end_ns - phase.start_ns) * NS_PER_S for phase in schedule.phases}
    # Counts of a law with CV c vary as c / sqrt(n) of their mean: 3.4 % for Poisson here, 5.2 % for CV 2.
    assert rates == pytest.approx(dict.fromkeys(rates, 5.0), rel=0.1)
    assert variation(gaps_s(schedule, "even")) == pytest.approx(1, abs=0.1)
    assert variation(gaps_s(schedule, "bursty")) == pytest.approx(2, abs=0.25)
    burst = schedule.phases[3]
    seconds = (schedule.intended_ns[schedule.phase == 3] - burst.start_ns) // NS_PER_S % 60
    high, low = np.mean(np.bincount(seconds, minlength=60)[55:]) / 5, np.mean(np.bincount(seconds)[:55]) / 5
    assert high / low == pytest.approx(20 / 3.7, rel=0.2)


def test_each_level_of_steps_to_saturation_has_its_rate_and_poisson_gaps() -> None:
    schedule = planned("steps-to-saturation")
    steps = schedule.phases[1].steps
    assert [step.rate_per_s for step in steps] == [1, 2, 4, 8, 12, 16, 24, 32]
    for step in steps:
        mine = schedule.step == step.index
        wanted = step.rate_per_s * 60
        assert abs(np.count_nonzero(mine) - wanted) < 4 * np.sqrt(wanted)
        assert variation(np.diff(schedule.intended_ns[mine])) == pytest.approx(1, abs=5 / np.sqrt(wanted))


def test_long_context_prefix_repeats_as_much_text_as_the_trace_does() -> None:
    workload = load_workload("builtin:long-context-prefix")
    prompts = PromptSet.load(workload.prompts)
    schedule, replay = plan(workload, prompts), workload.phases[0].replay
    assert prompts.blocks is not None
    assert replay is not None
    trace = read_trace(replay)
    assert trace.input_tokens.mean() == pytest.approx(12_035, abs=1)
    for rows, tokens, share in (
        (np.arange(len(trace)), trace.input_tokens, 0.37),
        (schedule.prompt_id, schedule.input_tokens, 0.34),
    ):
        sent, found = prompts.blocks.reused(rows, tokens)
        assert found.sum() / sent.sum() == pytest.approx(share, abs=0.005)
    assert schedule.notes["dropped_input"] / (len(schedule) + schedule.notes["dropped_input"]) == pytest.approx(
        0.08, abs=0.005
    )
    assert schedule.input_tokens.max() <= 32_768


def test_the_evening_of_multi_tenant_begins_with_the_jump_from_one_to_nine_a_second() -> None:
    schedule = planned("multi-tenant")
    times = schedule.intended_ns[schedule.phase == 1] - schedule.phases[1].start_ns
    tens = np.bincount(times // (400 * NS_PER_S)) / 600  # ten recorded minutes at 1.5 times their speed
    assert tens[:3].mean() == pytest.approx(1, abs=0.2)
    assert tens[3:].mean() == pytest.approx(9, abs=0.5)
    assert tens.max() == pytest.approx(13.8, abs=0.3)


def test_the_soak_lasts_eight_hours_with_a_peak_of_twice_the_trough() -> None:
    schedule = planned("diurnal-soak")
    assert schedule.phases[1].end_ns - schedule.phases[1].start_ns == 8 * 3600 * NS_PER_S
    times = schedule.intended_ns[schedule.phase == 1] - schedule.phases[1].start_ns
    hours = np.bincount(times % (3600 * NS_PER_S) // (150 * NS_PER_S), minlength=24)
    assert hours.max() / hours.min() == pytest.approx(2.2, abs=0.2)


def test_each_prompt_of_cold_vs_warm_is_sent_once_and_then_once_more() -> None:
    schedule = planned("cold-vs-warm")
    cold, warm = (schedule.prompt_id[schedule.phase == phase].tolist() for phase in (0, 1))
    assert cold == warm == list(range(80))
    assert variation(gaps_s(schedule, "cold")) == pytest.approx(0, abs=1e-6)
    assert set(schedule.input_tokens.tolist()) == {2048}


def test_turns_of_rag_sessions_follow_their_answers() -> None:
    schedule = planned("rag-sessions")
    assert schedule.think_ns is not None
    assert len(schedule) == 4_354
    assert np.count_nonzero(schedule.turn == 0) == 2_439
    hours = np.bincount(schedule.due_ns[schedule.turn == 0] // (3600 * NS_PER_S // 96), minlength=96)[:96]
    of_day = hours.reshape(4, 24).sum(axis=0)
    assert of_day.max() / of_day.min() > 20
    assert (schedule.intended_ns[schedule.turn > 0] == -1).all()
