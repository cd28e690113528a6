"""Know what may be asked of an answer: the checks of a workload and of a prompt, as files write them and runs use them.

One form serves both, so that a check reads the same wherever it stands. Only msgspec here: workers read prompt files.
"""

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from servebench.core.units import NS_PER_S, parse_duration_ns

Flaw = Literal["empty", "truncated", "repeating"]
"""What is wrong with an answer whatever was asked: no text, cut at the limit of tokens, caught in a loop."""

MAX_SCHEMA_BYTES = 1_000_000
DEFAULT_LIMIT_NS = NS_PER_S


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A range with its ends; None = open."""

    min: int | None = None
    max: int | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that is asked of an answer: exactly one of KINDS is set, beside the keys that go with it.

    json: the text parses; `fenced` takes a Markdown fence off first. json_schema: it also is what the schema says.
    regex: found anywhere in the text. contains: all of the texts are there; forbids: none of them. exact: the text
    without blanks around it. number: the last number of the text, within `tolerance` or `relative` (a share of 1).
    chars and tokens: how long. finish_reason: one of these. tool_call: the tool of this name (`any`: whichever) is
    called, with arguments that are what `schema` says. python: `FILE:FUNCTION`, called with the answer and
    `arguments`. allow: flaws that are no fault here. time_limit: of all checks of one answer together.
    """

    json: Literal["strict", "fenced"] | None = None
    json_schema: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    contains: tuple[str, ...] | str | None = None
    forbids: tuple[str, ...] | str | None = None
    exact: str | None = None
    number: float | None = None
    chars: Bounds | None = None
    tokens: Bounds | None = None
    finish_reason: tuple[str, ...] | str | None = None
    tool_call: str | None = None
    python: str | None = None
    allow: tuple[Flaw, ...] | None = None
    time_limit: str | None = None
    fenced: bool | None = None
    ignore_case: bool | None = None
    tolerance: float | None = None
    relative: float | None = None
    schema: dict[str, Any] | bool | str | None = None
    arguments: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        """Return which of KINDS it is."""
        return next(name for name in KINDS if getattr(self, name) is not None)


KINDS: dict[str, frozenset[str]] = {
    "json": frozenset(),
    "json_schema": frozenset({"fenced"}),
    "regex": frozenset(),
    "contains": frozenset({"ignore_case"}),
    "forbids": frozenset({"ignore_case"}),
    "exact": frozenset({"ignore_case"}),
    "number": frozenset({"tolerance", "relative"}),
    "chars": frozenset(),
    "tokens": frozenset(),
    "finish_reason": frozenset(),
    "tool_call": frozenset({"schema"}),
    "python": frozenset({"arguments"}),
    "allow": frozenset(),
    "time_limit": frozenset(),
}
"""Each kind of check and the keys that may stand beside it."""

_TEXTS = ("contains", "forbids", "finish_reason")
_SCHEMAS = ("json_schema", "schema")


def read_check(value: object, folder: Path) -> Check:
    """Return the check that a file's mapping means, complete in itself; raises what the two steps raise."""
    return complete_check(parse_check(value), folder)


def parse_check(value: object) -> Check:
    """Return the check that a file's mapping means; reads no file.

    Raises ValueError with what is wrong and the way out.
    """
    if not isinstance(value, dict):
        msg = f"a mapping such as {{contains: text}} is wanted; checks: {', '.join(KINDS)}"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for all faults of a file
    _one_kind(value)
    try:
        check = msgspec.convert(_plain(value), Check)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        msg = f"{place.rstrip('`')}: {text[:1].lower()}{text[1:]}" if place else text
        raise ValueError(msg) from None
    changes = {name: (texts,) for name in _TEXTS if isinstance(texts := getattr(check, name), str)}
    check = msgspec.structs.replace(check, **changes)
    _values(check)
    return check


def complete_check(check: Check, folder: Path) -> Check:
    """Return a check that no other file is needed for: schemas inside it, the file of a function by absolute path.

    Relative paths are those below `folder`. Raises ValueError where one cannot be read.
    """
    changes: dict[str, Any] = {
        name: _schema_in(folder / schema) for name in _SCHEMAS if isinstance(schema := getattr(check, name), str)
    }
    if check.python is not None:
        changes["python"] = _function_in(check.python, folder)
    return msgspec.structs.replace(check, **changes) if changes else check


def checks_of(data: bytes) -> tuple[Check, ...]:
    """Return checks from the JSON that `checks_json` wrote."""
    return _DECODER.decode(data)


def checks_json(checks: tuple[Check, ...]) -> bytes:
    """Return checks as JSON, as a prompt carries them."""
    return msgspec.json.encode(checks)


_DECODER = msgspec.json.Decoder(tuple[Check, ...])


def limit_ns(checks: Iterable[Check]) -> int | None:
    """Return how long all checks of an answer may take, as these say; None where they do not."""
    limits = [parse_duration_ns(check.time_limit) for check in checks if check.time_limit is not None]
    return limits[-1] if limits else None


def check_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of one check, for editors; it holds no references."""
    _, parts = msgspec.json.schema_components([Check], ref_template="{name}")
    return {key: _inlined(value, parts) for key, value in parts["Check"].items() if key != "title"}


def _inlined(node: Any, parts: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(node, list):
        return [_inlined(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(parts[node["$ref"]], parts)
    return {key: _inlined(value, parts) for key, value in node.items()}


def _plain(value: object) -> object:
    """Return values as JSON has them; a reader's own numbers and tuples become plain ones."""
    return json.loads(json.dumps(value))


def _one_kind(value: dict[str, object]) -> None:
    kinds = [name for name in KINDS if name in value]
    if len(kinds) != 1:
        found = (
            f"{' and '.join(kinds)} are checks of their own, each an item of the list" if kinds else "names no check"
        )
        msg = f"{found}; one of {', '.join(KINDS)} is wanted"
        raise ValueError(msg)
    beside = [name for name in value if name != kinds[0] and name not in KINDS[kinds[0]]]
    if beside:
        known = ", ".join(sorted(KINDS[kinds[0]]))
        msg = f"{beside[0]}: unknown key beside {kinds[0]}; {f'there are: {known}' if known else 'it stands alone'}"
        raise ValueError(msg)
    if value[kinds[0]] is None:
        msg = f"{kinds[0]}: is empty"
        raise ValueError(msg)


def _schema_in(path: Path) -> dict[str, Any] | bool:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
        schema = json.loads(data)
    except OSError as error:
        msg = f"cannot read the schema {path}: {error.strerror}"
        raise ValueError(msg) from error
    except (ValueError, RecursionError) as error:
        long = len(data) > MAX_SCHEMA_BYTES
        msg = f"the schema {path} is {f'longer than {MAX_SCHEMA_BYTES:,} bytes' if long else f'no JSON: {error}'}"
        raise ValueError(msg) from error
    if not isinstance(schema, dict | bool):
        msg = f"the schema {path} is no JSON object"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for all faults of a file
    return schema


def _function_in(text: str, folder: Path) -> str:
    """Return `/absolute/file.py:function` for what a file writes, `module:function` or `path.py:function`."""
    place, _, name = text.rpartition(":")
    if not place or not name.isidentifier():
        msg = f'"{text}" is no function; module:function, of a file beside this one, is wanted, e.g. checks:polite'
        raise ValueError(msg)
    path = (folder / (place if place.endswith(".py") else place.replace(".", "/") + ".py")).absolute()
    try:
        tree = ast.parse(path.read_bytes())
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise ValueError(msg) from error
    except (SyntaxError, ValueError) as error:
        msg = f"{path} is no Python: {error}"
        raise ValueError(msg) from error
    # A name may also come from an import or an assignment, so only what the file never mentions is refused here.
    if not any(getattr(node, field, None) == name for node in ast.walk(tree) for field in ("name", "id", "asname")):
        msg = f"{path} has no function {name}"
        raise ValueError(msg)
    return f"{path}:{name}"


def _values(check: Check) -> None:
    """Raise ValueError for values that no answer could be checked against."""
    if check.regex is not None:
        try:
            re.compile(check.regex)
        except (re.error, RecursionError, OverflowError) as error:
            msg = f"regex: {error}"
            raise ValueError(msg) from None
    for name in _TEXTS:
        if getattr(check, name) is not None and not all(getattr(check, name) or [""]):
            msg = f"{name}: is empty"
            raise ValueError(msg)
    for name in ("chars", "tokens"):
        _bounds(name, getattr(check, name))
    for name in ("tolerance", "relative"):
        if (getattr(check, name) or 0) < 0:
            msg = f"{name}: {getattr(check, name):g} must be >= 0"
            raise ValueError(msg)
    if check.time_limit is not None and parse_duration_ns(check.time_limit) == 0:
        msg = f'time_limit: "{check.time_limit}" must be longer than 0'
        raise ValueError(msg)


def _bounds(name: str, bounds: Bounds | None) -> None:
    if bounds is None:
        return
    if bounds.min is None and bounds.max is None:
        msg = f"{name}: min or max is wanted"
        raise ValueError(msg)
    if bounds.min is not None and bounds.max is not None and bounds.min > bounds.max:
        msg = f"{name}: min {bounds.min} is above max {bounds.max}"
        raise ValueError(msg)
    if min(bounds.min or 0, bounds.max or 0) < 0:
        msg = f"{name}: must be >= 0"
        raise ValueError(msg)
