"""Each kind of check holds what its name claims; what cannot be told is not called refused."""

from pathlib import Path
from typing import Any

import pytest

from servebench.acceptance.given import Given, Verdict
from servebench.acceptance.judge import Judge
from servebench.core.errors import SpecError
from servebench.core.records import ToolCall
from servebench.workload.checks import checks_json, read_check

NOWHERE = Path("/nonexistent")
WEATHER = {
    "type": "object",
    "required": ["city"],
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}


def judge(*items: dict[str, Any], folder: Path = NOWHERE) -> Judge:
    return Judge([read_check(item, folder) for item in items])


def verdict(item: dict[str, Any], text: str = "", **rest: Any) -> Verdict:  # noqa: ANN401 - fields of Given
    return judge(item).verdict(Given(text=text, **rest))


PASSED, OPEN = (True, None), None
ROWS: list[tuple[dict[str, Any], str, str | None]] = [
    ({"json": "strict"}, '{"a": [1, 2.5e3, null]}', None),
    ({"json": "strict"}, '```json\n{"a": 1}\n```', "json: the text is no JSON"),
    ({"json": "strict"}, '{"a": NaN}', "json: the text is no JSON"),
    ({"json": "strict"}, '{"a": 1} thanks', "json: the text is no JSON"),
    ({"json": "strict"}, '{"a": 1', "json: the text is no JSON"),
    ({"json": "fenced"}, '```json\n{"a": 1}\n```\n', None),
    ({"json": "fenced"}, '{"a": 1}', None),
    ({"json": "fenced"}, 'Here: ```json\n{"a": 1}\n```', "json: the text is no JSON"),
    ({"json_schema": WEATHER}, '{"city": "Rome", "days": 2}', None),
    ({"json_schema": WEATHER}, '{"city": "Rome", "days": 0}', "json_schema: breaks properties.days.minimum"),
    ({"json_schema": WEATHER}, '{"days": 1}', "json_schema: breaks required"),
    ({"json_schema": WEATHER}, "Rome", "json: the text is no JSON"),
    ({"json_schema": WEATHER, "fenced": True}, '```\n{"city": "Rome"}\n```', None),
    ({"json_schema": False}, "1", "json_schema: breaks it"),
    ({"regex": r"^\d{4}-\d\d$"}, "2026-11", None),
    ({"regex": r"(?m)^done\.$"}, "so\ndone.\nyes", None),
    ({"regex": r"^\d+$"}, "no", "regex: not found"),
    ({"contains": "Paris"}, "It is Paris.", None),
    ({"contains": ["Paris", "France"]}, "It is Paris.", "contains: text 2 of 2 is missing"),
    ({"contains": "STRASSE", "ignore_case": True}, "die Straße", None),
    ({"forbids": ["cannot", "sorry"]}, "Here you are.", None),
    ({"forbids": ["cannot", "sorry"]}, "I am sorry.", "forbids: text 2 of 2 is there"),
    ({"exact": "42"}, " 42\n", None),
    ({"exact": "Yes", "ignore_case": True}, "yes", None),
    ({"exact": "42"}, "42.", "exact: another text"),
    ({"number": 1234.5}, "Total: $1,234.50.", None),
    ({"number": -3}, "from 7 down to -3", None),
    ({"number": 5}, "pages 3-5", None),
    ({"number": 100, "tolerance": 2}, "about 98", None),
    ({"number": 100, "relative": 0.01}, "about 98", "number: another one"),
    ({"number": 1000}, "1e3", None),
    ({"number": 0}, "none", "number: none is there"),
    ({"chars": {"min": 3, "max": 5}}, "four", None),
    ({"chars": {"min": 3}}, "äö", "chars: below 3"),
    ({"chars": {"max": 5}}, "longer", "chars: above 5"),
]


@pytest.mark.parametrize(("item", "text", "reason"), ROWS, ids=[f"{row[0]}-{row[1][:20]}" for row in ROWS])
def test_a_text_passes_its_check_or_the_reason_is_named(item: dict[str, Any], text: str, reason: str | None) -> None:
    assert verdict(item, text) == Verdict(accepted=reason is None, reason=reason)


def test_json_that_is_nested_without_end_is_none() -> None:
    deep = judge({"json": "strict"}, {"allow": ["repeating"]})
    assert deep.verdict(Given(text="[" * 100_000)).reason == "json: the text is no JSON"


def test_tokens_and_finish_reason_are_those_of_the_answer() -> None:
    assert verdict({"tokens": {"max": 10}}, "a", tokens=10).accepted
    assert verdict({"tokens": {"max": 10}}, "a", tokens=11).reason == "tokens: above 10"
    assert verdict({"finish_reason": ["stop", "tool_calls"]}, "a", finish_reason="stop").accepted
    assert (
        verdict({"finish_reason": "stop"}, "a", finish_reason="content_filter").reason
        == "finish_reason: content_filter"
    )
    assert verdict({"finish_reason": "stop"}, "a").reason == "finish_reason: none was given"


def test_a_length_in_tokens_that_nobody_counted_is_left_open() -> None:
    found = verdict({"tokens": {"max": 10}}, "a")
    assert found.accepted is None
    assert found.reason is not None
    assert found.reason.startswith("not checked: CheckFault: nobody counted")


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([("weather", '{"city": "Rome"}')], None),
        ([("weather", '{"city": "Rome"}'), ("time", "{}")], None),
        ([], "tool_call: none"),
        ([("time", "{}")], "tool_call: another tool"),
        ([("weather", '{"city": "Ro')], "tool_call: the arguments are no JSON"),
        ([("weather", "[]")], "tool_call: the arguments are no JSON object"),
        ([("weather", "")], "tool_call: breaks required"),
        ([("weather", '{"city": 5}')], "tool_call: breaks properties.city.type"),
        ([("weather", '{"city": "Rome"}'), ("weather", '{"city": 5}')], "tool_call: breaks properties.city.type"),
    ],
)
def test_a_tool_is_called_with_right_arguments_or_the_reason_is_named(
    calls: list[tuple[str, str]], reason: str | None
) -> None:
    found = judge({"tool_call": "weather", "schema": WEATHER}, {"allow": ["empty"]}).verdict(
        Given(text="", tools=tuple(ToolCall(*call) for call in calls))
    )
    assert found == Verdict(accepted=reason is None, reason=reason)


def test_any_tool_will_do_where_that_is_asked() -> None:
    assert verdict({"tool_call": "any"}, tools=(ToolCall("time", "{}"),)).accepted


@pytest.mark.parametrize(
    ("given", "flaw"),
    [
        (Given(text=" \n\t"), "empty"),
        (Given(text="", tools=(ToolCall("time", "{}"),)), None),
        (Given(text="Once upon", finish_reason="length"), "truncated"),
        (Given(text="Once upon", finish_reason="MAX_TOKENS"), "truncated"),
        (Given(text="Once upon", finish_reason="stop"), None),
        (Given(text="Well. " + "I do not know. " * 20), "repeating"),
        (Given(text="ha" * 100), "repeating"),
        (Given(text="ha" * 99), None),
    ],
)
def test_empty_cut_and_looping_answers_are_recognised_whatever_is_asked(given: Given, flaw: str | None) -> None:
    assert judge({"chars": {"min": 0}}).verdict(given).reason == flaw
    if flaw is not None:
        assert judge({"chars": {"min": 0}}, {"allow": [flaw]}).verdict(given).accepted


def test_all_checks_must_hold_and_the_first_that_does_not_is_the_reason() -> None:
    both = judge({"contains": "a"}, {"forbids": "b"})
    assert both.verdict(Given(text="a")).accepted
    assert both.verdict(Given(text="ab")).reason == "forbids: text 1 of 1 is there"
    assert both.verdict(Given(text="b")).reason == "contains: text 1 of 1 is missing"


def test_the_checks_of_a_prompt_come_on_top_of_the_runs() -> None:
    run = judge({"forbids": "sorry"})
    own = checks_json((read_check({"exact": "42"}, NOWHERE), read_check({"allow": ["truncated"]}, NOWHERE)))
    assert run.verdict(Given(text="42", finish_reason="length"), own).accepted
    assert run.verdict(Given(text="41"), own).reason == "exact: another text"
    assert run.verdict(Given(text="41")).accepted
    assert run.verdict(Given(text="sorry 42"), own).reason == "forbids: text 1 of 1 is there"


def test_a_schema_that_is_none_is_refused_and_nothing_is_fetched() -> None:
    for schema in ({"type": "strin"}, {"$ref": "http://127.0.0.1:9/schema.json"}, {"pattern": "("}):
        with pytest.raises(SpecError, match=r"accept\[0\]  json_schema: the schema is none"):
            judge({"json_schema": schema})


def test_a_pattern_of_a_schema_that_backtracks_without_end_is_bounded() -> None:
    found = verdict({"json_schema": {"pattern": "^(?=(a+)+$)x|^(?!x)(a|aa)+$"}}, '"' + "a" * 60 + '!"')
    assert found.accepted is False


OWN = """
import helper

def polite(answer, word="please"):
    return word in answer.text or f"no {word} in {len(answer.text)}  characters"

def strict(answer):
    return answer.text == helper.WANTED

def odd(answer):
    return 1

def broken(answer):
    raise KeyError("lost")

def exits(answer):
    raise SystemExit(3)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checks.py").write_text(OWN)
    (tmp_path / "helper.py").write_text("WANTED = 'x'\n")
    return tmp_path


@pytest.mark.parametrize(
    ("item", "text", "expected"),
    [
        ({"python": "checks:polite"}, "please", (True, None)),
        ({"python": "checks:polite"}, "do it", (False, "python: no please in 5 characters")),
        ({"python": "checks.py:polite", "arguments": {"word": "do"}}, "do it", (True, None)),
        ({"python": "checks:strict"}, "y", (False, "python: strict")),
        (
            {"python": "checks:odd"},
            "y",
            (None, "not checked: CheckFault: odd returned int; True, False or a text is wanted"),
        ),
        ({"python": "checks:broken"}, "y", (None, "not checked: KeyError: 'lost'")),
        (
            {"python": "checks:polite", "arguments": {"tone": 1}},
            "y",
            (None, "not checked: TypeError: polite() got an unexpected keyword argument 'tone'"),
        ),
    ],
)
def test_a_users_function_decides_and_its_own_faults_are_named_and_refuse_nothing(
    folder: Path, item: dict[str, Any], text: str, expected: tuple[bool | None, str | None]
) -> None:
    found = judge(item, folder=folder).verdict(Given(text=text))
    assert (found.accepted, found.reason) == expected


def test_a_users_file_that_cannot_be_loaded_is_a_fault_of_the_workload(folder: Path) -> None:
    (folder / "checks.py").write_text("import nothing_of_this_name\ndef polite(answer): return True\n")
    with pytest.raises(SpecError, match="ModuleNotFoundError: No module named 'nothing_of_this_name'"):
        judge({"python": "checks:polite"}, folder=folder)
