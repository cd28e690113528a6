"""Know each kind of check: what an answer must be to pass, and the words for why it did not.

A rule returns None for an answer that passes, else the reason in a few words that begin with the kind of check and hold
no text of the answer, so that reasons can be counted. What a user's own function raises passes through.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs

from servebench.acceptance.given import Given
from servebench.acceptance.own import CheckFault, own_rule
from servebench.acceptance.texts import is_repeating, last_number, read_json, unfenced
from servebench.core.records import ToolCall
from servebench.workload.checks import Bounds, Check, Flaw

Rule = Callable[[Given], str | None]

CUT_REASONS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"})
"""Finish reasons, in lower case, by which servers say that a limit of tokens cut the answer."""
_BACKTRACKS = 100_000


class _Refusal(Exception):  # noqa: N818 - no error: the answer does not pass
    """Carry a reason out of a nested step."""


def flaw_of(given: Given, allowed: frozenset[Flaw]) -> str | None:
    """Return empty, truncated or repeating for an answer that is so and may not be; None for any other."""
    if "empty" not in allowed and not given.text.strip() and not given.tools:
        return "empty"
    if "truncated" not in allowed and (given.finish_reason or "").lower() in CUT_REASONS:
        return "truncated"
    return "repeating" if "repeating" not in allowed and is_repeating(given.text) else None


def rule_of(check: Check) -> Rule:
    """Return the rule of a check that `read_check` completed.

    Raises ValueError for a schema that is none, and InputError for a function that cannot be loaded.
    """
    return _RULES[check.kind](check)


def _json(check: Check) -> Rule:
    def rule(given: Given) -> str | None:
        return _refused(_parsed, given.text, check.json == "fenced")

    return rule


def _json_schema(check: Check) -> Rule:
    find = _finder(check.json_schema, "json_schema")

    def rule(given: Given) -> str | None:
        return _refused(lambda: find(_parsed(given.text, check.fenced is True)))

    return rule


def _regex(check: Check) -> Rule:
    pattern = re.compile(check.regex or "")
    return lambda given: None if pattern.search(given.text) else "regex: not found"


def _contains(check: Check) -> Rule:
    wanted = _folded(check.contains, check)

    def rule(given: Given) -> str | None:
        text = given.text.casefold() if check.ignore_case else given.text
        missing = next((place for place, part in enumerate(wanted) if part not in text), None)
        return None if missing is None else f"contains: text {missing + 1} of {len(wanted)} is missing"

    return rule


def _forbids(check: Check) -> Rule:
    unwanted = _folded(check.forbids, check)

    def rule(given: Given) -> str | None:
        text = given.text.casefold() if check.ignore_case else given.text
        found = next((place for place, part in enumerate(unwanted) if part in text), None)
        return None if found is None else f"forbids: text {found + 1} of {len(unwanted)} is there"

    return rule


def _exact(check: Check) -> Rule:
    (wanted,) = _folded(((check.exact or "").strip(),), check)

    def rule(given: Given) -> str | None:
        text = given.text.strip()
        return None if (text.casefold() if check.ignore_case else text) == wanted else "exact: another text"

    return rule


def _number(check: Check) -> Rule:
    wanted = check.number or 0.0
    room = max(check.tolerance or 0.0, (check.relative or 0.0) * abs(wanted))

    def rule(given: Given) -> str | None:
        found = last_number(given.text)
        if found is None:
            return "number: none is there"
        return None if abs(found - wanted) <= room else "number: another one"

    return rule


def _chars(check: Check) -> Rule:
    return lambda given: _outside("chars", len(given.text), check.chars or Bounds())


def _tokens(check: Check) -> Rule:
    def rule(given: Given) -> str | None:
        if given.tokens is None:
            msg = "nobody counted the answer's tokens; give --tokenizer, or a server that reports usage"
            raise CheckFault(msg)
        return _outside("tokens", given.tokens, check.tokens or Bounds())

    return rule


def _finish_reason(check: Check) -> Rule:
    def rule(given: Given) -> str | None:
        if given.finish_reason in (check.finish_reason or ()):
            return None
        return f"finish_reason: {(given.finish_reason or 'none was given')[:40]}"

    return rule


def _tool_call(check: Check) -> Rule:
    """Return the rule that one call of the tool is there and every such call has right arguments."""
    find = _finder(check.schema, "tool_call")

    def rule(given: Given) -> str | None:
        calls = [call for call in given.tools if check.tool_call in ("any", call.name)]
        if not calls:
            return "tool_call: another tool" if given.tools else "tool_call: none"
        reasons = (_refused(_check_arguments, find, call) for call in calls)
        return next((reason for reason in reasons if reason is not None), None)

    return rule


def _check_arguments(find: Callable[[object], None], call: ToolCall) -> None:
    try:
        value = read_json(call.arguments or "{}")
    except ValueError:
        raise _Refusal("tool_call: the arguments are no JSON") from None
    if not isinstance(value, dict):
        raise _Refusal("tool_call: the arguments are no JSON object")
    find(value)


def _python(check: Check) -> Rule:
    return own_rule(check.python or "", check.arguments or {})


_RULES: Mapping[str, Callable[[Check], Rule]] = {
    "json": _json,
    "json_schema": _json_schema,
    "regex": _regex,
    "contains": _contains,
    "forbids": _forbids,
    "exact": _exact,
    "number": _number,
    "chars": _chars,
    "tokens": _tokens,
    "finish_reason": _finish_reason,
    "tool_call": _tool_call,
    "python": _python,
}


def _refused(step: Callable[..., object], *arguments: object) -> str | None:
    try:
        step(*arguments)
    except _Refusal as refusal:
        return str(refusal)
    return None


def _parsed(text: str, fenced: bool) -> object:
    try:
        return read_json(unfenced(text) if fenced else text)
    except ValueError:
        raise _Refusal("json: the text is no JSON") from None


def _finder(schema: dict[str, Any] | bool | str | None, kind: str) -> Callable[[object], None]:
    """Return what raises _Refusal for a value that breaks the schema. Nothing is fetched, whatever it refers to.

    Raises ValueError for a schema that is none.
    """
    try:
        # Backtracking is bounded, so that no pattern of a schema can hold the process.
        validator = jsonschema_rs.validator_for(
            True if schema is None else schema,
            retriever=_nothing_is_fetched,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        msg = f"{kind}: the schema is none: {str(error).splitlines()[0]}"
        raise ValueError(msg) from None

    def find(value: object) -> None:
        error = next(iter(validator.iter_errors(value)), None)
        if error is not None:
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.schema_path)
            raise _Refusal(f"{kind}: breaks {place.removeprefix('.')[:120] or 'it'}")

    return find


def _nothing_is_fetched(uri: str) -> Any:  # noqa: ANN401 - the form of the library
    msg = f"{uri} lies outside the schema, and nothing is fetched"
    raise ValueError(msg)


def _folded(texts: tuple[str, ...] | str | None, check: Check) -> tuple[str, ...]:
    found = (texts,) if isinstance(texts, str) else texts or ()
    return tuple(text.casefold() for text in found) if check.ignore_case else found


def _outside(name: str, length: int, bounds: Bounds) -> str | None:
    if bounds.min is not None and length < bounds.min:
        return f"{name}: below {bounds.min}"
    return f"{name}: above {bounds.max}" if bounds.max is not None and length > bounds.max else None
