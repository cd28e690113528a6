"""`servebench check` against the simulator and against answers captured from real servers, replayed byte for byte."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.captures import load_capture
from tests.servers.simulator import StartSim, sim_starter

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
Replay = Callable[..., "tuple[str, Path]"]


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[Replay]:
    """Serve answers in the order given, the k-th request gets the k-th; a path of `golden`, or bytes."""
    started: list[subprocess.Popen[str]] = []

    def serve(*answers: str | bytes) -> tuple[str, Path]:
        files = []
        for number, answer in enumerate(answers):
            files.append(tmp_path / f"{number}.http")
            files[-1].write_bytes(answer if isinstance(answer, bytes) else framed(GOLDEN / f"{answer}.txt"))
        log = tmp_path / "replay.jsonl"
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.replay", *map(str, files), "--log", str(log), "--keep-alive"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return f"http://127.0.0.1:{process.stdout.readline().split()[1]}", log

    yield serve
    for process in started:
        process.communicate(timeout=20)


def framed(path: Path) -> bytes:
    """Return a capture as its server sent it; the length is that of the body, which the captures may have thinned."""
    data = path.read_bytes()
    if b"chunked" in data.partition(b"\r\n\r\n")[0].lower():
        return load_capture(path).framed()
    head, body = re.split(rb"\r?\n\r?\n", data, maxsplit=1)
    kept = [line for line in head.splitlines() if not line.lower().startswith((b"content-length", b"("))]
    return b"\r\n".join([*kept, b"Content-Length: %d" % len(body)]) + b"\r\n\r\n" + body


def check(*arguments: str, **more: str) -> tuple[int, str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVEBENCH_")}
    ended = subprocess.run(
        [sys.executable, "-m", "servebench.cli", "check", *arguments],
        env={**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8", **more},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    return ended.returncode, ended.stdout, ended.stderr


def asked(log: Path) -> list[str]:
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [event["head"][0] for event in events if event["ev"] == "request"]


def found(output: str) -> dict[str, Any]:
    lines: list[dict[str, Any]] = json.loads(output)["findings"]
    return {line["title"]: line for line in lines}


def test_the_simulator_passes_and_the_target_line_is_ready(start_sim: StartSim) -> None:
    sim = start_sim(preset="demo")
    code, output, errors = check(f"http://127.0.0.1:{sim.port}")
    assert (code, errors) == (0, "")
    assert "✓ streams           16 token events for 16 tokens" in output
    assert "dialect servebench-sim" in output
    assert "target: {endpoint: openai-chat, model: sim-1}" in output
    assert output.splitlines()[-1].startswith(f"Next: servebench run --url http://127.0.0.1:{sim.port} --model sim-1")
    assert len(sim.stop()) == 1, "one generation, no more"


@pytest.mark.parametrize(
    ("server", "captures", "expected"),
    [
        ("vLLM", ("models/vllm", "metrics/vllm", "data/vllm/chat_stream_usage"), "dialect vllm"),
        ("llama.cpp", ("models/llamacpp", "metrics/llamacpp", "data/llamacpp/chat_stream_usage"), "dialect llama.cpp"),
        (
            "Dynamo",
            ("models/dynamo-mocker", "metrics/dynamo-mocker", "data/dynamo-mocker/chat_stream_usage"),
            "dialect dynamo",
        ),
        ("SGLang", ("models/vllm", "metrics/sglang-handmade", "data/vllm/chat_stream_usage"), "dialect sglang"),
    ],
)
def test_a_server_is_recognised_by_what_it_answers(
    replay: Replay, server: str, captures: tuple[str, ...], expected: str
) -> None:
    url, log = replay(*captures, captures[0])
    code, output, _ = check(url, "--json")
    told = json.loads(output)
    assert code == 0
    assert told["server"] == server
    assert told["target"]["endpoint"] == "openai-chat"
    assert expected in found(output)["metrics"]["text"]
    assert found(output)["streams"]["state"] == "ok"
    assert asked(log) == [
        "GET /v1/models HTTP/1.1",
        "GET /metrics HTTP/1.1",
        "POST /v1/chat/completions HTTP/1.1",
        "GET /v1/models HTTP/1.1",
    ]


def page(body: object) -> bytes:
    """Return an answer of a server that tells nothing of itself in its head."""
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(data),
        data,
    )


MOVED = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /metrics/\r\ncontent-length: 0\r\n\r\n"
TINY = page({"object": "list", "data": [{"id": "/srv/llmlab/models/tinyllama-w", "object": "model"}]})
MOCK = page({"object": "list", "data": [{"id": "mock", "object": "model", "owned_by": "openai"}]})


@pytest.mark.parametrize(
    ("server", "captures"),
    [
        pytest.param("LiteLLM", (MOCK, NOT_FOUND, "data/litellm/chat_stream_usage", MOCK), id="LiteLLM"),
        pytest.param(
            "LiteLLM",
            ("models/litellm", MOVED, "metrics/litellm", "data/litellm/chat_stream_usage", "models/litellm"),
            id="LiteLLM with metrics",
        ),
        pytest.param(
            "llama.cpp",
            ("models/llamacpp", "metrics/llama-server", "data/llama-server/chat_stream_usage", "models/llamacpp"),
            id="llama-server",
        ),
        pytest.param(
            "transformers serve",
            (TINY, NOT_FOUND, "data/transformers-serve/chat_stream_usage", TINY),
            id="transformers",
        ),
        pytest.param(
            None,
            (MOCK, NOT_FOUND, "data/transformers-serve/chat_stream_usage", MOCK),
            id="another model than was asked",
        ),
        pytest.param(
            "MLServer",
            (
                NOT_FOUND,
                NOT_FOUND,
                "models/mlserver-v2",
                "models/mlserver-toy",
                "dialects/mlserver/infer_stream",
            ),
            id="MLServer",
        ),
    ],
)
def test_a_server_is_told_by_its_answers_in_five_requests_or_said_to_be_unknown(
    replay: Replay, server: str | None, captures: tuple[str | bytes, ...]
) -> None:
    url, log = replay(*captures)
    code, output, _ = check(url, "--json", *(("--model", "toy") if server == "MLServer" else ()))
    assert code == 0
    assert json.loads(output)["server"] == server
    assert len(asked(log)) <= 5


def test_a_server_without_usage_and_metrics_is_told_so_and_passes(replay: Replay) -> None:
    url, _ = replay("models/llama-cpp-python", NOT_FOUND, "data/llama-cpp-python/chat_stream_usage", NOT_FOUND)
    code, output, _ = check(url, "--json")
    lines = found(output)
    assert code == 0
    assert lines["usage, end"]["state"] == "note"
    assert "counted by events" in lines["usage, end"]["text"]
    assert lines["metrics"]["state"] == "note"
    assert lines["tokens per chunk"]["text"] == "unknown: the server counts no tokens"


def test_tgi_is_asked_by_its_own_endpoint(replay: Replay) -> None:
    url, log = replay(NOT_FOUND, "metrics/tgi-handmade", "dialects/handmade/tgi_length", NOT_FOUND)
    code, output, _ = check(url, "--json")
    assert code == 0
    assert json.loads(output)["target"]["endpoint"] == "tgi-generate"
    assert asked(log)[2] == "POST /generate_stream HTTP/1.1"


def test_ollama_is_found_by_its_tags(replay: Replay) -> None:
    body = b'{"models":[{"name":"llama3.2:1b"}]}'
    tags = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    url, log = replay(NOT_FOUND, NOT_FOUND, NOT_FOUND, tags, "dialects/handmade/ollama_text")
    code, output, _ = check(url)
    assert code == 0
    assert "target: {endpoint: ollama-chat, model: llama3.2:1b}" in output
    assert len(asked(log)) == 5, "at most five requests"


def test_triton_is_found_by_its_protocol_and_asked_by_the_input_that_its_model_declares(replay: Replay) -> None:
    captures = ("models/triton-v2", "models/triton-toy", "dialects/triton/generate_stream")
    url, log = replay(NOT_FOUND, NOT_FOUND, *captures)
    code, output, _ = check(url, "--model", "toy")
    assert code == 0
    assert "8002" in output
    assert "target: {endpoint: triton-generate, model: toy}\n  requests: {params: {input_name: prompt}}" in output
    assert asked(log)[-1] == "POST /v2/models/toy/generate_stream HTTP/1.1"
    body = b'{"prompt":"Count from one to twenty in words.","max_tokens":16,"stream":true}'
    sent = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if '"request"' in line]
    assert sent[-1]["body_bytes"] == len(body)


def test_triton_without_a_model_wants_one(replay: Replay) -> None:
    url, log = replay(NOT_FOUND, NOT_FOUND, "models/triton-v2")
    code, _, errors = check(url)
    assert code == 2
    assert "--model NAME" in errors
    assert len(asked(log)) == 3


def test_an_answer_in_one_piece_fails(replay: Replay) -> None:
    url, _ = replay("models/vllm", "metrics/vllm", "data/vllm/chat_nostream", "models/vllm")
    code, output, _ = check(url)
    assert code == 2
    assert "✗ streams" in output
    assert "in one piece" in output


def test_a_refused_request_fails_with_the_servers_words(replay: Replay) -> None:
    url, _ = replay("models/vllm", "metrics/vllm", "data/litellm/err_ratelimit", "models/vllm")
    code, output, _ = check(url)
    assert code == 2
    assert "✗ answers" in output
    assert "http_error 429" in output


def test_a_model_that_is_not_served_is_told_before_any_generation(replay: Replay) -> None:
    url, log = replay("models/vllm")
    code, _, errors = check(url, "--model", "huge")
    assert code == 2
    assert 'does not serve "huge". It serves: tiny' in errors
    assert len(asked(log)) == 1


def test_what_a_server_says_cannot_steer_the_terminal(replay: Replay) -> None:
    body = json.dumps({"data": [{"id": "a\u001b[2Jb\nc", "object": "model"}]}).encode()
    evil = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    url, _ = replay(evil, NOT_FOUND, "data/vllm/chat_stream_usage", evil)
    code, output, errors = check(url)
    assert code == 0
    assert "\u001b" not in output + errors
