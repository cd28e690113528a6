"""Read answers in the other dialects, and compare with what a person reads in the files."""

from pathlib import Path
from typing import NamedTuple

import pytest
from tests.captures import load_capture, read_capture

from servebench.core.outcomes import CHUNK_KINDS, Outcome, TokenSource
from servebench.core.records import Answer
from servebench.wire.endpoints import ENDPOINTS

DIALECTS = Path(__file__).parent / "dialects"
FILES = sorted(str(path.relative_to(DIALECTS).with_suffix("")) for path in DIALECTS.glob("*/*.txt"))

_ENDPOINT_OF = {
    "handmade/responses": "openai-responses",
    "handmade/anthropic": "anthropic-messages",
    "handmade/tgi": "tgi-generate",
    "handmade/triton": "triton-generate",
    "handmade/kserve": "kserve-v2",
    "handmade/ollama": "ollama-chat",
    "handmade/embeddings": "openai-embeddings",
    "llamacpp/anthropic": "anthropic-messages",
    "llamacpp/responses": "openai-responses",
    "llamacpp/embeddings": "openai-embeddings",
    "triton": "triton-generate",
    "kserve": "kserve-v2",
    "mlserver": "kserve-v2",
}


def answer_of(name: str, step: int) -> Answer:
    endpoint = next(endpoint for start, endpoint in _ENDPOINT_OF.items() if name.startswith(start))
    answer, _ = read_capture(load_capture(DIALECTS / f"{name}.txt"), ENDPOINTS[endpoint], step)
    return answer


def kinds(answer: Answer) -> str:
    assert answer.chunks is not None
    return " ".join(CHUNK_KINDS[kind] for kind in answer.chunks.kind)


class Seen(NamedTuple):
    """What an answer holds. `counts`: input, output, cached and reasoning tokens by usage; None = it has none."""

    kinds: str
    text: str | None
    finish: str | None
    counts: tuple[int | None, int | None, int | None, int | None] | None
    model: str | None
    asides: tuple[str, ...] = ()


NO_COUNTS = (None, None, None, None)
TOOL_JSON = '{"city": "Oslo"}'

OK = {
    "handmade/responses_text": Seen(
        "other other other other content content other other other done",
        "Grüße 🚲",
        "completed",
        (11, 5, 8, 0),
        "demo-8b",
    ),
    "handmade/responses_reasoning_tool": Seen(
        "other other reasoning other other tool tool tool other other done",
        "",
        "completed",
        (30, 21, 0, 9),
        "demo-8b",
        ("Hm.", 'weather{"city":"Oslo"}'),
    ),
    "handmade/responses_incomplete": Seen(
        "other content content done", "One two three", "max_output_tokens", (4, 3, 0, 0), "demo-8b"
    ),
    "handmade/responses_refusal": Seen(
        "other refusal refusal done", "", "completed", (9, 4, 0, 0), "demo-8b", ("I cannot do that.",)
    ),
    "handmade/responses_whole": Seen("", "Grüße", "completed", (11, 7, 8, 2), "demo-8b", ("Hm.f{}",)),
    "handmade/anthropic_text": Seen(
        "role other other content content other finish done",
        "Hello, 漢字",
        "end_turn",
        (25, 15, None, None),
        "demo-8b",
    ),
    "handmade/anthropic_thinking_tool_cached": Seen(
        "role other reasoning reasoning other other other content other tool other tool tool other finish done",
        "Let me look.",
        "tool_use",
        (120, 89, 100, None),
        "demo-8b",
        ("Which city? Oslo.", "weather" + TOOL_JSON),
    ),
    "handmade/anthropic_empty": Seen("role finish done", "", "end_turn", (3, 0, None, None), "demo-8b"),
    "handmade/anthropic_whole": Seen("", "Hello", "tool_use", (15, 6, 5, None), "demo-8b", ('Hm.f{"a":1}',)),
    "llamacpp/anthropic_stream": Seen(
        "role other content content content content content content other finish done",
        "In my experience, I'm",
        "max_tokens",
        (34, 6, 0, None),
        "smollm2",
    ),
    # Of 34 input tokens 33 came out of the cache; the dialect counts them apart.
    "llamacpp/anthropic_nostream": Seen("", "A: Red", "end_turn", (34, 4, 33, None), "smollm2"),
    "llamacpp/responses_stream": Seen(
        "other other other other content content content content content content other other other done",
        "The colour most closely associated with",
        "completed",
        (34, 6, 33, None),
        "smollm2",
    ),
    "llamacpp/responses_nostream": Seen("", "I'd like you to try", "completed", (34, 6, 33, None), "smollm2"),
    "llamacpp/embeddings": Seen("", None, None, (1, None, None, None), "smollm2"),
    "handmade/tgi_length": Seen("content content content", "Deep learning is", "length", (7, 3, None, None), None),
    "handmade/tgi_eos": Seen("content other finish", "Yes", "eos_token", (2, 3, None, None), None),
    "handmade/tgi_no_details": Seen("content content", "Yes sir", None, None, None),
    "handmade/tgi_whole": Seen("", "Deep learning is", "length", (None, 3, None, None), None),
    "handmade/tgi_whole_list": Seen("", "Deep", "eos_token", (2, 2, None, None), None),
    "handmade/triton_llm": Seen("content content other", "Deep learning", None, None, "ensemble"),
    "handmade/triton_empty": Seen("other", "", None, None, "ensemble"),
    "handmade/triton_whole": Seen("", "Deep learning", None, NO_COUNTS, "ensemble"),
    "triton/generate_stream": Seen(
        "content content content content content", "tok0 tok1 tok2 tok3 tok4 ", None, None, "toy"
    ),
    "triton/generate_whole": Seen("", "3 words", None, NO_COUNTS, "whole"),
    "handmade/kserve_numbers": Seen("", None, None, NO_COUNTS, "iris"),
    "handmade/kserve_tensors": Seen("content", "ab", None, None, "toy"),
    "mlserver/infer": Seen("", "HI", None, NO_COUNTS, "toy"),
    "mlserver/infer_stream": Seen("content content content content", "tok0 tok1 tok2 tok3 ", None, None, "toy"),
    "mlserver/generate_stream": Seen("content content content content", "tok0 tok1 tok2 tok3 ", None, None, "toy"),
    "handmade/ollama_text": Seen("content content finish", "The sky", "stop", (26, 298, None, None), "demo:8b"),
    "handmade/ollama_thinking_tool": Seen(
        "reasoning reasoning tool finish",
        "",
        "stop",
        (26, 12, None, None),
        "demo:8b",
        ("Hm.", 'weather{"city":"Oslo"}'),
    ),
    "handmade/ollama_length_no_newline": Seen("content content", "The sky", "length", (26, 2, None, None), "demo:8b"),
    "handmade/ollama_whole": Seen("", "The sky", "stop", (26, 298, None, None), "demo:8b", ("Hm",)),
    "handmade/embeddings": Seen("", None, None, (8, None, None, None), "embed-1"),
    "handmade/embeddings_base64": Seen("", None, None, (2, None, None, None), "embed-1"),
}


@pytest.mark.parametrize("step", [1, 53, 1 << 20])
@pytest.mark.parametrize("name", OK)
def test_an_answer_is_read_as_a_person_reads_it(name: str, step: int) -> None:
    seen, answer = OK[name], answer_of(name, step)
    streamed = bool(seen.kinds)
    assert (answer.outcome, answer.error_class, answer.error_message) == (Outcome.OK, None, None)
    assert (kinds(answer), answer.streamed, answer.text) == (seen.kinds, streamed, seen.text)
    assert (answer.finish_reason, answer.model, answer.asides) == (seen.finish, seen.model, seen.asides)
    if seen.counts is None:
        token_events = sum(word in {"content", "reasoning", "tool", "refusal"} for word in seen.kinds.split())
        assert (answer.output_tokens, answer.token_source) == (token_events, TokenSource.EVENTS)
        assert answer.input_tokens is None
    else:
        found = (answer.input_tokens, answer.output_tokens, answer.cached_tokens, answer.reasoning_tokens)
        assert found == seen.counts
        assert answer.token_source is (None if seen.counts[1] is None else TokenSource.USAGE)


class Failed(NamedTuple):
    """How a failed answer is to read."""

    outcome: Outcome
    error_class: str
    message: str | None
    kinds: str = ""
    text: str = ""


IN_BAND = (Outcome.STREAM_ERROR, "in_band_error")
CUT = (Outcome.TRUNCATED, "truncated", None)

FAILED = {
    "handmade/responses_failed": Failed(*IN_BAND, "The engine died.", "other content error", "Half"),
    "handmade/responses_error": Failed(*IN_BAND, "Slow down.", "error"),
    "handmade/responses_cut": Failed(*CUT, "other content other other", "Half"),
    "handmade/responses_whole_failed": Failed(*IN_BAND, "The engine died."),
    "handmade/anthropic_error": Failed(*IN_BAND, "Overloaded", "role other content error", "Hel"),
    "handmade/anthropic_cut": Failed(*CUT, "role other content content other finish", "Hello"),
    "handmade/anthropic_refused": Failed(Outcome.HTTP_ERROR, "http_429", "Number of requests has exceeded your limit"),
    "llamacpp/anthropic_err": Failed(Outcome.HTTP_ERROR, "http_500", "'messages' is required"),
    "llamacpp/responses_err": Failed(Outcome.HTTP_ERROR, "http_400", "'input' is required"),
    "llamacpp/embeddings_err": Failed(Outcome.HTTP_ERROR, "http_400", '"input" or "content" must be provided'),
    "handmade/tgi_error": Failed(
        *IN_BAND, "Request failed during generation: Server error: CUDA out of memory", "content error", "Ye"
    ),
    "handmade/tgi_cut": Failed(*CUT, "content content", "Yes"),
    "handmade/tgi_refused": Failed(
        Outcome.HTTP_ERROR, "http_422", "Input validation error: `max_new_tokens` must be strictly positive"
    ),
    "handmade/triton_error": Failed(
        *IN_BAND, "in ensemble 'ensemble', Failed to process the request(s)", "content error", "Deep"
    ),
    "triton/generate_nonstream_on_decoupled": Failed(
        *IN_BAND,
        "generate expects model to produce exactly 1 response, "
        "use generate stream for model that generates various number of responses",
    ),
    "triton/err_bad_input": Failed(
        Outcome.HTTP_ERROR,
        "http_400",
        "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'toy'. Got input(s) [], "
        "but missing required input(s) ['prompt']. Please provide all required input(s).",
    ),
    "triton/err_bad_model": Failed(Outcome.HTTP_ERROR, "http_404", "Request for unknown model: 'nope' is not found"),
    "handmade/kserve_error": Failed(*IN_BAND, "the model failed", "content error", "tok0 "),
    "kserve/v1_err_bad_model": Failed(Outcome.HTTP_ERROR, "http_404", "Model with name nope does not exist."),
    "handmade/ollama_error": Failed(
        *IN_BAND, "an error was encountered while running the model: signal: killed", "content error", "The"
    ),
    "handmade/ollama_cut": Failed(*CUT, "content content", "The sky"),
    "handmade/ollama_refused": Failed(Outcome.HTTP_ERROR, "http_404", 'model "nope" not found'),
    "handmade/embeddings_error": Failed(*IN_BAND, "Input is too long."),
}


@pytest.mark.parametrize("step", [1, 53, 1 << 20])
@pytest.mark.parametrize("name", FAILED)
def test_a_failed_answer_keeps_what_was_said_and_what_had_come(name: str, step: int) -> None:
    failed, answer = FAILED[name], answer_of(name, step)
    assert (answer.outcome, answer.error_class) == (failed.outcome, failed.error_class)
    assert (answer.error_message, kinds(answer), answer.text) == (failed.message, failed.kinds, failed.text)


def test_what_a_server_says_of_a_model_is_no_answer_of_it() -> None:
    answer = answer_of("kserve/v2_model", 1 << 20)
    assert (answer.outcome, answer.error_class) == (Outcome.MALFORMED, "malformed_body")


def test_no_fixture_is_left_unread() -> None:
    assert {*OK, *FAILED, "kserve/v2_model"} == set(FILES)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("handmade/responses_incomplete", [-1, 1, 2, -1]),
        ("handmade/tgi_eos", [1, 1, 1]),
        ("handmade/anthropic_text", [-1] * 8),
    ],
)
def test_tokens_of_an_event_are_known_where_the_event_tells_them(name: str, tokens: list[int]) -> None:
    chunks = answer_of(name, 40).chunks
    assert chunks is not None
    assert list(chunks.tokens) == tokens


def test_an_answer_without_a_signal_of_its_own_ends_with_its_body() -> None:
    capture = load_capture(DIALECTS / "triton/generate_stream.txt")
    answer, _ = read_capture(capture, ENDPOINTS["triton-generate"], 60)
    assert answer.end_ns == 10**9
    assert answer.chunks is not None
    assert max(answer.chunks.ns) < 1000


@pytest.mark.parametrize("name", ["handmade/tgi_length", "handmade/ollama_length_no_newline"])
def test_nothing_counts_behind_a_last_token_that_is_the_terminal_signal(name: str) -> None:
    capture = load_capture(DIALECTS / f"{name}.txt")
    late = capture._replace(body=capture.body.rstrip() + b"\n\n" + capture.body)
    endpoint = next(endpoint for start, endpoint in _ENDPOINT_OF.items() if name.startswith(start))
    answer, timeline = read_capture(late, ENDPOINTS[endpoint], 53)
    assert timeline.answer_done
    assert (kinds(answer), answer.text) == (OK[name].kinds, OK[name].text)
