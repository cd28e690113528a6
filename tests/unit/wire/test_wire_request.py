"""What goes over the connection, read back by Python's own HTTP server code."""

import io
import json
from http.client import parse_headers
from typing import Any

import pytest

from servebench.core.records import Message
from servebench.wire.endpoints import ENDPOINTS
from servebench.wire.request import render_request, request_head

TALK = [Message("system", "Be brief."), Message("user", "Grüße 🚲")]


def read_back(data: bytes) -> tuple[str, dict[str, str], bytes]:
    stream = io.BytesIO(data)
    line = stream.readline().decode().rstrip("\r\n")
    headers = dict(parse_headers(stream).items())
    return line, headers, stream.read()


def test_a_request_reads_back_as_it_was_meant() -> None:
    headers = request_head(request_id="a1b2c3d4-17-0", api_key="canary-key")
    line, read, body = read_back(render_request("POST", "/v1/x?k=v", "localhost:8000", headers, b'{"a":1}'))
    assert line == "POST /v1/x?k=v HTTP/1.1"
    assert body == b'{"a":1}'
    assert read == {
        "Host": "localhost:8000",
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "X-Request-Id": "a1b2c3d4-17-0",
        "Authorization": "Bearer canary-key",
        "Content-Length": "7",
    }


def test_no_key_and_no_stream_ask_for_json_without_authorization() -> None:
    headers = request_head(request_id="r", stream=False)
    assert headers["Accept"] == "application/json"
    assert "Authorization" not in headers


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
        render_request("POST", "/", host, headers, b"")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "path"), [("GET /", "/"), ("", "/"), ("GET", "x"), ("GET", "/a b"), ("GET", "/\r\n")]
)
def test_a_method_or_target_that_is_none_is_refused(method: str, path: str) -> None:
    with pytest.raises(ValueError, match=r"method|target"):
        render_request(method, path, "h", {}, b"")


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


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_what_is_not_asked_for_is_left_to_the_server(endpoint: str) -> None:
    sent = body(endpoint, model=None, max_tokens=None, stream=False)
    assert sent.keys() & {"model", "max_tokens", "stream_options"} == set()
    assert sent["stream"] is False


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_params_extend_and_override_and_may_be_null(endpoint: str) -> None:
    sent = body(endpoint, params={"temperature": 0.5, "max_tokens": 9, "seed": None})
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0.5, 9, None)


def test_a_body_is_compact() -> None:
    asked = ENDPOINTS["openai-chat"].body(model="m", messages=TALK[1:], max_tokens=None, stream=False, params={})
    assert asked == '{"model":"m","messages":[{"role":"user","content":"Grüße 🚲"}],"stream":false}'.encode()


@pytest.mark.parametrize(
    ("name", "path"), [("openai-chat", "/v1/chat/completions"), ("openai-completions", "/v1/completions")]
)
def test_an_endpoint_knows_its_name_and_path(name: str, path: str) -> None:
    assert (ENDPOINTS[name].name, ENDPOINTS[name].path) == (name, path)
