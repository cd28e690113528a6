"""What goes over the connection, read back by Python's own HTTP server code."""

import io
import json
from http.client import parse_headers
from typing import Any, get_args

import pytest

from servebench.core.errors import InputError
from servebench.core.records import Message
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.request import render_opening, render_question, request_head
from servebench.workload.model import EndpointName

TALK = [Message("system", "Be brief."), Message("user", "Grüße 🚲")]


def read_back(data: bytes) -> tuple[str, dict[str, str], bytes]:
    stream = io.BytesIO(data)
    line = stream.readline().decode().rstrip("\r\n")
    headers = dict(parse_headers(stream).items())
    return line, headers, stream.read()


def test_a_request_reads_back_as_it_was_meant() -> None:
    opening = render_opening("POST", "/v1/x?k=v", "localhost:8000", request_head())
    line, read, body = read_back(opening.request("a1b2c3d4-17-0", b'{"a":1}'))
    assert line == "POST /v1/x?k=v HTTP/1.1"
    assert body == b'{"a":1}'
    assert read == {
        "Host": "localhost:8000",
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "servebench",
        "X-Request-Id": "a1b2c3d4-17-0",
        "Content-Length": "7",
    }


def test_a_question_has_neither_body_nor_length() -> None:
    line, read, body = read_back(render_question("/v1/models", "h:1", {"Accept": "*/*"}))
    assert (line, read, body) == ("GET /v1/models HTTP/1.1", {"Host": "h:1", "Accept": "*/*"}, b"")


def test_a_request_for_no_stream_asks_for_json_alone() -> None:
    headers = request_head(stream=False)
    assert headers["Accept"] == "application/json"


@pytest.mark.parametrize(
    ("host", "headers"),
    [
        ("h\r\nX: 1", {}),
        ("h", {"X": "canary\r\nY: 1"}),
        ("h", {"X": "canary\n"}),
        ("h", {"X": "canary\x00"}),
        ("h", {"X": "canary\x7f"}),
        ("h", {"X\r\nY": "canary"}),
        ("h", {"X Y": "canary"}),
        ("h", {"": "canary"}),
        ("h", {"X": "canary 漢"}),
    ],
)
def test_what_would_change_the_head_is_refused_without_naming_the_value(host: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="header") as caught:
        render_opening("POST", "/", host, headers)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "path"), [("GET /", "/"), ("", "/"), ("GET", "x"), ("GET", "/a b"), ("GET", "/\r\n")]
)
def test_a_method_or_target_that_is_none_is_refused(method: str, path: str) -> None:
    with pytest.raises(ValueError, match=r"method|target"):
        render_opening(method, path, "h", {})


def body(endpoint: str, **changes: Any) -> Any:  # noqa: ANN401 - any JSON
    asked: dict[str, Any] = {"model": "m", "messages": TALK, "max_tokens": 8, "stream": True, "params": {}} | changes
    return json.loads(ENDPOINTS[endpoint].body(**asked))


def test_a_chat_body_holds_the_messages_and_asks_for_usage() -> None:
    assert body("openai-chat") == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße 🚲"}],
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_completions_body_holds_the_prompt_as_one_text() -> None:
    assert body("openai-completions")["prompt"] == "Be brief.\n\nGrüße 🚲"
    assert "messages" not in body("openai-completions")


OPENAI_LIKE = ["openai-chat", "openai-completions"]


@pytest.mark.parametrize("endpoint", OPENAI_LIKE)
def test_what_is_not_asked_for_is_left_to_the_server(endpoint: str) -> None:
    sent = body(endpoint, model=None, max_tokens=None, stream=False)
    assert sent.keys() & {"model", "max_tokens", "stream_options"} == set()
    assert sent["stream"] is False


@pytest.mark.parametrize("endpoint", [*OPENAI_LIKE, "anthropic-messages", "triton-generate"])
def test_params_extend_and_override_and_may_be_null(endpoint: str) -> None:
    sent = body(endpoint, params={"temperature": 0.5, "max_tokens": 9, "seed": None})
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0.5, 9, None)


TEXT = "Be brief.\n\nGrüße 🚲"
USER = {"role": "user", "content": "Grüße 🚲"}
SYSTEM = {"role": "system", "content": "Be brief."}
PARAMS = {"temperature": 0.5, "input_name": "question", "keep_alive": "5m"}
TENSOR = {"shape": [1], "datatype": "BYTES", "parameters": {"content_type": "str"}, "data": [TEXT]}

BODIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "openai-responses": (
        {"params": {"temperature": 0.5}},
        {"model": "m", "input": [SYSTEM, USER], "max_output_tokens": 8, "stream": True, "temperature": 0.5},
    ),
    "openai-embeddings": ({"params": {"dimensions": 64}}, {"model": "m", "input": TEXT, "dimensions": 64}),
    "anthropic-messages": (
        {},
        {"model": "m", "system": "Be brief.", "messages": [USER], "max_tokens": 8, "stream": True},
    ),
    "tgi-generate": (
        {"params": {"temperature": 0.5}},
        {"inputs": TEXT, "parameters": {"max_new_tokens": 8, "details": True, "temperature": 0.5}},
    ),
    "triton-generate": (
        {"params": PARAMS},
        {"question": TEXT, "max_tokens": 8, "stream": True, "temperature": 0.5, "keep_alive": "5m"},
    ),
    "kserve-v2": (
        {"params": {"temperature": 0.5, "input_name": "question"}},
        {"inputs": [{"name": "question", **TENSOR}], "parameters": {"max_tokens": 8, "temperature": 0.5}},
    ),
    "ollama-chat": (
        {"params": {"temperature": 0.5, "keep_alive": "5m"}},
        {
            "model": "m",
            "messages": [SYSTEM, USER],
            "stream": True,
            "options": {"num_predict": 8, "temperature": 0.5},
            "keep_alive": "5m",
        },
    ),
}


@pytest.mark.parametrize("endpoint", BODIES)
def test_a_body_is_what_the_specification_of_its_dialect_asks_for(endpoint: str) -> None:
    changes, wanted = BODIES[endpoint]
    assert body(endpoint, **changes) == wanted


BARE = {
    "openai-responses": {"input": [SYSTEM, USER], "stream": False},
    "openai-embeddings": {"input": TEXT},
    "anthropic-messages": {"system": "Be brief.", "messages": [USER], "stream": False},
    "tgi-generate": {"inputs": TEXT, "parameters": {"details": True}},
    "triton-generate": {"text_input": TEXT, "stream": False},
    "kserve-v2": {"inputs": [{"name": "prompt", **TENSOR}]},
    "ollama-chat": {"messages": [SYSTEM, USER], "stream": False},
}


@pytest.mark.parametrize("endpoint", BARE)
def test_what_is_not_asked_for_is_in_no_body(endpoint: str) -> None:
    assert body(endpoint, model=None, max_tokens=None, stream=False) == BARE[endpoint]


def test_a_body_is_compact() -> None:
    asked = ENDPOINTS["openai-chat"].body(model="m", messages=TALK[1:], max_tokens=None, stream=False, params={})
    assert asked == '{"model":"m","messages":[{"role":"user","content":"Grüße 🚲"}],"stream":false}'.encode()


PATHS = {
    "openai-chat": ("/v1/chat/completions", "/v1/chat/completions"),
    "openai-completions": ("/v1/completions", "/v1/completions"),
    "openai-responses": ("/v1/responses", "/v1/responses"),
    "openai-embeddings": ("/v1/embeddings", "/v1/embeddings"),
    "anthropic-messages": ("/v1/messages", "/v1/messages"),
    "tgi-generate": ("/generate_stream", "/generate"),
    "triton-generate": ("/v2/models/a%2Fb%20c/generate_stream", "/v2/models/a%2Fb%20c/generate"),
    "kserve-v2": ("/v2/models/a%2Fb%20c/infer_stream", "/v2/models/a%2Fb%20c/infer"),
    "ollama-chat": ("/api/chat", "/api/chat"),
}


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_knows_its_name_and_the_paths_of_streams_and_of_whole_answers(name: str) -> None:
    endpoint = ENDPOINTS[name]
    assert endpoint.name == name
    assert (endpoint.at("a/b c", stream=True).path, endpoint.at("a/b c", stream=False).path) == PATHS[name]


@pytest.mark.parametrize("name", ["triton-generate", "kserve-v2"])
def test_a_path_that_names_the_model_needs_one(name: str) -> None:
    with pytest.raises(InputError, match="--model"):
        ENDPOINTS[name].at(None, stream=True)


def test_a_workload_file_may_name_every_endpoint_and_no_other() -> None:
    assert set(get_args(EndpointName)) == set(ENDPOINTS)


def test_a_key_goes_where_the_dialect_looks_for_it_and_stays_where_engines_look() -> None:
    given = {"Authorization": "Bearer canary-key", "X-Team": "a"}
    assert ENDPOINTS["anthropic-messages"].headers_with(given) == {
        "anthropic-version": "2023-06-01",
        "x-api-key": "canary-key",
        **given,
    }
    assert ENDPOINTS["anthropic-messages"].headers_with({}) == {"anthropic-version": "2023-06-01"}
    assert ENDPOINTS["openai-chat"].headers_with(given) == given
    assert (
        ENDPOINTS["anthropic-messages"].headers_with({"authorization": "bearer canary-key"})["x-api-key"]
        == "canary-key"
    )
    own = ENDPOINTS["anthropic-messages"].headers_with({"X-API-Key": "mine", "Anthropic-Version": "2", **given})
    assert own == {"X-API-Key": "mine", "Anthropic-Version": "2", **given}
