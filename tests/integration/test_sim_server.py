"""The simulator as an HTTP server: shapes, connections, refusals, options."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers.simulator import ROOT, StartSim, ask, chat, get, raw, run_to_end, sim_starter, text_of

pytestmark = pytest.mark.integration

CAPTURES = ROOT / "tests" / "golden" / "data" / "vllm"
KEY = "a-secret-key"


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def shape(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return the structure of a JSON value: keys in order, types, and null where it is null."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return None if value is None else type(value).__name__


def captured_shapes(name: str) -> list[Any]:
    """Return the structures of the events in a capture of a real vLLM, equal neighbours once."""
    lines = (CAPTURES / name).read_text().splitlines()
    return distinct_shapes([line[6:] for line in lines if line.startswith("data: ")])


def distinct_shapes(events: list[str]) -> list[Any]:
    shapes: list[Any] = []
    for event in events:
        one = event if event == "[DONE]" else json.dumps(shape(json.loads(event)))
        if not shapes or shapes[-1] != one:
            shapes.append(one)
    return shapes


def without_details(shapes: list[Any]) -> list[Any]:
    return [one.replace(', "prompt_tokens_details": {"cached_tokens": "int"}', "") for one in shapes]


@pytest.mark.parametrize(
    ("capture", "path", "include_usage"),
    [
        ("chat_stream_usage.txt", "/v1/chat/completions", True),
        ("chat_stream_nousage.txt", "/v1/chat/completions", False),
        ("completions_stream_usage.txt", "/v1/completions", True),
        ("completions_stream_nousage.txt", "/v1/completions", False),
    ],
)
def test_a_stream_has_the_events_of_a_real_vllm_in_the_same_order(
    start_sim: StartSim, capture: str, path: str, include_usage: bool
) -> None:
    sim = start_sim()
    prompt = {"prompt": "hello"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hello"}]}
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    body = {"model": "sim-1", "max_tokens": 5, "stream": True, **prompt, **options}
    reply = ask(sim.connect(), body, path=path)
    # The simulator always says how many tokens were cached; this vLLM was started without that option.
    assert without_details(distinct_shapes(reply.events)) == captured_shapes(capture)


def captured_answer(name: str) -> tuple[int, Any]:
    """Return status and decoded body of a capture."""
    head, _, body = (CAPTURES / name).read_text().replace("\r\n", "\n").partition("\n\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("capture", "body"),
    [
        ("err_bad_json.txt", b'{"model": '),
        ("err_bad_model.txt", chat(model="no-such-model")),
        ("err_bad_param.txt", chat(temperature=-5)),
        ("err_missing_messages.txt", {"model": "sim-1"}),
        ("err_prompt_too_long.txt", chat(text="x" * 4_096)),
    ],
)
def test_a_refusal_has_status_type_and_fields_of_a_real_vllm(
    start_sim: StartSim, capture: str, body: dict[str, Any] | bytes
) -> None:
    reply = ask(start_sim("--set", "max_model_len=1024").connect(), body)
    status, expected = captured_answer(capture)
    got = json.loads(reply.body)
    assert reply.status == status
    assert shape(got) == shape(expected)
    assert got["error"]["type"] == expected["error"]["type"]
    assert got["error"]["param"].partition(".")[0] == expected["error"]["param"].partition(".")[0]


@pytest.mark.parametrize(
    ("capture", "path", "where"),
    [
        ("chat_nostream.txt", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
        ("completions_nostream.txt", "/v1/completions", {"prompt": "hello"}),
    ],
)
def test_a_whole_answer_says_only_what_a_real_vllm_says(
    start_sim: StartSim, capture: str, path: str, where: dict[str, Any]
) -> None:
    got = json.loads(ask(start_sim().connect(), {"model": "sim-1", "max_tokens": 3, **where}, path=path).body)
    _, expected = captured_answer(capture)
    assert set(got) <= set(expected)
    assert set(got["choices"][0]) <= set(expected["choices"][0])
    assert set(got["usage"]) <= set(expected["usage"])
    assert (got["object"], got["choices"][0]["finish_reason"]) == (expected["object"], "length")


def test_one_connection_serves_streams_and_whole_answers_in_turn(start_sim: StartSim) -> None:
    connection = start_sim().connect()
    streamed = ask(connection, chat(6))
    socket_used = connection.sock
    whole = json.loads(ask(connection, chat(6, stream=False)).body)
    again = ask(connection, chat(6))
    assert connection.sock is socket_used
    assert sum(bool(text_of(event)) for event in streamed.events) == 6
    assert sum(bool(text_of(event)) for event in again.events) == 6
    assert len(whole["choices"][0]["message"]["content"].split()) == 6
    assert whole["usage"]["completion_tokens"] == 6
    assert whole["choices"][0]["finish_reason"] == "length"


def test_natural_answers_stop_by_themselves_with_an_empty_last_event(start_sim: StartSim) -> None:
    sim = start_sim("--answer-tokens", "natural")
    reply = ask(sim.connect(), chat(None))
    last = next(event for event in reversed(reply.decoded()) if event["choices"])["choices"][0]
    assert last["finish_reason"] == "stop"
    assert last["delta"]["content"] == ""
    (record,) = sim.stop()
    assert record.finish_reason == "stop"
    assert record.completion_tokens == len(reply.token_stamps_ns())


def test_with_a_key_the_api_asks_for_it_and_health_and_metrics_stay_open(start_sim: StartSim) -> None:
    sim = start_sim(environment={"SERVEBENCH_SIM_API_KEY": KEY})
    connection = sim.connect()
    assert get(connection, "/v1/models") == (401, b'{"error":"Unauthorized"}')
    assert ask(connection, chat(2)).status == 401
    assert ask(connection, chat(2), headers={"Authorization": "Bearer wrong"}).status == 401
    assert ask(connection, chat(2), headers={"Authorization": f"Bearer {KEY}"}).status == 200
    assert get(connection, "/health") == (200, b"")
    assert get(connection, "/metrics")[0] == 200
    assert [record.status for record in sim.stop()] == [401, 401, 200]


def test_the_model_list_and_the_version_are_told(start_sim: StartSim) -> None:
    connection = start_sim("--model", "tiny").connect()
    card = json.loads(get(connection, "/v1/models")[1])["data"][0]
    assert (card["id"], card["max_model_len"]) == ("tiny", 32_768)
    assert json.loads(get(connection, "/version")[1])["version"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/health", 405)],
)
def test_unknown_paths_and_methods_are_told_apart(start_sim: StartSim, method: str, path: str, status: int) -> None:
    connection = start_sim().connect()
    connection.request(method, path)
    response = connection.getresponse()
    assert response.status == status
    assert "detail" in json.loads(response.read())


def test_pipelined_requests_are_answered_in_order(start_sim: StartSim) -> None:
    sim = start_sim()
    one, two = (json.dumps(chat(count)).encode() for count in (3, 2))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: %b\r\nContent-Length: %d\r\n%b\r\n"
    data = head % (b"first", len(one), b"") + one + head % (b"second", len(two), b"Connection: close\r\n") + two
    received = raw(sim.port, data)
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.index(b"x-request-id: first") < received.index(b"[DONE]") < received.index(b"x-request-id: second")
    assert received.endswith(b"0\r\n\r\n")
    assert [record.request_id for record in sim.stop()] == ["first", "second"]


def test_what_is_no_http_gets_400_and_the_end_of_the_connection(start_sim: StartSim) -> None:
    sim = start_sim()
    assert raw(sim.port, b"hello there\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert get(sim.connect(), "/health")[0] == 200


def test_a_stream_over_http_1_0_is_refused_because_it_has_no_chunks(start_sim: StartSim) -> None:
    body = json.dumps(chat(2)).encode()
    request = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert raw(start_sim().port, request + body).startswith(b"HTTP/1.1 505 ")


def test_a_body_that_waits_for_an_invitation_gets_one(start_sim: StartSim) -> None:
    sim = start_sim()
    body = json.dumps(chat(1)).encode()
    with socket.create_connection(("127.0.0.1", sim.port), timeout=20) as connection:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(body))
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "options",
    [
        ("--preset", "huge"),
        ("--set", "max_num_seqs"),
        ("--set", "max_num_seqs=0"),
        ("--fault", "melt:1"),
        ("--truth-log", "/nowhere/at/all.jsonl"),
        ("--host", "192.0.2.1"),
    ],
    ids=" ".join,
)
def test_bad_options_end_with_code_2_and_one_message(options: tuple[str, ...]) -> None:
    done = run_to_end(*options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert options[1].partition("=")[0].rpartition(":")[0] in done.stderr
    assert "Traceback" not in done.stderr


def test_the_port_file_holds_the_port(start_sim: StartSim, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    sim = start_sim("--port-file", str(port_file))
    assert int(port_file.read_text()) == sim.port


def test_a_busy_port_is_named(start_sim: StartSim) -> None:
    port = start_sim().port
    done = run_to_end("--port", str(port))
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
