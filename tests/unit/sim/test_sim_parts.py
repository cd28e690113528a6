"""Frames, faults, metrics text, parameters and the truth log, each on its own."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from servebench.core.errors import ShardError, SpecError
from servebench.sim.faults import FaultDraw, FaultRule, parse_fault
from servebench.sim.frames import DONE, Frames, Usage
from servebench.sim.metrics_text import EngineState, Histogram, SimMetrics, render_metrics
from servebench.sim.parameters import PRESETS, engine_parameters
from servebench.sim.truth import TruthDraft, TruthLog, read_truth
from servebench.sim.vocabulary import WORDS, answer_words

IDLE = EngineState(running=0, waiting=0, kv_cache_usage=0.0, prefix_queries=0, prefix_hits=0, preemptions=0)


def payload(frame: bytes) -> bytes:
    """Return the payload of one HTTP chunk, read by the rule of RFC 9112 section 7.1."""
    size, _, rest = frame.partition(b"\r\n")
    length = int(size, 16)
    assert rest[length:] == b"\r\n"
    return rest[:length]


def event(frame: bytes) -> dict[str, Any]:
    data = payload(frame)
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    decoded: dict[str, Any] = json.loads(data[6:])
    return decoded


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_every_word_makes_a_whole_chunk_that_carries_it(endpoint: Any) -> None:  # noqa: ANN401 - a Literal
    frames = Frames(endpoint, 'a "model" ü', "fp")
    opening = frames.opening("0123456789abcdef", 1_796_035_321)
    for word, head, tail in zip(WORDS, frames.heads, frames.tails, strict=True):
        choice = event(head + opening + tail)["choices"][0]
        assert (choice["delta"]["content"] if endpoint == "chat" else choice["text"]) == f" {word}"
        assert choice["finish_reason"] is None


def test_usage_adds_up() -> None:
    frames = Frames("chat", "tiny", "fp")
    data = event(frames.usage(frames.opening("0" * 16, 1_796_035_321), Usage(30, 12, 16)))
    assert data["choices"] == []
    assert data["usage"] == {
        "prompt_tokens": 30,
        "total_tokens": 42,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 16},
    }


def test_the_done_event_is_a_chunk() -> None:
    assert payload(DONE) == b"data: [DONE]\n\n"


def test_the_vocabulary_has_no_word_twice() -> None:
    assert max(Counter(WORDS).values()) == 1


def test_an_answer_may_run_past_the_end_of_the_vocabulary() -> None:
    assert answer_words(len(WORDS) - 1, 2) == [WORDS[-1], WORDS[0]]


def test_a_fault_is_written_as_kind_share_and_duration() -> None:
    assert parse_fault("http-503:0.25") == ("http-503", 0.25, 5_000_000_000)
    assert parse_fault("stall:1:250ms") == ("stall", 1.0, 250_000_000)


@pytest.mark.parametrize("text", ["cut", "cut:", "cut:two", "cut:1.5", "melt:0.1", "cut:0.1:3s", "stall:0.1:3"])
def test_a_wrong_fault_is_refused_and_named(text: str) -> None:
    with pytest.raises(SpecError, match=text):
        parse_fault(text)


def test_faults_that_add_up_to_more_than_all_requests_are_refused() -> None:
    with pytest.raises(SpecError, match="more than 1"):
        FaultDraw([FaultRule("cut", 0.6), FaultRule("stall", 0.6)], seed=0)


def drawn(seed: int, count: int) -> list[str | None]:
    draw = FaultDraw([FaultRule("cut", 0.2), FaultRule("error", 0.1)], seed)
    rules = [draw.next() for _ in range(count)]
    return [None if rule is None else rule.kind for rule in rules]


def test_faults_strike_the_same_requests_for_a_seed() -> None:
    assert drawn(4, 200) == drawn(4, 200)
    assert drawn(4, 200) != drawn(5, 200)


def test_faults_strike_their_share() -> None:
    counts = Counter(drawn(0, 10_000))
    # Standard deviations of the counts: 40 and 30; five of each.
    assert counts["cut"] == pytest.approx(2_000, abs=200)
    assert counts["error"] == pytest.approx(1_000, abs=150)


def test_without_rules_no_request_is_spoiled() -> None:
    assert FaultDraw([], seed=0).next() is None


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_the_metrics_text_is_read_by_prometheus_under_vllm_names() -> None:
    metrics = SimMetrics()
    metrics.generation_tokens = 281
    state = IDLE._replace(running=3, waiting=2, kv_cache_usage=0.25, prefix_queries=160, prefix_hits=32)
    labels = (("engine", "0"), ("model_name", 'od"d\\'))
    read = samples(render_metrics(metrics, state, 'od"d\\'))
    assert read["vllm:num_requests_running", labels] == 3
    assert read["vllm:num_requests_waiting", labels] == 2
    assert read["vllm:kv_cache_usage_perc", labels] == 0.25
    assert read["vllm:prefix_cache_queries_total", labels] == 160
    assert read["vllm:prefix_cache_hits_total", labels] == 32
    assert read["vllm:generation_tokens_total", labels] == 281


@given(st.lists(st.integers(0, 2_000), max_size=50))
def test_a_histogram_counts_each_value_in_all_buckets_that_hold_it(values: list[int]) -> None:
    histogram = Histogram((0.01, 0.1, 1), scale=1_000)
    for value in values:
        histogram.observe(value)
    text = "# TYPE x histogram\n" + "\n".join(histogram.lines("x", 'a="b"')) + "\n"
    read = samples(text.encode())
    for limit in (0.01, 0.1, 1.0):
        key = ("x_bucket", (("a", "b"), ("le", str(limit))))
        assert read[key] == sum(value <= limit * 1_000 for value in values)
    assert read["x_count", (("a", "b"),)] == len(values)
    assert read["x_sum", (("a", "b"),)] == pytest.approx(sum(values) / 1_000)


def test_every_preset_is_sound() -> None:
    assert {name: parameters.faults() for name, parameters in PRESETS.items()} == {name: [] for name in PRESETS}


def test_single_parameters_of_a_preset_can_be_replaced() -> None:
    changed = engine_parameters("demo", {"max_num_seqs": "8", "jitter": "0.5", "prefix_cache": "false"})
    assert (changed.max_num_seqs, changed.jitter, changed.prefix_cache) == (8, 0.5, False)
    assert changed.kv_blocks == PRESETS["demo"].kv_blocks


@pytest.mark.parametrize(
    ("preset", "changes", "words"),
    [
        ("huge", {}, ["huge", "demo", "fast"]),
        ("demo", {"seats": "8", "jitter": "much", "prefix_cache": "1"}, ["seats", "much", "true or false"]),
        ("demo", {"max_num_seqs": "0", "jitter": "-1"}, ["max_num_seqs", "jitter"]),
        ("demo", {"kv_blocks": "10"}, ["max_model_len", "10 blocks"]),
    ],
    ids=["preset", "names and values", "ranges", "combination"],
)
def test_wrong_parameters_are_refused_all_at_once(preset: str, changes: dict[str, str], words: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        engine_parameters(preset, changes)
    assert [word for word in words if word not in str(caught.value)] == []


def draft(seq: int) -> TruthDraft:
    return TruthDraft(seq=seq, request_id=None, path="/v1/completions", t_first_byte_ns=5, t_received_ns=6)


def test_the_truth_log_reads_back_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    log = TruthLog(path)
    first = draft(0)
    first.t_send_ns.extend([10, 2**62])
    first.status, first.completion_tokens, first.aborted = 200, 2, True
    log.add(first)
    log.add(draft(1))
    log.close()
    one, two = read_truth(path)
    assert (one.seq, one.t_send_ns, one.status, one.aborted) == (0, [10, 2**62], 200, True)
    assert (two.seq, two.t_send_ns, two.status, two.t_head_ns, two.aborted) == (1, [], None, None, False)


def test_a_truth_record_is_in_the_file_after_a_flush_and_a_line_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    log = TruthLog(path)
    log.add(draft(0))
    assert read_truth(path) == []
    log.flush()
    with path.open("ab") as file:
        file.write(b'{"seq":1,"requ')
    assert [record.seq for record in read_truth(path)] == [0]
    log.close()


def test_a_file_that_is_no_truth_log_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("hello\n")
    with pytest.raises(ShardError, match=r"other\.txt"):
        read_truth(path)
