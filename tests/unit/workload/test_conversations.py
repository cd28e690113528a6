"""Turns of a conversation stand together in the schedule; closed load numbers its requests from one pool."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.workload_builders import understood

from servebench.core.errors import SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.codec import decode_workload, encode_workload
from servebench.workload.describe import describe
from servebench.workload.draw import Drawer
from servebench.workload.model import Closed, Think, Workload
from servebench.workload.prompts import PromptSet
from servebench.workload.resolve import dump_yaml, quick_workload
from servebench.workload.schedule import Schedule, plan

FILLER = "word after word of running text\n" * 50
PROMPTS = PromptSet.of([f"prompt {number}" for number in range(50)], FILLER)


def talking(conversation: str, *, order: str = "shuffled", seed: int = 3) -> Workload:
    return understood(
        f"name: talk\nseed: {seed}\nprompts:\n  source: {{kind: mt-bench}}\n  order: {order}\n"
        f"  conversation: {conversation}\nload:\n  kind: open\n  phases:\n"
        "    - {name: warm, shape: steady, rate_per_s: 5, duration: 20s, measured: false}\n"
        "    - {name: main, shape: steady, rate_per_s: 10, duration: 100s}\n"
    )


def turns_of(schedule: Schedule) -> list[list[int]]:
    """Return the turn numbers of each session, as they stand in the schedule."""
    cuts = np.flatnonzero(np.diff(schedule.session)) + 1
    return [part.tolist() for part in np.split(schedule.turn, cuts)]


def test_turns_of_a_conversation_have_consecutive_numbers_and_only_the_first_has_a_time() -> None:
    schedule = plan(talking("{turns: {from: fixed, count: 3}, think_time: 2s}"), PROMPTS)
    assert len(schedule) > 2000
    assert turns_of(schedule) == [[0, 1, 2]] * (len(schedule) // 3)
    assert schedule.session.tolist() == [seq // 3 for seq in range(len(schedule))]
    later = schedule.turn > 0
    assert (schedule.intended_ns[later] == -1).all()
    assert (schedule.intended_ns[~later] == schedule.due_ns[~later]).all()
    assert (np.diff(schedule.due_ns) >= 0).all()
    first, second = schedule.ask(0), schedule.ask(1)
    assert (first.turn, first.think_ns) == (0, None)
    assert first.intended_ns is not None
    assert (second.turn, second.session, second.intended_ns, second.think_ns) == (1, 0, None, 2 * NS_PER_S)


def test_without_conversations_every_request_is_its_own_session_and_waits_for_no_answer() -> None:
    workload = talking("{turns: {from: fixed, count: 1}}")
    plain = msgspec.structs.replace(workload, prompts=msgspec.structs.replace(workload.prompts, conversation=None))
    for schedule in (plan(workload, PROMPTS), plan(plain, PROMPTS)):
        assert (schedule.session == schedule.seq).all()
        assert (schedule.turn == 0).all()
        assert (schedule.intended_ns == schedule.due_ns).all()
        assert schedule.ask(5).think_ns is None


def test_arrivals_of_conversations_are_those_of_the_law_and_turns_are_outside_its_statistics() -> None:
    talks = plan(talking("{turns: {from: uniform, min: 2, max: 6}}"), PROMPTS)
    single = plan(talking("{turns: {from: fixed, count: 1}}"), PROMPTS)
    assert (talks.intended_ns[talks.turn == 0] == single.intended_ns).all()
    for talk, alone in zip(describe(talks), describe(single), strict=True):
        assert talk.sessions == alone.n < talk.n
        assert (talk.rate_per_s, talk.gap_cv, talk.dispersion) == (alone.rate_per_s, alone.gap_cv, alone.dispersion)


def test_turn_counts_follow_their_law() -> None:
    uniform = [len(turns) for turns in turns_of(plan(talking("{turns: {from: uniform, min: 2, max: 5}}"), PROMPTS))]
    assert set(uniform) == {2, 3, 4, 5}
    assert np.mean(uniform) == pytest.approx(3.5, abs=0.15)
    geometric = [
        len(turns) for turns in turns_of(plan(talking("{turns: {from: geometric, mean: 2.5, max: 30}}"), PROMPTS))
    ]
    assert np.mean(geometric) == pytest.approx(2.5, abs=0.25)
    # One more turn follows with probability 1 - 1/2.5, whatever came before.
    assert np.mean(np.array(geometric) > 1) == pytest.approx(0.6, abs=0.06)
    capped = turns_of(plan(talking("{turns: {from: geometric, mean: 2.5, max: 2}}"), PROMPTS))
    assert max(len(turns) for turns in capped) == 2


def test_exponential_pauses_have_their_mean_and_their_spread() -> None:
    schedule = plan(talking("{turns: {from: fixed, count: 4}, think_time: 3s, think_law: exponential}"), PROMPTS)
    assert schedule.think_ns is not None
    pauses = schedule.think_ns[schedule.turn > 0] / NS_PER_S
    assert (schedule.think_ns[schedule.turn == 0] == -1).all()
    assert np.mean(pauses) == pytest.approx(3, rel=0.06)
    assert np.std(pauses) == pytest.approx(3, rel=0.08)


def test_turns_from_the_prompt_file_are_sent_in_the_order_of_the_conversation() -> None:
    # Three conversations with 1, 3 and 2 turns.
    prompts = PromptSet.of(["a0", "b0", "b1", "b2", "c0", "c1"], FILLER, starts=[0, 1, 4])
    schedule = plan(talking("{turns: {from: prompt}}", order="sequential"), prompts)
    assert schedule.prompt_id[:9].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert schedule.turn[:9].tolist() == [0, 0, 1, 2, 0, 1, 0, 0, 1]
    cut = plan(talking("{turns: {from: prompt, max: 2}}", order="sequential"), prompts)
    assert cut.prompt_id[:5].tolist() == [0, 1, 2, 4, 5]


@pytest.mark.parametrize(
    ("conversation", "place"),
    [
        ("{turns: {from: uniform, min: 5, max: 2}}", "prompts.conversation.turns.min"),
        ("{turns: {from: geometric, mean: 0.5}}", "prompts.conversation.turns.mean"),
        ("{turns: {from: fixed, count: 0}}", "prompts.conversation.turns.count"),
        ("{turns: {from: fixed, count: 2}, pacing: trace}", "prompts.conversation.pacing"),
        ("{turns: {from: trace}}", "prompts.conversation.turns.from"),
    ],
)
def test_a_conversation_that_cannot_be_is_refused_at_its_key(conversation: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        talking(conversation)
    assert [fault.place for fault in caught.value.faults] == [place]


def closed(keys: str) -> Workload:
    return understood(f"name: c\nprompts: {{source: {{kind: mt-bench}}}}\nload: {{kind: closed, {keys}}}\n")


def test_closed_load_is_users_a_pause_and_an_end() -> None:
    workload = closed("users: 8, think_time: 1s, think_law: exponential, requests: 500, warmup_requests: 20")
    assert workload.closed == Closed(
        users=8, think=Think(law="exponential", mean_ns=NS_PER_S), requests=500, warmup_requests=20
    )
    assert workload.closed.total == 520
    assert workload.phases == ()
    timed = closed("users: 8, duration: 30s").closed
    assert timed is not None
    assert (timed.total, timed.duration_ns) == (None, 30 * NS_PER_S)


@pytest.mark.parametrize("keys", ["users: 8", "users: 8, requests: 5, duration: 3s"])
def test_closed_load_has_exactly_one_end(keys: str) -> None:
    with pytest.raises(SpecError, match="exactly one of requests and duration"):
        closed(keys)


def test_a_closed_request_has_no_time_but_the_draws_of_its_number() -> None:
    workload = closed("users: 8, think_time: 1s, requests: 500, warmup_requests: 2")
    load = workload.closed
    assert load is not None
    drawer = Drawer(workload, PROMPTS)
    asks = [drawer.closed_ask(load, seq) for seq in range(5)]
    assert [ask.phase for ask in asks] == ["warmup", "warmup", "closed", "closed", "closed"]
    assert [ask.measured for ask in asks] == [False, False, True, True, True]
    assert {ask.intended_ns for ask in asks} == {None}
    assert Drawer(workload, PROMPTS).closed_ask(load, 4) == asks[4]


@pytest.mark.parametrize(
    "workload",
    [
        closed("users: 8, think_time: 1s, requests: 500, warmup_requests: 20"),
        closed("users: 1, duration: 30s"),
        talking("{turns: {from: prompt, max: 4}, think_time: 2s, history: none}"),
        talking("{turns: {from: uniform, max: 4}}"),
        talking("{turns: {from: geometric, mean: 1.5}, think_time: 2s, think_law: exponential}"),
    ],
    ids=["requests", "duration", "prompt", "uniform", "geometric"],
)
def test_conversations_and_closed_load_survive_the_file_and_the_json(workload: Workload) -> None:
    assert understood(dump_yaml(workload), Path("/elsewhere")) == workload
    assert decode_workload(encode_workload(workload)) == workload


def test_the_quick_form_takes_a_rate_or_a_concurrency_but_not_both() -> None:
    with pytest.raises(SpecError, match="choose one"):
        quick_workload(rate_per_s=1, concurrency=3, requests=10)
    with pytest.raises(SpecError) as caught:
        quick_workload(concurrency=3)
    assert [fault.place for fault in caught.value.faults] == ["--concurrency"]
    with pytest.raises(SpecError) as caught:
        quick_workload(requests=3)
    assert "--concurrency" in [fault.place for fault in caught.value.faults]
