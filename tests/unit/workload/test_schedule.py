"""The schedule is the same everywhere, complete and in order, and every draw depends on seed and seq alone."""

import hashlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from servebench.core.units import NS_PER_S
from servebench.workload.draw import Drawer
from servebench.workload.load import load_workload, parse_workload
from servebench.workload.model import Lengths, TraceSlice, Workload
from servebench.workload.schedule import plan
from servebench.workload.traces import read_trace

DEMO_HASH = "b71053edca309544e9596aa8eb8028069927eff6e75d3e5e7fa8d5627171f809"
"""Frozen: a change means that a workload and seed no longer give the load they gave, and needs a line in CHANGELOG."""


@pytest.fixture(scope="module")
def demo() -> Workload:
    return load_workload("builtin:demo")


def with_lengths(workload: Workload, **lengths: Lengths) -> Workload:
    return msgspec.structs.replace(workload, prompts=msgspec.structs.replace(workload.prompts, **lengths))


def test_the_demo_s_schedule_has_not_changed(demo: Workload) -> None:
    assert plan(demo).schedule_hash == DEMO_HASH


def test_the_hash_is_that_of_the_columns_in_their_order(demo: Workload) -> None:
    schedule = plan(demo)
    digest = hashlib.sha256()
    for name, kind in (
        ("seq", "<i8"),
        ("phase", "<i4"),
        ("intended_ns", "<i8"),
        ("prompt_id", "<i8"),
        ("input_tokens", "<i4"),
        ("max_tokens", "<i4"),
        ("session", "<i8"),
        ("turn", "<i4"),
    ):
        column = getattr(schedule, name)
        assert column.dtype == np.dtype(kind)
        digest.update(column.astype(kind).tobytes())
    assert schedule.schedule_hash == digest.hexdigest()


def test_another_seed_gives_another_schedule_and_seed_zero_is_a_seed(demo: Workload) -> None:
    hashes = {plan(msgspec.structs.replace(demo, seed=seed)).schedule_hash for seed in (0, 1, 7)}
    assert len(hashes) == 3
    assert plan(msgspec.structs.replace(demo, seed=0)).schedule_hash in hashes


def from_the_middle(demo: Workload) -> Workload:
    """Return the demo with its replay starting inside the trace: 36 s from 140 s on, 1.5 times as fast."""
    first = demo.phases[0]
    assert first.replay is not None
    part = msgspec.structs.replace(first.replay, start_ns=140 * NS_PER_S, length_ns=36 * NS_PER_S, speed=1.5)
    phase = msgspec.structs.replace(first, replay=part, duration_ns=24 * NS_PER_S)
    prompts = msgspec.structs.replace(demo.prompts, lengths_trace=part)
    return msgspec.structs.replace(demo, phases=(phase, *demo.phases[1:]), prompts=prompts)


def test_a_replayed_phase_has_the_times_and_lengths_of_its_rows(demo: Workload) -> None:
    trace = read_trace(TraceSlice(kind="azure", path="builtin:azure-llm-2023-conv"))
    rows = (trace.offset_ns >= 140 * NS_PER_S) & (trace.offset_ns < 176 * NS_PER_S)
    schedule = plan(from_the_middle(demo))
    replayed = schedule.phase == 0
    assert replayed.sum() == rows.sum() == schedule.phases[0].planned
    assert (schedule.intended_ns[replayed] == (trace.offset_ns[rows] - 140 * NS_PER_S) * 2 // 3).all()
    assert (schedule.input_tokens[replayed] == np.minimum(trace.input_tokens[rows], 1024)).all()
    assert (schedule.max_tokens[replayed] == np.minimum(trace.output_tokens[rows], 48)).all()


def test_a_row_just_before_the_end_stays_inside_a_phase_played_fast(tmp_path: Path) -> None:
    # 3e16 ns of trace time at a million times the speed: the last row's quotient rounds up to the end itself.
    rows = ["2024-01-01 00:00:00,5,6", "2024-12-13 05:19:59.999999999,7,8"]
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows), encoding="utf-8")
    text = """\
name: x
prompts: {source: {kind: mt-bench}}
load:
  kind: replay
  phases:
    - {name: a, shape: replay, trace: {kind: azure, path: t.csv}, length: 30000000s, speed: 1000000}
"""
    schedule = plan(parse_workload(text, "x", tmp_path))
    assert schedule.phases[0].end_ns == 30 * NS_PER_S
    assert schedule.intended_ns.tolist() == [0, 30 * NS_PER_S - 1]


def test_what_the_caps_clip_is_counted(demo: Workload) -> None:
    whole = plan(with_lengths(demo, input_tokens=Lengths(kind="trace"), output_tokens=Lengths(kind="trace")))
    notes = plan(demo).notes
    assert notes["clipped_input"] == (whole.input_tokens > 1024).sum()
    assert notes["clipped_output"] == (whole.max_tokens > 48).sum()
    assert whole.notes == {}


def test_rows_above_a_dropping_cap_have_no_seq_and_are_counted(demo: Workload) -> None:
    limited = with_lengths(from_the_middle(demo), input_tokens=Lengths(kind="trace", cap=1024, over="drop"))
    schedule = plan(limited)
    trace = read_trace(TraceSlice(kind="azure", path="builtin:azure-llm-2023-conv"))
    rows = (trace.offset_ns >= 140 * NS_PER_S) & (trace.offset_ns < 176 * NS_PER_S)
    dropped = int((trace.input_tokens[rows] > 1024).sum())
    assert schedule.notes["dropped_input"] == dropped > 0
    assert schedule.phases[0].planned == rows.sum() - dropped
    assert schedule.input_tokens.max() <= 1024
    assert (schedule.seq == np.arange(len(schedule))).all()
    # Drawn phases keep their rate: they draw among the rows that fit.
    assert schedule.phases[1].planned == plan(demo).phases[1].planned


def test_drawn_lengths_are_pairs_of_the_trace(demo: Workload) -> None:
    workload = with_lengths(demo, input_tokens=Lengths(kind="trace"), output_tokens=Lengths(kind="trace"))
    schedule = plan(workload)
    trace = read_trace(TraceSlice(kind="azure", path="builtin:azure-llm-2023-conv"))
    pairs = set(zip(trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    drawn = schedule.phase > 0
    assert drawn.sum() > 200
    columns = schedule.input_tokens[drawn].tolist(), schedule.max_tokens[drawn].tolist()
    assert set(zip(*columns, strict=True)) <= pairs


def test_a_drawer_gives_the_requests_of_the_schedule_in_any_order(demo: Workload) -> None:
    schedule, drawer = plan(demo), Drawer(demo)
    for seq in reversed(range(schedule.phases[0].planned, len(schedule))):
        ask = schedule.ask(seq)
        again = drawer.ask(seq, phase=ask.phase, step=ask.step, measured=ask.measured, intended_ns=ask.intended_ns)
        assert again == ask


def test_every_prompt_is_used_once_before_any_is_used_again(demo: Workload) -> None:
    ids = Drawer(demo).prompt_ids(0, 3 * 330)
    for epoch in range(3):
        assert sorted(ids[epoch * 330 : (epoch + 1) * 330].tolist()) == list(range(330))
    assert (ids[:330] != ids[330:660]).any()


def test_sequential_prompts_cycle_in_the_order_of_the_file(demo: Workload) -> None:
    workload = msgspec.structs.replace(demo, prompts=msgspec.structs.replace(demo.prompts, order="sequential"))
    assert Drawer(workload).prompt_ids(328, 4).tolist() == [328, 329, 0, 1]


def test_prompts_and_lengths_do_not_depend_on_the_arrivals() -> None:
    text = """\
name: x
prompts: {source: {kind: mt-bench}, input_tokens: {from: trace}, trace: {kind: azure}}
load: {kind: open, arrivals: {process: poisson}, phases: [{name: a, shape: steady, rate_per_s: 20, duration: 30s}]}
"""
    poisson = plan(parse_workload(text, "x"))
    constant = plan(parse_workload(text.replace("poisson", "constant"), "x"))
    both = min(len(poisson), len(constant))
    assert (poisson.intended_ns[:both] != constant.intended_ns[:both]).any()
    assert (poisson.prompt_id[:both] == constant.prompt_id[:both]).all()
    assert (poisson.input_tokens[:both] == constant.input_tokens[:both]).all()


def test_an_ask_has_none_where_nothing_is_asked_for() -> None:
    text = """\
name: x
prompts: {source: {kind: mt-bench}}
load: {kind: open, phases: [{name: a, shape: steady, rate_per_s: 9, duration: 9s, measured: false}]}
"""
    ask = plan(parse_workload(text, "x")).ask(0)
    assert (ask.step, ask.input_tokens, ask.max_tokens, ask.measured) == (None, None, None, False)
    assert (ask.session, ask.turn) == (0, 0)


def test_steps_carry_their_level_and_its_window(demo: Workload) -> None:
    schedule = plan(demo)
    steps = schedule.phases[2].steps
    assert [(step.index, step.rate_per_s) for step in steps] == [(0, 6.0), (1, 12.0), (2, 18.0), (3, 24.0)]
    assert [step.start_ns // NS_PER_S for step in steps] == [32, 36, 40, 44]
    for step in steps:
        inside = (schedule.intended_ns >= step.start_ns) & (schedule.intended_ns < step.end_ns)
        assert (schedule.step[inside] == step.index).all()
    assert {schedule.ask(seq).step for seq in range(len(schedule))} == {None, 0, 1, 2, 3}


@pytest.mark.parametrize("seq", [-1, 10_000])
def test_a_seq_outside_the_schedule_is_an_index_error(demo: Workload, seq: int) -> None:
    with pytest.raises(IndexError):
        plan(demo).ask(seq)


def test_a_workload_without_arrivals_plans_nothing() -> None:
    text = """\
name: x
prompts: {source: {kind: mt-bench}}
load: {kind: open, phases: [{name: a, shape: steady, rate_per_s: 0, duration: 9s}]}
"""
    schedule = plan(parse_workload(text, "x"))
    assert len(schedule) == 0
    assert len(schedule.schedule_hash) == 64
    assert schedule.phases[0].planned == 0
