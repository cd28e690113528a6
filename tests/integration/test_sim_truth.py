"""The simulator's truth log, metrics and faults, compared with what a client saw."""

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead, RemoteDisconnected
from pathlib import Path

import pytest
from tests.servers.simulator import Reply, StartSim, ask, chat, metric, raw, sim_starter, text_of

pytestmark = pytest.mark.integration


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def test_the_truth_log_agrees_with_what_the_client_saw(start_sim: StartSim) -> None:
    sim = start_sim("--set", "step_base_ns=2_000_000")

    def one(number: int) -> tuple[str, Reply]:
        name = f"run-{number}-0"
        return name, ask(sim.connect(), chat(3 + number % 7, text="x" * 40 * number), headers={"X-Request-Id": name})

    with ThreadPoolExecutor(16) as pool:
        replies = dict(pool.map(one, range(48)))
    truth = {record.request_id: record for record in sim.stop()}
    assert set(truth) == set(replies)
    for name, reply in replies.items():
        record = truth[name]
        stamps = reply.token_stamps_ns()
        usage = reply.decoded()[-1]["usage"]
        assert reply.headers["x-request-id"] == name
        assert len(stamps) == record.completion_tokens == len(record.t_send_ns) == usage["completion_tokens"]
        assert record.prompt_tokens == usage["prompt_tokens"]
        assert record.cached_tokens == usage["prompt_tokens_details"]["cached_tokens"]
        assert reply.sent_ns <= record.t_received_ns
        assert all(sent <= seen for sent, seen in zip(record.t_send_ns, stamps, strict=True))
        assert record.t_head_ns is not None
        assert record.t_role_ns is not None
        assert record.t_done_ns is not None
        times = [record.t_first_byte_ns, record.t_received_ns, record.t_head_ns, record.t_role_ns]
        times += [*record.t_send_ns, record.t_done_ns]
        assert times == sorted(times)
        assert record.t_done_ns <= reply.stamps_ns[-1]
        assert (record.status, record.aborted, record.fault) == (200, False, None)


def test_the_tokens_of_an_answer_are_as_far_apart_as_the_steps_declared(start_sim: StartSim) -> None:
    step_ns = 20_000_000
    sim = start_sim("--set", f"step_base_ns={step_ns}")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ask(sim.connect(), chat(20)), range(4)))
    for record in sim.stop():
        span = record.t_send_ns[-1] - record.t_send_ns[0]
        # A timer never fires early; a single send may be late, which shortens the gap after it.
        assert span > 18 * step_ns


def test_a_repeated_prompt_is_cached_and_both_usage_and_metrics_say_so(start_sim: StartSim) -> None:
    sim = start_sim()
    connection = sim.connect()
    text = "a long common beginning " * 40
    first = ask(connection, chat(2, text=text)).decoded()[-1]["usage"]
    second = ask(connection, chat(2, text=text)).decoded()[-1]["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == (second["prompt_tokens"] - 1) // 16 * 16
    assert metric(connection, "vllm:prefix_cache_queries_total") == 2 * first["prompt_tokens"]
    assert metric(connection, "vllm:prefix_cache_hits_total") == second["prompt_tokens_details"]["cached_tokens"]


def test_metrics_count_what_was_served(start_sim: StartSim) -> None:
    sim = start_sim()
    connection = sim.connect()
    usages = [ask(connection, chat(count)).decoded()[-1]["usage"] for count in (1, 5, 9)]
    assert metric(connection, "vllm:generation_tokens_total") == 15
    assert metric(connection, "vllm:prompt_tokens_total") == sum(usage["prompt_tokens"] for usage in usages)
    assert metric(connection, "vllm:time_to_first_token_seconds_count") == 3
    assert metric(connection, "vllm:inter_token_latency_seconds_count") == 12
    assert metric(connection, "vllm:e2e_request_latency_seconds_count") == 3
    assert metric(connection, "vllm:kv_cache_usage_perc") == 0


def test_a_client_that_leaves_frees_its_seat_and_blocks(start_sim: StartSim) -> None:
    sim = start_sim("--set", "step_base_ns=5_000_000")
    watcher = sim.connect()
    leaver = sim.connect()
    leaver.request("POST", "/v1/chat/completions", json.dumps(chat(20_000)))
    response = leaver.getresponse()
    assert response.readline().startswith(b"data: ")
    assert metric(watcher, "vllm:num_requests_running") == 1
    assert metric(watcher, "vllm:kv_cache_usage_perc") > 0
    response.close()
    leaver.close()
    deadline = time.monotonic() + 20
    while metric(watcher, "vllm:num_requests_running") and time.monotonic() < deadline:
        pass
    assert metric(watcher, "vllm:num_requests_running") == 0
    assert metric(watcher, "vllm:kv_cache_usage_perc") == 0
    (record,) = sim.stop()
    assert record.aborted
    assert record.t_done_ns is None
    assert 0 < record.completion_tokens < 20_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_the_middle_of_an_answer_is_clean_and_logs_it_as_aborted(
    start_sim: StartSim, number: signal.Signals
) -> None:
    sim = start_sim("--set", "step_base_ns=5_000_000")
    connection = sim.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps(chat(20_000)))
    response = connection.getresponse()
    response.readline()
    (record,) = sim.stop(number)
    assert record.aborted
    assert record.completion_tokens == len(record.t_send_ns)
    with pytest.raises(IncompleteRead):
        response.read()


def test_http_faults_are_refused_at_once_with_retry_after(start_sim: StartSim) -> None:
    sim = start_sim("--fault", "http-503:1")
    reply = ask(sim.connect(), chat(5), headers={"X-Request-Id": "f"})
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert json.loads(reply.body)["error"]["code"] == 503
    (record,) = sim.stop()
    assert (record.fault, record.status, record.request_id) == ("http-503", 503, "f")


def test_an_error_fault_puts_an_error_event_into_the_stream(start_sim: StartSim) -> None:
    sim = start_sim("--fault", "error:1")
    reply = ask(sim.connect(), chat(8))
    assert reply.status == 200
    assert sum(bool(text_of(event)) for event in reply.events) == 4
    assert json.loads(reply.events[-2])["error"]["code"] == 500
    assert reply.events[-1] == "[DONE]"
    (record,) = sim.stop()
    assert (record.fault, record.completion_tokens, record.finish_reason) == ("error", 4, None)


def test_a_cut_fault_ends_the_connection_inside_the_body(start_sim: StartSim) -> None:
    sim = start_sim("--fault", "cut:1")
    body = json.dumps(chat(8)).encode()
    received = raw(sim.port, b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    # The role event has an empty content; every word begins with a blank.
    assert received.count(b'"content":" ') == 4
    assert b"[DONE]" not in received
    assert not received.endswith(b"0\r\n\r\n")
    (record,) = sim.stop()
    assert (record.fault, record.completion_tokens, record.t_done_ns) == ("cut", 4, None)


def test_a_stall_fault_is_silent_for_its_time_then_sends_the_rest(start_sim: StartSim) -> None:
    sim = start_sim("--fault", "stall:1:300ms")
    reply = ask(sim.connect(), chat(8))
    assert sum(bool(text_of(event)) for event in reply.events) == 8
    assert reply.events[-1] == "[DONE]"
    (record,) = sim.stop()
    gaps = [later - sooner for sooner, later in zip(record.t_send_ns, record.t_send_ns[1:], strict=False)]
    # The timer's clock is rounded down to its resolution of at most 1 ms.
    assert gaps[3] > 299_000_000
    assert record.fault == "stall"


@pytest.mark.parametrize("fault", ["error:1", "cut:1"])
def test_faults_spoil_whole_answers_too(start_sim: StartSim, fault: str) -> None:
    sim = start_sim("--fault", fault)
    connection = sim.connect()
    if fault == "cut:1":
        with pytest.raises(RemoteDisconnected):
            ask(connection, chat(4, stream=False))
    else:
        assert ask(connection, chat(4, stream=False)).status == 500
    (record,) = sim.stop()
    assert record.fault == fault.partition(":")[0]


def test_faults_strike_the_same_requests_in_every_run_with_one_seed(start_sim: StartSim) -> None:
    def struck() -> list[int]:
        sim = start_sim("--fault", "http-500:0.3", "--seed", "5")
        connection = sim.connect()
        return [ask(connection, chat(1)).status for _ in range(40)]

    first = struck()
    assert set(first) == {200, 500}
    assert struck() == first
