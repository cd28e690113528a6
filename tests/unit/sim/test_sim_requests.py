"""Which request bodies the simulator takes, how long their prompts are, how long their answers get."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.sim.api import ApiError, Endpoint, Generation, read_generation
from servebench.sim.lengths import AnswerPlan, AnswerRule, natural_tokens, plan_answer
from servebench.sim.prompts import chat_text, read_prompt


def read(body: dict[str, Any] | bytes, endpoint: Endpoint = "chat", max_model_len: int = 1_000) -> Generation:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_generation(endpoint, data, model="tiny", max_model_len=max_model_len)


def chat(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    return {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], **changes}


def refusal(body: dict[str, Any] | bytes, endpoint: Endpoint = "chat") -> tuple[int, dict[str, Any]]:
    with pytest.raises(ApiError) as caught:
        read(body, endpoint)
    error = json.loads(caught.value.body())["error"]
    assert error["code"] == caught.value.status
    return caught.value.status, error


def test_a_chat_request_says_what_it_asks_for() -> None:
    asked = read(
        chat(max_tokens=9, stream=True, stream_options={"include_usage": True}, ignore_eos=True, temperature=0, top_k=5)
    )
    assert (asked.max_tokens, asked.stream, asked.include_usage, asked.ignore_eos) == (9, True, True, True)


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert read(chat(max_tokens=9, max_completion_tokens=4)).max_tokens == 4


def test_without_a_limit_max_tokens_is_unknown() -> None:
    assert read(chat()).max_tokens is None


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    whole = read(chat())
    assert read(chat(messages=[{"role": "user", "content": parts}])).prompt == whole.prompt


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b'{"model":', 400, "body"),
        (b"[1,2]", 400, "body"),
        ({"model": "tiny"}, 400, "body"),
        (chat(max_tokens=0), 400, "body"),
        (chat(max_tokens="ten"), 400, "body"),
        (chat(messages=[]), 400, "messages"),
        (chat(n=2), 400, "n"),
        (chat(temperature=-5), 400, "temperature"),
        (chat(stream_options={"include_usage": True}), 400, "stream_options"),
        (chat(max_tokens=995), 400, "max_tokens"),
        (chat(messages=[{"role": "user", "content": "x" * 4_000}]), 400, "input_tokens"),
        (chat(model="other"), 404, "model"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_request_is_refused_and_told_where(body: dict[str, Any] | bytes, status: int, param: str) -> None:
    got, error = refusal(body)
    assert (got, error["param"]) == (status, param)
    assert error["message"]


def test_a_refused_model_names_the_one_that_is_served() -> None:
    assert "tiny" in refusal(chat(model="other"))[1]["message"]


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("x" * 9, 3), (["x" * 9], 3), ([5, 6, 7, 8, 9], 5), ("", 1)],
    ids=["text", "list of one text", "token ids", "empty"],
)
def test_a_completion_prompt_counts_four_bytes_or_one_id_as_a_token(prompt: Any, tokens: int) -> None:  # noqa: ANN401
    assert read({"model": "tiny", "prompt": prompt}, "completions").prompt.tokens == tokens


@pytest.mark.parametrize("prompt", [[], ["a", "b"], [1, "a"]], ids=["empty", "two texts", "mixed"])
def test_several_completion_prompts_are_refused(prompt: list[Any]) -> None:
    assert refusal({"model": "tiny", "prompt": prompt}, "completions")[0] == 400


def test_the_chat_layout_costs_three_to_five_tokens_a_message() -> None:
    text = "a" * 400
    for count in range(1, 6):
        prompt = read_prompt(chat_text([("user", text)] * count))
        overhead = prompt.tokens - 100 * count
        assert 3 * count <= overhead <= 5 * count + 4


@given(
    shared=st.binary(max_size=300),
    left=st.binary(max_size=200),
    right=st.binary(max_size=200),
)
def test_two_prompts_share_keys_exactly_as_far_as_they_share_whole_blocks(
    shared: bytes, left: bytes, right: bytes
) -> None:
    one, two = shared + left, shared + right
    blocks = [(one[i : i + 64], two[i : i + 64]) for i in range(0, min(len(one), len(two)) - 63, 64)]
    expected = next((n for n, (a, b) in enumerate(blocks) if a != b), len(blocks))
    keys = list(zip(read_prompt(one).keys, read_prompt(two).keys, strict=False))
    assert next((n for n, (a, b) in enumerate(keys) if a != b), len(keys)) == expected


@given(st.binary(max_size=500))
def test_a_prompt_has_a_key_for_each_full_block_and_a_token_for_each_four_bytes(text: bytes) -> None:
    prompt = read_prompt(text)
    assert prompt.tokens == max(1, int(np.ceil(len(text) / 4)))
    assert len(prompt.keys) == len(text) // 64


def plan(rule: AnswerRule, seed: int = 1, max_model_len: int = 100_000, **changes: Any) -> AnswerPlan:  # noqa: ANN401
    return plan_answer(read(chat(**changes)), rule, seed=seed, max_model_len=max_model_len)


def test_an_exact_answer_has_max_tokens_and_ends_by_length() -> None:
    assert plan("exact", max_tokens=37) == (37, "length")


def test_ignore_eos_makes_a_natural_answer_run_to_max_tokens() -> None:
    assert plan("natural", max_tokens=900, ignore_eos=True) == (900, "length")


def test_a_natural_answer_stops_by_itself_below_a_high_limit_and_at_the_limit_above_a_low_one() -> None:
    free = plan("natural")
    assert free.finish_reason == "stop"
    assert plan("natural", max_tokens=free.tokens - 1) == (free.tokens - 1, "length")
    assert plan("natural", max_tokens=free.tokens + 1) == free


def test_min_tokens_lengthens_a_natural_answer() -> None:
    free = plan("natural")
    assert plan("natural", min_tokens=free.tokens + 50) == (free.tokens + 50, "stop")


def test_an_answer_never_leaves_the_context() -> None:
    asked = read(chat(ignore_eos=True))
    assert plan_answer(asked, "natural", seed=1, max_model_len=30).tokens == 30 - asked.prompt.tokens


def lengths(seed: int, count: int) -> list[int]:
    return [natural_tokens(read(chat(messages=[{"role": "user", "content": f"q{n}"}])), seed) for n in range(count)]


def test_natural_lengths_depend_on_content_and_seed_only() -> None:
    assert lengths(1, 20) == lengths(1, 20)
    assert lengths(1, 20) != lengths(2, 20)
    assert len(set(lengths(1, 20))) > 10


def test_natural_lengths_follow_the_declared_log_normal() -> None:
    logs = np.log(lengths(5, 2_000))
    # Standard errors: median 0.022 of a log, deviation 0.013; five of each.
    assert np.median(logs) == pytest.approx(np.log(160), abs=0.11)
    assert np.std(logs) == pytest.approx(0.8, abs=0.065)
