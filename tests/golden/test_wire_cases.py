"""Feed the hard responses, cut three ways, and compare with what was worked out by hand (cases/README.md)."""

import json
from pathlib import Path
from typing import Any

import pytest

from servebench.core.outcomes import TOKEN_KIND_CODES, Outcome
from servebench.core.records import Answer
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.timeline import End, Timeline

CASES = Path(__file__).parent / "cases"
EXPECTED: dict[str, dict[str, Any]] = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))

# The server closes after each response; these end in other ways.
ENDS = {"H03": End.RESET, "H08": End.TIMEOUT_IDLE}

# How a class of the cases reads in our two words.
CLASSES = {
    "truncated": (Outcome.TRUNCATED, "truncated"),
    "connection_reset": (Outcome.TRUNCATED, "connection_reset"),
    "empty_stream": (Outcome.TRUNCATED, "empty_stream"),
    "malformed_event": (Outcome.MALFORMED, "malformed_event"),
    "not_a_stream": (Outcome.MALFORMED, "not_a_stream"),
    "in_band_error": (Outcome.STREAM_ERROR, "in_band_error"),
    "timeout": (Outcome.TIMEOUT, "timeout_idle"),
    "redirect": (Outcome.HTTP_ERROR, "redirect"),
    "http_400": (Outcome.HTTP_ERROR, "http_400"),
    "http_429": (Outcome.HTTP_ERROR, "http_429"),
    "http_500": (Outcome.HTTP_ERROR, "http_500"),
    "http_503": (Outcome.HTTP_ERROR, "http_503"),
}

# What the records must hold besides, from the case descriptions.
MESSAGES = {
    "S27": '{"choices":[{"index":0,"delta":{"content":"bad"}',
    "O20": "engine died",
    "O23": "Model is overloaded",
    "O24": "Overloaded",
    "O37": "quota exceeded",
    "O40": "text/html: <html><head><title>Sign in</title>",
    "H01": "Rate limit reached",
    "H02": "503 Service Temporarily Unavailable",
    "H18": "/v1/chat/completions/",
    "H22": "CUDA out of memory",
    "H23": "4097 prompt tokens",
}


def huge_event() -> bytes:
    """Return S24: the second token's content is 614,400 times the letter A."""

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:  # noqa: ANN401 - any JSON
        return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"

    body = b"".join(
        [
            event([{"index": 0, "delta": {"content": "s"}, "finish_reason": None}]),
            event([{"index": 0, "delta": {"content": "A" * 614_400}, "finish_reason": None}]),
            event([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
            event([], usage={"prompt_tokens": 9, "completion_tokens": 3}),
            b"data: [DONE]\n\n",
        ]
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def response_of(case: str) -> bytes:
    return huge_event() if case == "S24" else (CASES / "http" / f"{case}.http").read_bytes()


def read_in_pieces(case: str, size: int | None) -> Answer:
    endpoint = ENDPOINTS["openai-completions" if case == "O35" else "openai-chat"]
    data = response_of(case)
    timeline = Timeline(endpoint, keep_text=True)
    for start in range(0, len(data), size or len(data)):
        timeline.feed(data[start : start + (size or len(data))], 10 * start, -1)
    return timeline.finish(ENDS.get(case, End.EOF), 10**9)


def differences(answer: Answer, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the expected fields that the answer does not have, with what it has instead."""
    chunks = answer.chunks
    assert chunks is not None
    got: dict[str, Any] = {
        "outcome": "ok" if answer.outcome is Outcome.OK else "error",
        "status": answer.http_status,
        "text": answer.text,
        "text_len": len(answer.text or ""),
        "token_events": sum(kind in TOKEN_KIND_CODES for kind in chunks.kind),
        "output_tokens": answer.output_tokens,
        "token_source": answer.token_source,
        "finish_reason": answer.finish_reason,
        "streamed": answer.streamed,
    }
    if "error_class" in expected:
        got["error_class"] = (answer.outcome, answer.error_class)
    wanted = {key: CLASSES[value] if key == "error_class" else value for key, value in expected.items()}
    return {key: got[key] for key, value in wanted.items() if got[key] != value}


@pytest.mark.parametrize("size", [None, 7, 1], ids=["whole", "sevens", "bytes"])
@pytest.mark.parametrize("case", EXPECTED)
def test_a_hard_response_is_read_as_worked_out_by_hand(case: str, size: int | None) -> None:
    answer = read_in_pieces(case, size)
    expected = EXPECTED[case]
    shared = {key: value for key, value in expected.items() if key != "one_of"}
    readings = [shared | reading for reading in expected.get("one_of", [{}])]
    found = [differences(answer, reading) for reading in readings]
    assert {} in found
    assert MESSAGES.get(case, "") in (answer.error_message or "")
    assert (answer.error_class is None) == (answer.outcome is Outcome.OK)


def test_a_retry_after_in_seconds_is_kept_and_a_date_is_not() -> None:
    assert read_in_pieces("H01", None).retry_after_s == 2.0
    assert read_in_pieces("H02", None).retry_after_s is None


def test_usage_details_and_prompt_tokens_are_kept() -> None:
    assert read_in_pieces("O10", None).reasoning_tokens == 5
    assert read_in_pieces("O05", None).input_tokens == 11
    assert read_in_pieces("O06", None).input_tokens == 7
    assert read_in_pieces("O04", None).input_tokens is None


def test_an_empty_model_name_is_not_the_model() -> None:
    assert read_in_pieces("O01", None).model == "demo-7b"


def test_choices_of_interleaved_events_are_told_apart() -> None:
    chunks = read_in_pieces("O18", None).chunks
    assert chunks is not None
    tokens = [choice for kind, choice in zip(chunks.kind, chunks.choice, strict=True) if kind in TOKEN_KIND_CODES]
    assert tokens == [0, 1, 0, 1, 1]
