"""A check is read strictly, and is complete in itself once read."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from servebench.core.errors import SpecError
from servebench.workload.checks import Check, check_json_schema, checks_json, checks_of, read_check
from servebench.workload.codec import decode_workload, encode_workload
from servebench.workload.load import parse_workload
from servebench.workload.model import Objective
from servebench.workload.prompts import PromptSet
from servebench.workload.resolve import dump_yaml

HERE = Path("/nonexistent")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("json", "a mapping such as {contains: text} is wanted"),
        ({}, "names no check; one of json, json_schema"),
        ({"contain": "x"}, "names no check"),
        ({"json": "strict", "regex": "x"}, "json and regex are checks of their own"),
        ({"regex": "x", "fenced": True}, "fenced: unknown key beside regex; it stands alone"),
        ({"number": 1, "tolerence": 2}, "tolerence: unknown key beside number; there are: relative, tolerance"),
        ({"regex": "("}, "regex: missing ), unterminated subpattern"),
        ({"regex": None}, "regex: is empty"),
        ({"regex": 5}, "regex: expected `str | null`, got `int`"),
        ({"contains": []}, "contains: is empty"),
        ({"contains": ["a", ""]}, "contains: is empty"),
        ({"json": "loose"}, "json: invalid enum value 'loose'"),
        ({"chars": {}}, "chars: min or max is wanted"),
        ({"chars": {"min": 5, "max": 4}}, "chars: min 5 is above max 4"),
        ({"tokens": {"max": -1}}, "tokens: must be >= 0"),
        ({"number": 1, "tolerance": -1}, "tolerance: -1 must be >= 0"),
        ({"time_limit": "5"}, '"5" has no unit'),
        ({"time_limit": "0s"}, "must be longer than 0"),
        ({"allow": ["wrong"]}, "allow[0]: invalid enum value 'wrong'"),
        ({"json_schema": "missing.json"}, "cannot read the schema /nonexistent/missing.json: No such file"),
        ({"python": "polite"}, '"polite" is no function; module:function'),
        ({"python": "checks:polite"}, "cannot read /nonexistent/checks.py: No such file"),
    ],
)
def test_what_is_no_check_is_refused_with_its_key_and_the_way_out(item: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at below
        read_check(item, HERE)
    assert message in str(caught.value)


def test_schemas_are_taken_in_and_functions_are_named_by_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text('{"type": "object"}')
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "checks.py").write_text("def polite(answer): return True\n")
    assert read_check({"json_schema": "answer.json"}, tmp_path).json_schema == {"type": "object"}
    assert read_check({"tool_call": "any", "schema": "answer.json"}, tmp_path).schema == {"type": "object"}
    named = read_check({"python": "own.checks:polite"}, tmp_path)
    assert named.python == f"{tmp_path}/own/checks.py:polite"
    assert read_check({"python": named.python}, HERE) == named
    with pytest.raises(ValueError, match="has no function rude"):
        read_check({"python": "own.checks:rude"}, tmp_path)
    (tmp_path / "broken.py").write_text("def polite(:\n")
    with pytest.raises(ValueError, match="is no Python"):
        read_check({"python": "broken:polite"}, tmp_path)
    for text, fault in (("[]", "is no JSON object"), ("{", "is no JSON: "), (" " * 1_000_001, "is longer than")):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match=fault):
            read_check({"json_schema": "bad.json"}, tmp_path)


CHECKS: list[dict[str, Any]] = [
    {"json": "fenced"},
    {"json_schema": {"type": "object"}, "fenced": True},
    {"contains": ["a", "b"], "ignore_case": True},
    {"number": 0, "tolerance": 0.5},
    {"chars": {"max": 9}},
    {"finish_reason": ["stop"]},
    {"tool_call": "any"},
    {"allow": ["truncated"]},
    {"time_limit": "5s"},
]


def test_checks_come_back_from_their_json_as_they_were() -> None:
    checks = tuple(read_check(item, HERE) for item in CHECKS)
    assert checks_of(checks_json(checks)) == checks
    assert json.loads(checks_json(checks)) == CHECKS


def test_one_text_is_a_list_of_one() -> None:
    assert read_check({"contains": "a"}, HERE) == Check(contains=("a",))


def test_the_json_schema_for_editors_takes_what_is_read_and_refuses_an_unknown_key() -> None:
    validator = jsonschema_rs.validator_for(check_json_schema())
    assert all(validator.is_valid(item) for item in CHECKS)
    assert not validator.is_valid({"contain": "x"})


GOOD = """\
name: chat
prompts:
  source: {kind: jsonl, path: prompts.jsonl}
load: {kind: open, phases: [{name: even, shape: steady, rate_per_s: 2, duration: 30s}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines: list[dict[str, Any]] = [
        {"prompt": "What is 6 times 7?", "accept": [{"number": 42}]},
        {"prompt": "Say hello."},
        {"prompt": "Weather?", "accept": [{"tool_call": "weather", "schema": "weather.json"}, {"allow": ["empty"]}]},
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "weather.json").write_text('{"required": ["city"]}')
    return tmp_path


def test_a_workload_and_its_prompts_say_what_an_answer_must_be(folder: Path) -> None:
    text = GOOD + "accept:\n  - json_schema: weather.json\n  - {number: 1.5, relative: 0.01}\n"
    workload = parse_workload(text, "w.yaml", folder)
    assert workload.accept == (
        Check(json_schema={"required": ["city"]}),
        Check(number=1.5, relative=0.01),
    )
    prompts = PromptSet.load(workload.prompts)
    assert [prompts.checks(number) for number in range(3)] == [
        b'[{"number":42.0}]',
        b"",
        b'[{"tool_call":"weather","schema":{"required":["city"]}},{"allow":["empty"]}]',
    ]
    assert prompts.has_checks
    assert decode_workload(encode_workload(workload)) == workload
    assert parse_workload(dump_yaml(workload), "again.yaml", HERE) == workload


def test_without_checks_nothing_is_asked(folder: Path) -> None:
    assert parse_workload(GOOD, "w.yaml", folder).accept == ()
    assert not PromptSet.of(["one"], "filler text").has_checks


def test_faults_of_checks_are_told_with_their_lines(folder: Path) -> None:
    text = GOOD + 'accept:\n  - contain: x\n  - regex: "("\n  - contains: ok\n'
    with pytest.raises(SpecError) as caught:
        parse_workload(text, "w.yaml", folder)
    assert [(fault.line, fault.place) for fault in caught.value.faults] == [(6, "accept[0]"), (7, "accept[1]")]
    text = GOOD + "accept:\n  - json_schema: missing.json\n  - json_schema: {type: strin}\n"
    with pytest.raises(SpecError) as caught:
        parse_workload(text, "w.yaml", folder)
    assert [str(fault).partition(":")[0] for fault in caught.value.faults] == [
        f"line 6  accept[0]  cannot read the schema {folder}/missing.json",
        "line 7  accept[1]  json_schema is no JSON Schema",
    ]


def test_a_fault_in_a_prompts_checks_is_told_with_its_line(folder: Path) -> None:
    (folder / "prompts.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b", "accept": [{"number": "7"}]}\n')
    prompts = parse_workload(GOOD, "w.yaml", folder).prompts
    with pytest.raises(SpecError) as caught:
        PromptSet.load(prompts)
    assert [(fault.line, fault.place) for fault in caught.value.faults] == [(2, "accept[0]")]


def test_shares_have_lower_limits(folder: Path) -> None:
    workload = parse_workload(GOOD + "objectives: {accepted_share: {min: 99%}}\n", "w.yaml", folder)
    assert workload.objectives == (Objective(metric="accepted_share", quantile=None, limit=0.99, at_least=True),)
    assert parse_workload(dump_yaml(workload), "again.yaml", HERE) == workload
