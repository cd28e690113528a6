"""The engine model, by statements about its steps and by properties over random loads."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servebench.sim.engine import Engine, StepResult
from servebench.sim.parameters import EngineParameters

STEADY = EngineParameters(
    step_base_ns=1_000,
    prefill_ns_per_token=10,
    decode_ns_per_sequence=100,
    jitter=0.0,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    kv_blocks=16,
    max_model_len=256,
)


def drain(engine: Engine, limit: int = 10_000) -> list[StepResult]:
    steps = []
    while engine.has_work:
        steps.append(engine.step())
        assert len(steps) < limit, "the engine makes no progress"
    return steps


def prompt_keys(name: str, blocks: int) -> list[bytes]:
    return [f"{name}/{number}".encode() for number in range(blocks)]


def test_a_lone_prompt_costs_one_prefill_step_then_one_step_per_token() -> None:
    engine = Engine(STEADY, seed=0)
    engine.add(7, prompt_tokens=32, answer_tokens=3)
    steps = drain(engine)
    assert [step.duration_ns for step in steps] == [1_000 + 32 * 10, 1_000 + 100, 1_000 + 100]
    assert [step.emitted for step in steps] == [[(7, 0)], [(7, 1)], [(7, 2)]]
    assert [step.finished for step in steps] == [[], [], [7]]


def test_a_prompt_longer_than_the_budget_is_prefilled_in_chunks() -> None:
    engine = Engine(STEADY, seed=0)
    engine.add(1, prompt_tokens=150, answer_tokens=1)
    steps = drain(engine)
    assert [step.prefill_tokens for step in steps] == [64, 64, 22]
    assert [len(step.emitted) for step in steps] == [0, 0, 1]


def test_decoding_sequences_keep_their_tokens_while_another_prompt_is_prefilled_in_the_rest_of_the_budget() -> None:
    engine = Engine(STEADY, seed=0)
    engine.add(1, prompt_tokens=16, answer_tokens=5)
    engine.step()
    engine.add(2, prompt_tokens=100, answer_tokens=1)
    mixed = engine.step()
    assert mixed.emitted == [(1, 1)]
    assert mixed.prefill_tokens == 63
    assert mixed.decode_sequences == 1
    assert mixed.duration_ns == 1_000 + 63 * 10 + 100


def test_waiting_sequences_are_admitted_in_order_of_arrival_up_to_the_seats() -> None:
    engine = Engine(replace(STEADY, max_num_seqs=2), seed=0)
    for name in (5, 3, 9):
        engine.add(name, prompt_tokens=8, answer_tokens=2)
    first, second, third, fourth = drain(engine)
    assert [admission.sequence for admission in first.admitted] == [5, 3]
    assert second.finished == [5, 3]
    assert [admission.sequence for admission in third.admitted] == [9]
    assert fourth.finished == [9]


def test_a_repeated_prompt_skips_its_full_blocks_but_never_its_last_token() -> None:
    engine = Engine(STEADY, seed=0)
    engine.add(1, prompt_tokens=48, answer_tokens=1, keys=prompt_keys("a", 3))
    drain(engine)
    engine.add(2, prompt_tokens=48, answer_tokens=1, keys=prompt_keys("a", 3))
    (again,) = drain(engine)
    assert again.admitted == [(2, 32)]
    assert again.prefill_tokens == 16
    assert (engine.prefix_queries, engine.prefix_hits) == (96, 32)


def test_prompts_share_exactly_their_common_leading_blocks() -> None:
    engine = Engine(STEADY, seed=0)
    engine.add(1, prompt_tokens=64, answer_tokens=1, keys=prompt_keys("a", 4))
    drain(engine)
    engine.add(2, prompt_tokens=64, answer_tokens=1, keys=prompt_keys("a", 2) + prompt_keys("b", 2))
    (step,) = drain(engine)
    assert step.admitted == [(2, 32)]


def test_without_prefix_cache_every_prompt_is_computed_whole() -> None:
    engine = Engine(replace(STEADY, prefix_cache=False), seed=0)
    for name in (1, 2):
        engine.add(name, prompt_tokens=48, answer_tokens=1, keys=prompt_keys("a", 3))
        (step,) = drain(engine)
        assert step.prefill_tokens == 48


def test_the_prefix_cache_forgets_what_was_used_longest_ago() -> None:
    engine = Engine(replace(STEADY, kv_blocks=8, max_model_len=128, max_num_batched_tokens=128), seed=0)
    for number, name in enumerate(("old", "new", "bulk")):
        # Two blocks each for old and new, then six that take the four unused ones and the two of `old`.
        blocks = 6 if name == "bulk" else 2
        engine.add(number, prompt_tokens=16 * blocks, answer_tokens=1, keys=prompt_keys(name, blocks))
        drain(engine)
    engine.add(10, prompt_tokens=33, answer_tokens=1, keys=prompt_keys("new", 2))
    engine.add(11, prompt_tokens=33, answer_tokens=1, keys=prompt_keys("old", 2))
    (step,) = drain(engine)
    assert step.admitted == [(10, 32), (11, 0)]


def test_when_blocks_run_out_the_youngest_is_preempted_and_still_gets_all_its_tokens_once() -> None:
    engine = Engine(replace(STEADY, kv_blocks=4, max_model_len=64), seed=0)
    engine.add(1, prompt_tokens=30, answer_tokens=20)
    engine.add(2, prompt_tokens=30, answer_tokens=20)
    steps = drain(engine)
    assert [name for step in steps for name in step.preempted] == [2]
    assert engine.preemptions == 1
    tokens = [token for step in steps for token in step.emitted]
    assert sorted(tokens) == [(name, position) for name in (1, 2) for position in range(20)]
    finish = {name: number for number, step in enumerate(steps) for name in step.finished}
    assert finish[1] < finish[2]


def test_a_preempted_sequence_computes_its_prompt_and_its_tokens_again() -> None:
    engine = Engine(replace(STEADY, kv_blocks=4, max_model_len=64), seed=0)
    engine.add(1, prompt_tokens=30, answer_tokens=20)
    engine.add(2, prompt_tokens=30, answer_tokens=20)
    steps = drain(engine)
    preempted_at = next(number for number, step in enumerate(steps) if step.preempted)
    made_before = sum(token.sequence == 2 for step in steps[:preempted_at] for token in step.emitted)
    assert sum(step.prefill_tokens for step in steps[preempted_at:]) == 30 + made_before


def test_an_aborted_sequence_gives_its_blocks_back_and_emits_nothing_more() -> None:
    engine = Engine(STEADY, seed=0)
    engine.add(1, prompt_tokens=40, answer_tokens=10)
    engine.add(2, prompt_tokens=40, answer_tokens=2)
    engine.step()
    assert engine.blocks.used > 0
    assert engine.abort(1)
    assert {token.sequence for step in drain(engine) for token in step.emitted} == {2}
    assert engine.blocks.used == 0
    assert not engine.abort(1)


def test_a_waiting_sequence_can_be_aborted() -> None:
    engine = Engine(replace(STEADY, max_num_seqs=1), seed=0)
    engine.add(1, prompt_tokens=4, answer_tokens=2)
    engine.add(2, prompt_tokens=4, answer_tokens=2)
    engine.step()
    assert engine.abort(2)
    assert engine.waiting == 0


@pytest.mark.parametrize(
    ("prompt_tokens", "answer_tokens"), [(0, 1), (1, 0), (250, 7)], ids=["no prompt", "no answer", "too long"]
)
def test_a_sequence_that_could_never_run_is_refused(prompt_tokens: int, answer_tokens: int) -> None:
    with pytest.raises(ValueError, match="sequence 1"):
        Engine(STEADY, seed=0).add(1, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens)


def test_a_known_sequence_is_refused() -> None:
    engine = Engine(STEADY, seed=0)
    engine.add(1, prompt_tokens=1, answer_tokens=1)
    with pytest.raises(ValueError, match="already here"):
        engine.add(1, prompt_tokens=1, answer_tokens=1)


def durations(seed: int, jitter: float) -> list[int]:
    engine = Engine(
        replace(STEADY, jitter=jitter, step_base_ns=1_000_000, kv_blocks=64, max_model_len=1_024), seed=seed
    )
    engine.add(1, prompt_tokens=16, answer_tokens=400)
    return [step.duration_ns for step in drain(engine)][1:]


def test_jitter_is_the_same_for_a_seed_and_another_for_another() -> None:
    assert durations(3, 0.2) == durations(3, 0.2)
    assert durations(3, 0.2) != durations(4, 0.2)


def test_jitter_has_the_declared_spread() -> None:
    logs = [math.log(value / 1_000_100) for value in durations(0, 0.2)]
    mean = sum(logs) / len(logs)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / len(logs))
    # 399 draws: the standard error of the mean is 0.010, of the deviation 0.007; five of each.
    assert mean == pytest.approx(0, abs=0.05)
    assert deviation == pytest.approx(0.2, abs=0.035)


LOADS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 2), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=25,
)
SIZES = st.builds(
    lambda seats, budget, blocks, cache: replace(
        STEADY,
        max_num_seqs=seats,
        max_num_batched_tokens=budget,
        kv_blocks=blocks,
        max_model_len=112,
        prefix_cache=cache,
    ),
    st.integers(1, 6),
    st.integers(1, 80),
    st.integers(7, 30),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(parameters=SIZES, load=LOADS)
def test_any_load_keeps_within_seats_blocks_and_budget_and_gives_every_sequence_its_tokens_once(
    parameters: EngineParameters, load: list[tuple[int, int, int, int, bool]]
) -> None:
    engine = Engine(parameters, seed=1)
    wanted: dict[int, int] = {}
    given_out: Counter[int] = Counter()
    aborted: set[int] = set()
    for name, (prompt, answer, family, steps_between, abort) in enumerate(load):
        engine.add(name, prompt_tokens=prompt, answer_tokens=answer, keys=prompt_keys(str(family), prompt // 16))
        wanted[name] = answer
        for _ in range(steps_between):
            check_step(engine, given_out)
        if abort and engine.abort(name // 2):
            aborted.add(name // 2)
    for _ in range(10_000):
        if not engine.has_work:
            break
        check_step(engine, given_out)
    assert not engine.has_work
    assert {name: given_out[name] for name in wanted if name not in aborted} == {
        name: answer for name, answer in wanted.items() if name not in aborted
    }
    assert all(given_out[name] <= wanted[name] for name in aborted)
    assert engine.blocks.used == 0
    assert engine.blocks.free == parameters.kv_blocks


def check_step(engine: Engine, given_out: Counter[int]) -> None:
    had_work = engine.has_work
    result = engine.step()
    parameters = engine.parameters
    computed = result.prefill_tokens + result.decode_sequences
    assert computed <= parameters.max_num_batched_tokens
    assert (computed > 0) == had_work
    assert engine.running <= parameters.max_num_seqs
    assert 0 <= engine.blocks.used <= parameters.kv_blocks
    assert engine.blocks.used + engine.blocks.free == parameters.kv_blocks
    for token in result.emitted:
        assert token.position == given_out[token.sequence]
        given_out[token.sequence] += 1
