"""Every kind of prompt file gives its turns, orders are what they say, and cache states change texts as declared."""

import gzip
import json
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.workload_builders import understood

from servebench.core.errors import InputError, SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.builtin import data_path, read_data
from servebench.workload.draw import Drawer
from servebench.workload.load import load_workload
from servebench.workload.model import Prompts, PromptSource, Workload
from servebench.workload.notes import told
from servebench.workload.prompt_files import Talk, read_talks
from servebench.workload.prompts import PromptSet, load_prompts
from servebench.workload.resolve import dump_yaml
from servebench.workload.reuse import reuse_by_phase, reuse_of
from servebench.workload.schedule import plan
from servebench.workload.tokens import estimate_tokens


def talks_of(kind: str, path: str) -> list[Talk]:
    source = PromptSource(kind=kind, path=path)  # type: ignore[arg-type] # parametrised
    return list(read_talks(source, Counter()))


def test_mt_bench_has_80_questions_of_two_turns() -> None:
    talks = talks_of("mt-bench", "builtin:mt-bench")
    rows = [json.loads(line) for line in read_data("builtin:mt-bench").decode().splitlines()]
    assert [list(talk.turns) for talk in talks] == [row["turns"] for row in rows]
    assert {len(talk.turns) for talk in talks} == {2}
    assert len(talks) == 80


def test_packed_code_prompts_are_read_with_their_solutions() -> None:
    talks = talks_of("humaneval", "builtin:humaneval")
    packed = data_path("builtin:humaneval").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(packed).decode().splitlines()]
    assert [(talk.turns[0], talk.reply) for talk in talks] == [(r["prompt"], r["canonical_solution"]) for r in rows]
    assert len(talks) == 164


def test_trees_of_messages_become_one_conversation_for_each_way_of_the_user() -> None:
    talks = talks_of("oasst", "builtin:oasst")
    roots = {talk.turns[0] for talk in talks}
    assert len(roots) == 14
    assert 14 < len(talks) <= 70
    assert max(len(talk.turns) for talk in talks) >= 2
    assert len({talk.turns for talk in talks}) == len(talks)


def test_a_small_tree_gives_its_ways_in_the_order_of_the_file(tmp_path: Path) -> None:
    def said(role: str, text: str, *replies: object) -> dict[str, object]:
        return {"role": role, "text": text, "replies": list(replies)}

    tree = said(
        "prompter",
        "q",
        said("assistant", "a1", said("prompter", "q1", said("assistant", "b"))),
        said("assistant", "a2", said("prompter", "q2"), said("prompter", "q3")),
        said("assistant", "a3"),
    )
    (tmp_path / "t.jsonl").write_text(json.dumps({"prompt": tree}), encoding="utf-8")
    talks = talks_of("oasst", str(tmp_path / "t.jsonl"))
    assert [talk.turns for talk in talks] == [("q", "q1"), ("q", "q2"), ("q", "q3"), ("q",)]
    assert [talk.reply for talk in talks] == ["a1", "a2", "a2", "a3"]


def test_only_the_roots_of_trees_are_prompts_where_there_are_no_conversations() -> None:
    prompts = PromptSet.load(Prompts(sources=(PromptSource(kind="oasst", path="builtin:oasst"),)))
    assert len(prompts) == 14


def test_paragraphs_of_a_text_are_prompts(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"one\r\ntwo\r\n\r\n  \r\nthree  \n\n\nfour")
    assert [talk.turns[0] for talk in talks_of("text", str(tmp_path / "t.txt"))] == ["one\r\ntwo", "three  ", "four"]
    assert len(talks_of("text", "builtin:shakespeare")) > 500


def test_a_long_array_is_read_piece_by_piece_with_the_line_of_what_is_wrong(tmp_path: Path) -> None:
    # Longer than one piece of 1 MiB, with characters of several bytes that a cut may fall into.
    rows = [{"conversations": [{"from": "human", "value": f"ä{number} " + "€" * 900}]} for number in range(1500)]
    text = json.dumps(rows, ensure_ascii=False, indent=1)
    path = tmp_path / "long.json"
    path.write_text(text, encoding="utf-8")
    assert path.stat().st_size > 3_000_000
    talks = talks_of("sharegpt", str(path))
    assert [talk.turns[0] for talk in talks] == [row["conversations"][0]["value"] for row in rows]
    path.write_text(text[:-3] + "\n nonsense", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        talks_of("sharegpt", str(path))
    assert abs((caught.value.faults[0].line or 0) - text.count("\n")) <= 2


@pytest.mark.parametrize("text", ["[", "[{]", "", "  ", "[1, 2", '[{"conversations": "' + "[" * 100_000, "[" * 100_000])
def test_an_array_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text, encoding="utf-8")
    with pytest.raises((SpecError, InputError)):
        talks_of("sharegpt", str(tmp_path / "broken.json"))


@pytest.mark.parametrize("text", ["[]", " [ ] ", "[\n\n]\n"])
def test_an_empty_array_holds_no_prompt(tmp_path: Path, text: str) -> None:
    (tmp_path / "empty.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="holds no prompt"):
        talks_of("sharegpt", str(tmp_path / "empty.json"))


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"prompt": "p"}, "p"),
        ({"turns": [{"content": "t0"}, {"content": "t1"}]}, "t0"),
    ],
)
def test_both_forms_of_arena_hard_are_read(tmp_path: Path, row: dict[str, object], prompt: str) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps(row), encoding="utf-8")
    assert talks_of("arena-hard", str(tmp_path / "q.jsonl"))[0].turns[0] == prompt


def test_a_broken_gzip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "x"}\n' * 1000)[:-20])
    with pytest.raises(InputError, match=r"cannot read .*p\.jsonl\.gz"):
        talks_of("jsonl", str(tmp_path / "p.jsonl.gz"))


def workload(prompts: str, target: str = "{}", phases: str = "") -> Workload:
    shape = phases or "{name: main, shape: steady, rate_per_s: 50, duration: 60s}"
    return understood(
        f"name: kinds\nseed: 3\ntarget: {target}\nprompts: {prompts}\nload: {{kind: open, phases: [{shape}]}}\n"
    )


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_zipf_takes_prompts_in_proportion_to_a_power_of_their_rank(exponent: float) -> None:
    prompts = PromptSet.of([f"p{number}" for number in range(50)], "word " * 50)
    source = f"{{source: {{kind: mt-bench}}, order: zipf, zipf_exponent: {exponent}}}"
    drawn = Drawer(workload(source), prompts).prompt_ids(0, 200_000)
    counts = np.sort(np.bincount(drawn, minlength=50))[::-1] / 200_000
    weights = np.arange(1, 51) ** -exponent
    assert counts == pytest.approx(weights / weights.sum(), abs=0.004)


def test_which_prompt_is_frequent_depends_on_the_seed_and_not_on_its_place() -> None:
    prompts = PromptSet.of([f"p{number}" for number in range(50)], "word " * 50)
    base = workload("{source: {kind: mt-bench}, order: zipf, zipf_exponent: 2}")
    tops = {
        int(np.bincount(Drawer(msgspec.structs.replace(base, seed=seed), prompts).prompt_ids(0, 2000)).argmax())
        for seed in range(8)
    }
    assert len(tops) > 4


@pytest.mark.parametrize(
    ("law", "mean", "low", "high"),
    [
        ("{from: uniform, min: 10, max: 30}", 20, 10, 30),
        ("{from: empirical, tokens: [5, 5, 20]}", 10, 5, 20),
        ("{from: lognormal, median: 100, sigma: 0.5}", 100 * np.exp(0.125), 1, 10_000_000),
        ("{from: lognormal, median: 100, sigma: 1, max: 120}", None, 1, 120),
    ],
)
def test_lengths_follow_their_law(law: str, mean: float | None, low: int, high: int) -> None:
    schedule = plan(workload(f"{{source: {{kind: mt-bench}}, input_tokens: {law}, output_tokens: {law}}}"))
    for column in (schedule.input_tokens, schedule.max_tokens):
        assert column.min() >= low
        assert column.max() <= high
        if mean is not None:
            assert column.mean() == pytest.approx(mean, rel=0.04)
    assert (schedule.input_tokens != schedule.max_tokens).any()
    assert ("clipped_input" in schedule.notes) == (mean is None)


def first_message(prompts: PromptSet, prompt_id: int, tokens: int | None) -> str:
    return prompts.messages(prompt_id, tokens)[0].content


def test_a_cold_run_puts_a_text_of_its_own_before_every_prompt_and_the_plan_stays() -> None:
    cold = workload("{source: {kind: mt-bench}}", "{cache: {state: cold}}")
    plain = load_prompts(workload("{source: {kind: mt-bench}}"), "20260101T000000Z-a-0001")
    one, other = (load_prompts(cold, f"20260101T000000Z-a-{run}") for run in ("0001", "0002"))
    for prompt_id, tokens in ((0, None), (3, 400)):
        texts = [first_message(prompts, prompt_id, tokens) for prompts in (one, other)]
        bare = first_message(plain, prompt_id, tokens)
        assert all(text.endswith(bare) for text in texts)
        assert texts[0][:10] != texts[1][:10]
        assert estimate_tokens(texts[0]) - estimate_tokens(bare) <= 16
    assert plan(cold, one).schedule_hash == plan(cold, other).schedule_hash


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("tokens", [400, 3000])
def test_a_shared_prefix_is_the_declared_share_of_every_prompt(share: float, tokens: int) -> None:
    loaded = workload("{source: {kind: self-instruct}}", f"{{cache: {{state: shared_prefix, share: {share}}}}}")
    prompts = PromptSet.load(loaded.prompts)
    texts = [first_message(prompts, prompt_id, tokens) for prompt_id in (0, 1, 2, 77)]
    common = next(i for i in range(min(map(len, texts))) if len({text[i] for text in texts}) > 1)
    for prompt_id, text in zip((0, 1, 2, 77), texts, strict=True):
        own = estimate_tokens(prompts.text(prompt_id))
        assert estimate_tokens(text) == pytest.approx(max(tokens, own / (1 - share)), rel=0.02)
    # The shortest of them has no more in common with the others than what is declared.
    assert estimate_tokens(texts[0][:common]) / min(map(estimate_tokens, texts)) == pytest.approx(share, abs=0.03)


def test_a_warm_run_begins_with_every_prompt_once_for_one_token_and_changes_nothing_else() -> None:
    lengths = "input_tokens: {from: uniform, min: 100, max: 103}"
    plain = plan(workload(f"{{source: {{kind: mt-bench}}, {lengths}}}"))
    warm = workload(
        f"{{source: {{kind: mt-bench}}, {lengths}}}", "{cache: {state: warm, rate_per_s: 20, duration: 60s}}"
    )
    schedule = plan(warm)
    first, main = schedule.phase == 0, schedule.phase == 1
    assert [(phase.name, phase.measured) for phase in schedule.phases] == [("cache-warmup", False), ("main", True)]
    pairs = list(zip(schedule.prompt_id[first].tolist(), schedule.input_tokens[first].tolist(), strict=True))
    used = set(zip(plain.prompt_id.tolist(), plain.input_tokens.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == used
    assert (schedule.max_tokens[first] == 1).all()
    assert np.abs(np.diff(schedule.intended_ns[first]) - NS_PER_S // 20).max() <= 1
    assert (schedule.prompt_id[main] == plain.prompt_id).all()
    assert (schedule.intended_ns[main] - 60 * NS_PER_S == plain.intended_ns).all()
    assert understood(dump_yaml(warm), Path("/elsewhere")) == warm


def test_prompts_that_a_warm_pass_has_no_time_for_are_counted() -> None:
    schedule = plan(workload("{source: {kind: mt-bench}}", "{cache: {state: warm, rate_per_s: 5, duration: 10s}}"))
    assert schedule.phases[0].planned == 50
    assert schedule.notes["warm_pass_left_out"] == 30


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_reuse_of_a_plan_is_its_repeats_and_the_shared_prefix_of_the_rest(share: float) -> None:
    phases = "{name: main, shape: steady, rate_per_s: 100, duration: 1s, arrivals: {process: constant}}"
    text = "{source: {kind: mt-bench}, order: sequential, input_tokens: {from: fixed, tokens: 500}}"
    for target, shared in (("{}", 0.0), (f"{{cache: {{state: shared_prefix, share: {share}}}}}", share)):
        loaded = workload(text, target, phases)
        prompts = PromptSet.load(loaded.prompts)
        # 80 prompts, 20 of them again: of 100 equal prompts the first has nothing, 79 their prefix, 20 everything.
        assert reuse_of(plan(loaded, prompts), prompts) == pytest.approx((79 * shared + 20) / 100)


def test_reuse_by_phase_is_nothing_in_a_first_pass_and_everything_in_a_second() -> None:
    loaded = load_workload("builtin:cold-vs-warm")
    prompts = PromptSet.load(loaded.prompts)
    assert reuse_by_phase(plan(loaded, prompts), prompts) == {"cold": 0.0, "warm": 1.0}


def test_a_warm_pass_makes_the_rest_known() -> None:
    loaded = workload("{source: {kind: mt-bench}}", "{cache: {state: warm, rate_per_s: 20, duration: 10s}}")
    prompts = PromptSet.load(loaded.prompts)
    assert reuse_by_phase(plan(loaded, prompts), prompts) == {"cache-warmup": 0.0, "main": 1.0}


def test_every_note_of_a_plan_is_told_in_words() -> None:
    notes = {
        "clipped_input": 1000,
        "dropped_output": 2,
        "scaled_input": 3,
        "zero_output_left_out": 4,
        "trace_steps_back": 5,
        "trace_equal_times": 6,
        "trace_tick_ms": 3000,
        "trace_spread_rows": 8,
        "warm_pass_left_out": 9,
        "prompts_skipped_no_reply": 10,
    }
    sentences = told(notes)
    assert sentences[0] == "1,000 prompts were longer than their maximum and are clipped to it"
    assert sentences[-1] == "10 rows of the prompt file are skipped: no reply"
    assert all("_" not in sentence for sentence in sentences)
    assert told({"something_new": 3}) == ["something_new: 3"]


@pytest.mark.parametrize(
    ("prompts", "target", "place"),
    [
        ("{source: {kind: trace}}", "{}", "prompts.input_tokens.from"),
        ("{source: {kind: trace}, input_tokens: {from: trace}, trace: {kind: azure}}", "{}", "prompts.source"),
        ("{source: {kind: jsonl}}", "{}", "prompts.source.path"),
        ("{source: {kind: mt-bench}, trace: {kind: burstgpt}}", "{}", "prompts.trace.path"),
        ("{source: {kind: mt-bench}, trace: {kind: azure, clients: [1]}}", "{}", "prompts.trace.clients"),
        ("{source: {kind: mt-bench}, zipf_exponent: 2}", "{}", "prompts.zipf_exponent"),
        ("{source: {kind: mt-bench}}", "{cache: {state: warm}}", "target.cache.rate_per_s"),
        ("{source: {kind: mt-bench}}", "{cache: {state: shared_prefix, share: 100%}}", "target.cache.share"),
        ("{source: {kind: mt-bench}, input_tokens: {from: reply}}", "{}", "prompts.input_tokens.from"),
    ],
)
def test_prompts_that_cannot_be_are_refused_at_their_key(prompts: str, target: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        workload(prompts, target)
    assert place in [fault.place for fault in caught.value.faults]
