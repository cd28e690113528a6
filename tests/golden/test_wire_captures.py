"""Read what real servers sent, and compare with an independent reading of the same bytes and with the eye's."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.captures import Capture, load_capture, read_capture

from servebench.core.outcomes import CHUNK_KINDS, TOKEN_KIND_CODES, Outcome, TokenSource
from servebench.core.records import Answer
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.timeline import Timeline

DATA = Path(__file__).parent / "data"
CAPTURES = sorted(str(path.relative_to(DATA).with_suffix("")) for path in DATA.glob("*/*.txt"))
ABORTED = [name for name in CAPTURES if name.endswith("_client_abort")]


def load(name: str) -> Capture:
    return load_capture(DATA / f"{name}.txt")


def answer_of(name: str, step: int) -> tuple[Answer, Timeline]:
    endpoint = ENDPOINTS["openai-completions" if "/completions" in name else "openai-chat"]
    return read_capture(load(name), endpoint, step)


def payloads(capture: Capture) -> list[dict[str, Any]]:
    """Return the JSON of every whole event before the end mark, or of the body where there are no events."""
    if capture.content_type != b"text/event-stream":
        return [json.loads(capture.body)]
    blocks = re.split(rb"\r?\n\r?\n", capture.body)[:-1]
    texts = [block.removeprefix(b"data: ") for block in blocks if not block.startswith(b":")]
    return [json.loads(text) for text in texts if text != b"[DONE]"]


def text_of(choice: dict[str, Any]) -> str:
    said = choice.get("delta") or choice.get("message") or {}
    return said.get("content") or choice.get("text") or ""


def last_usage(events: list[dict[str, Any]]) -> dict[str, Any]:
    return next((event["usage"] for event in reversed(events) if event.get("usage")), {})


ANSWERS = [name for name in CAPTURES if load(name).status == 200 and load(name).body]
ERRORS = [name for name in CAPTURES if load(name).status != 200]


@pytest.mark.parametrize("step", [1, 61, 1 << 20])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_captured_answer_is_read_as_an_independent_reader_reads_it(name: str, step: int) -> None:
    capture = load(name)
    events = payloads(capture)
    assert events
    answer, timeline = answer_of(name, step)
    choices = [choice for event in events for choice in event["choices"]]
    first = [choice for choice in choices if choice["index"] == 0]
    streamed = capture.content_type == b"text/event-stream"
    token_events = sum(any(text_of(choice) for choice in event["choices"]) for event in events) if streamed else 0
    usage = last_usage(events)

    assert answer.outcome is (Outcome.CANCELLED if capture.aborted else Outcome.OK)
    assert answer.streamed is streamed
    assert answer.text == "".join(map(text_of, first))
    assert answer.model == events[0]["model"]
    assert answer.finish_reason == next((c["finish_reason"] for c in reversed(first) if c.get("finish_reason")), None)
    assert answer.chunks is not None
    assert sum(kind in TOKEN_KIND_CODES for kind in answer.chunks.kind) == token_events
    if usage:
        assert (answer.token_source, answer.output_tokens) == (TokenSource.USAGE, usage["completion_tokens"])
        assert answer.input_tokens == usage["prompt_tokens"]
        assert answer.cached_tokens == (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    else:
        assert (answer.token_source, answer.output_tokens) == (TokenSource.EVENTS, token_events)
        assert answer.input_tokens is None
    assert timeline.message_done is not capture.aborted


class Seen(NamedTuple):
    """What a capture holds, read off by eye."""

    kinds: str
    output_tokens: int
    source: TokenSource
    finish: str
    prompt: int | None = None


BY_EYE = {
    "vllm/chat_stream_usage": Seen("role " + "content " * 10 + "usage done", 12, TokenSource.USAGE, "length", 16),
    "vllm/chat_stream_n2": Seen(
        # The eighth is a DEL character, which a terminal does not show.
        "role role " + "content " * 8 + "usage done",
        8,
        TokenSource.USAGE,
        "length",
        12,
    ),
    "transformers-serve/chat_stream_usage": Seen(
        "role " + "content " * 6 + "finish", 6, TokenSource.USAGE, "length", 11
    ),
    "litellm/chat_stream_usage": Seen("content " * 15 + "finish usage done", 10, TokenSource.USAGE, "stop", 8),
    "llama-server/chat_stream_usage": Seen(
        "role " + "content " * 4 + "finish usage done", 4, TokenSource.USAGE, "length", 31
    ),
}


@pytest.mark.parametrize("name", BY_EYE)
def test_a_captured_stream_has_the_events_that_a_person_sees_in_it(name: str) -> None:
    answer, _ = answer_of(name, 50)
    seen = BY_EYE[name]
    assert answer.chunks is not None
    assert [CHUNK_KINDS[kind] for kind in answer.chunks.kind] == seen.kinds.split()
    assert (answer.output_tokens, answer.token_source) == (seen.output_tokens, seen.source)
    assert (answer.finish_reason, answer.input_tokens) == (seen.finish, seen.prompt)


MESSAGES = {
    "dynamo-mocker/err_bad_model": "Model not found",
    "litellm/err_ratelimit": "litellm.RateLimitError: this is a mock rate limit error",
    "litellm/err_ratelimit_upstream": "litellm.RateLimitError: Model rate limit exceeded. RPM limit=3, current usage=4",
    "llama-cpp-python/err_bad_json": "Internal Server Error",
    "llama-cpp-python/err_not_found": "Not Found",
    "llamacpp/err_prompt_too_long": "request (4031 tokens) exceeds the available context size (2048 tokens)",
    "vllm/err_bad_param": "temperature must be non-negative, got -5.0.",
    "vllm/err_no_api_key": "Unauthorized",
    "vllm/err_prompt_too_long": "This model's maximum context length is 1024 tokens.",
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_captured_error_keeps_status_and_message(name: str) -> None:
    answer, _ = answer_of(name, 33)
    status = load(name).status
    assert (answer.outcome, answer.http_status, answer.error_class) == (Outcome.HTTP_ERROR, status, f"http_{status}")
    assert answer.error_message is not None
    assert answer.error_message.startswith(MESSAGES.get(name, answer.error_message))
    assert not answer.error_message.startswith("{")
    assert (answer.output_tokens, answer.token_source, answer.finish_reason) == (None, None, None)


def test_a_gateway_hands_on_for_how_long_the_server_behind_it_wants_no_more_requests() -> None:
    answer, _ = answer_of("litellm/err_ratelimit_upstream", 33)
    assert (answer.http_status, answer.retry_after_s) == (429, 60.0)


def test_a_stream_without_any_event_is_no_success() -> None:
    answer, _ = answer_of("llama-cpp-python/err_prompt_too_long", 40)
    assert (answer.outcome, answer.error_class, answer.http_status) == (Outcome.TRUNCATED, "empty_stream", 200)


def test_captures_of_every_sort_are_there() -> None:
    assert len(ANSWERS) > 40
    assert len(ERRORS) > 15
    assert len(ABORTED) == 4


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("vllm/chat_stream_logprobs", 3),
        ("vllm/chat_stream_usage_continuous", 8),
        ("dynamo-mocker/chat_stream_usage_continuous", 8),
        ("llamacpp/chat_stream_logprobs", 3),
    ],
)
def test_tokens_per_event_follow_from_log_probabilities_or_running_totals(name: str, tokens: int) -> None:
    chunks = answer_of(name, 1 << 20)[0].chunks
    assert chunks is not None
    told = [count for kind, count in zip(chunks.kind, chunks.tokens, strict=True) if kind in TOKEN_KIND_CODES]
    assert sum(told) == tokens
    assert min(told) > 0


def test_one_total_at_the_end_says_nothing_about_single_events() -> None:
    chunks = answer_of("vllm/chat_stream_usage", 1 << 20)[0].chunks
    assert chunks is not None
    assert set(chunks.tokens) == {-1}
