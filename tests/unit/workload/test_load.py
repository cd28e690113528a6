"""A workload file is read strictly: every fault at once, each with its line, value and way out."""

from pathlib import Path

import pytest

from servebench.core.errors import InputError, SpecError
from servebench.workload.codec import decode_workload, encode_workload
from servebench.workload.load import load_workload, parse_workload
from servebench.workload.model import Workload
from servebench.workload.resolve import dump_yaml

GOOD = """\
name: chat
seed: 7
prompts:
  source: {kind: mt-bench}
load:
  kind: open
  phases:
    - {name: even, shape: steady, rate_per_s: 2, duration: 30s}
"""
CLOSED = "kind: closed\n  users: 4\n  requests: 10"


def faults_of(text: str) -> dict[str, tuple[int | None, str]]:
    with pytest.raises(SpecError) as caught:
        parse_workload(text, "chat.yaml")
    return {fault.place: (fault.line, fault.message) for fault in caught.value.faults}


def workload_with(old: str, new: str) -> Workload:
    assert old in GOOD
    return parse_workload(GOOD.replace(old, new), "chat.yaml")


def test_all_faults_of_a_file_come_together_with_lines_values_and_ways_out() -> None:
    text = """\
name: chat
prompts:
  source: {kind: mt-bench}
load:
  kind: open
  phases:
    - {name: a, shape: steady, rate_pers: 3, rate_per_s: 2, duration: 30s}
    - {name: b, shape: steady, rate_per_s: 3, duration: 4}
    - {name: c, shape: steady, rate_per_s: -3, duration: 4s}
objectives: {ttft: {p95: 0.8}}
"""
    with pytest.raises(SpecError) as caught:
        parse_workload(text, "chat.yaml")
    faults = [(fault.line, fault.place, fault.message) for fault in caught.value.faults]
    assert faults == [
        (7, "load.phases[0].rate_pers", "unknown key; did you mean rate_per_s?"),
        (8, "load.phases[1].duration", '"4" has no unit; e.g. 4s, 4m'),
        (9, "load.phases[2].rate_per_s", "-3 must be >= 0"),
        (10, "objectives.ttft.p95", '"0.8" has no unit; e.g. 0.8s, 0.8m'),
    ]
    assert str(caught.value).startswith("chat.yaml has 4 faults\n")
    assert "servebench schema" in str(caught.value)
    assert caught.value.exit_code == 2


def test_exact_lengths_need_a_length_that_is_asked_for() -> None:
    assert list(faults_of(GOOD.replace("seed: 7", "requests: {lengths: exact}"))) == ["requests.lengths"]
    limited = GOOD.replace("load:", "  output_tokens: {from: fixed, tokens: 9}\nload:", 1)
    read = parse_workload(limited.replace("seed: 7", "requests: {lengths: exact}"), "w.yaml")
    assert read.requests.lengths == "exact"


def test_closed_users_live_through_conversations_but_not_those_of_a_trace() -> None:
    open_load = "kind: open\n  phases:\n    - {name: even, shape: steady, rate_per_s: 2, duration: 30s}"
    talk = "conversation: {turns: {from: fixed, count: 3}, think_time: 2s}"
    closed = GOOD.replace("load:", f"  {talk}\nload:").replace(open_load, CLOSED)
    assert parse_workload(closed, "w.yaml").prompts.conversation is not None
    faults = faults_of(closed.replace(talk, "conversation: {turns: {from: trace}}"))
    assert list(faults) == ["prompts.conversation.turns.from"]
    assert "needs load.kind: replay" in faults["prompts.conversation.turns.from"][1]


def test_the_words_that_there_are_stand_beside_an_unknown_one() -> None:
    faults = faults_of(GOOD.replace("shape: steady", "shape: stedy"))
    assert faults["load.phases[0].shape"] == (8, '"stedy" is not known; did you mean steady?')


def test_a_missing_key_has_the_line_of_what_it_is_missing_in() -> None:
    faults = faults_of(GOOD.replace(", duration: 30s", "").replace("name: chat\n", ""))
    assert faults == {"load.phases[0].duration": (7, "missing"), "name": (1, "missing")}


@pytest.mark.parametrize(
    ("phase", "place", "word"),
    [
        ("{name: all, shape: steady, rate_per_s: 2, duration: 30s}", "name", "reserved"),
        ("{name: Über, shape: steady, rate_per_s: 2, duration: 30s}", "name", "lower-case"),
        ("{name: a, shape: steady, rate_per_s: .inf, duration: 30s}", "rate_per_s", "number"),
        ("{name: a, shape: steady, rate_per_s: 2, duration: 0s}", "duration", "longer than 0"),
        ("{name: a, shape: steady, rate_per_s: 2, duration: 99999d}", "duration", "366d"),
        ("{name: a, shape: steps, rates_per_s: [], duration: 3s}", "rates_per_s", "empty"),
        (
            "{name: a, shape: burst, base_per_s: 1, peak_per_s: 2, every: 9s, length: 9s, duration: 30s}",
            "length",
            "every",
        ),
        (
            "{name: a, shape: burst, base_per_s: 1, peak_per_s: 2, every: 9s, length: 1s, duration: 8s}",
            "duration",
            "period",
        ),
        ("{name: a, shape: replay, trace: {kind: azure}, length: 1m, speed: 0}", "speed", "> 0"),
        ("{name: a, shape: replay, trace: {kind: azure}, length: 1m, speed: -1}", "speed", "> 0"),
        ("{name: a, shape: replay, trace: {kind: azure}, start: 2h}", "start", "ends at"),
    ],
)
def test_a_phase_that_cannot_be_is_refused_at_its_key(phase: str, place: str, word: str) -> None:
    text = GOOD.replace("{name: even, shape: steady, rate_per_s: 2, duration: 30s}", phase)
    faults = faults_of(text)
    assert list(faults) == [f"load.phases[0].{place}"]
    assert word in faults[f"load.phases[0].{place}"][1]


def test_steps_take_one_of_two_durations() -> None:
    both = "shape: steps, rates_per_s: [1, 2], duration: 4m, step_duration: 2m"
    faults = faults_of(GOOD.replace("shape: steady, rate_per_s: 2, duration: 30s", both))
    assert "exactly one" in faults["load.phases[0]"][1]


def test_phases_of_one_name_are_refused() -> None:
    again = "    - {name: even, shape: steady, rate_per_s: 2, duration: 30s}\n"
    assert faults_of(GOOD + again)["load.phases[1].name"] == (9, '"even" is the name of an earlier phase')


def test_kind_replay_refuses_phases_that_replay_nothing() -> None:
    assert "kind: open" in faults_of(GOOD.replace("kind: open", "kind: replay"))["load.phases[0].shape"][1]


def test_lengths_from_a_trace_need_one() -> None:
    faults = faults_of(GOOD.replace("load:", "  output_tokens: {from: trace}\nload:"))
    assert list(faults) == ["prompts.output_tokens"]


def test_files_that_are_not_there_are_faults(tmp_path: Path) -> None:
    text = GOOD.replace("kind: mt-bench", "kind: jsonl, path: mine.jsonl").replace(
        "shape: steady, rate_per_s: 2, duration: 30s", "shape: replay, trace: {kind: azure, path: 'builtin:nope'}"
    )
    path = tmp_path / "w.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_workload(path)
    messages = {fault.place: fault.message for fault in caught.value.faults}
    assert messages["prompts.source.path"] == f"there is no file {tmp_path / 'mine.jsonl'}"
    assert "not shipped" in messages["load.phases[0].trace.path"]


def test_relative_paths_are_those_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"prompt": "x"}\n', encoding="utf-8")
    path = tmp_path / "w.yaml"
    path.write_text(GOOD.replace("kind: mt-bench", "kind: jsonl, path: mine.jsonl"), encoding="utf-8")
    assert load_workload(path).prompts.sources[0].path == str(tmp_path / "mine.jsonl")


def test_words_that_yaml_1_1_turns_into_something_else_are_faults() -> None:
    text = GOOD.replace("seed: 7", "seed: 0123\nrequests: {stream: on, timeouts: {total: 1:30}}")
    assert faults_of(text) == {
        "seed": (2, '"0123" is not a whole number'),
        "requests.stream": (3, '"on" is not true or false'),
        "requests.timeouts.total": (3, '"1:30" is no duration; e.g. 30s, 1h30m, 250ms'),
    }


def test_an_exponent_is_a_number() -> None:
    assert workload_with("rate_per_s: 2", "rate_per_s: 1e3").phases[0].segments[0].from_per_s == 1000


def test_declared_versions_stay_as_written() -> None:
    declared = workload_with("seed: 7", "target: {declared: {engine: 1.10, cores: 8, rev: 1e3}}").target.declared
    assert declared == {"engine": "1.10", "cores": "8", "rev": "1e3"}


def test_parameters_that_are_ours_or_no_plain_values_are_refused() -> None:
    faults = faults_of(GOOD + "requests: {params: {temperature: 0, stop: [1e999]}}\n")
    assert list(faults) == ["requests.params.stop"]
    assert list(faults_of(GOOD + "requests: {params: {temperature: 0, max_tokens: 3}}\n")) == [
        "requests.params.max_tokens"
    ]


def test_duplicate_keys_are_faults_that_name_both_lines() -> None:
    assert faults_of(GOOD + "seed: 8\n")["seed"] == (2, "duplicate key: again in line 9, first in line 2")


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [touch pwned]", "!!binary aGk=", "!mine 3"])
def test_a_tag_that_builds_something_is_refused_by_line(tag: str) -> None:
    line, message = faults_of(GOOD + f"target: {{model: {tag}}}\n")["target.model"]
    assert line == 9
    assert "not allowed" in message
    assert not Path("pwned").exists()


def test_aliases_that_unfold_without_end_are_refused() -> None:
    levels = "\n".join(
        f"a{level}: &a{level} [{','.join(['x' if level == 0 else f'*a{level - 1}'] * 9)}]" for level in range(10)
    )
    with pytest.raises(SpecError, match="aliases"):
        parse_workload(levels, "bomb.yaml")
    with pytest.raises(SpecError, match="aliases"):
        parse_workload("a: &a [*a]", "loop.yaml")


def test_a_shared_value_may_be_named_once_and_used_twice() -> None:
    text = GOOD + "objectives: {ttft: &limit {p95: 1s}, e2e: *limit}\n"
    assert [objective.metric for objective in parse_workload(text, "chat.yaml").objectives] == ["ttft", "e2e"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("- a\n- b\n", "mapping"),
        ("just words", "mapping"),
        ("a: [1, 2", "line 1"),
        ("a: b: c", "line 1"),
        ("a: 1\n---\nb: 2\n", "document"),
        ("a: \x07", "YAML"),
        ("[" * 5000, "deeply"),
    ],
)
def test_what_is_no_workload_at_all_is_one_clear_fault(text: str, word: str) -> None:
    with pytest.raises(SpecError, match=word) as caught:
        parse_workload(text, "chat.yaml")
    assert len(caught.value.faults) == 1


def test_a_file_that_is_not_utf_8_is_told_by_offset(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_bytes(b"name: x\nseed: caf\xe9\n")
    with pytest.raises(SpecError, match=r"line 2 .*0xe9 at offset 17"):
        load_workload(path)


def test_a_folder_and_a_missing_file_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        load_workload(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        load_workload(tmp_path / "none.yaml")


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match="at most"):
        load_workload(path)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_workload(path).name == "chat"


def test_parameters_may_be_lists_and_mappings_and_reach_the_workers_as_json() -> None:
    tools = "[{type: function, function: {name: weather, parameters: {type: object, maximum: 2.5}}}]"
    workload = parse_workload(GOOD + f"requests: {{params: {{temperature: 0.7, tools: {tools}}}}}\n", "w.yaml")
    assert decode_workload(encode_workload(workload)).requests.params == {
        "temperature": 0.7,
        "tools": [
            {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "maximum": 2.5}}}
        ],
    }
    assert parse_workload(dump_yaml(workload), "again.yaml") == workload
