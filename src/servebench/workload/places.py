"""Know how to tell what is wrong in a workload file: at which place, with which value, and the way out."""

import difflib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from servebench.workload.spec import WorkloadSpec

Place = tuple[str | int, ...]
Spec = TypeVar("Spec", bound=BaseModel)

_TYPES: dict[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""Pydantic's error type to what would have been right."""

_BOUNDS: dict[str, tuple[str, str]] = {
    "greater_than": ("gt", "must be > "),
    "greater_than_equal": ("ge", "must be >= "),
    "less_than": ("lt", "must be < "),
    "less_than_equal": ("le", "must be <= "),
}


class Wrong(NamedTuple):
    """Something wrong at a path of keys and indices."""

    path: Place
    message: str


def place_of(path: Place) -> str:
    """Return a path as people write it, such as `load.phases[1].duration`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "file"


def checked(value: object) -> tuple[WorkloadSpec | None, list[Wrong]]:
    """Return the spec made of the plain values of a workload file, or everything that is wrong with them."""
    return checked_as(WorkloadSpec, value)


def checked_as(kind: type[Spec], value: object) -> tuple[Spec | None, list[Wrong]]:
    """Return the model of a file of any kind, or everything that is wrong with its plain values."""
    try:
        return kind.model_validate(value), []
    except ValidationError as error:
        found = error.errors(include_url=False)
        return None, [_wrong(details, value, kind) for details in found if not _follows(details, found)]


def quoted(value: object) -> str:
    """Return a value as a message shows it: JSON, at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _wrong(details: ErrorDetails, value: object, kind_of_file: type[BaseModel]) -> Wrong:
    path = _path_in(details["loc"], value)
    kind, context = details["type"], details.get("ctx", {})
    if kind == "rule":
        return Wrong((*path, *context["place"]), context["message"])
    if kind == "extra_forbidden":
        return Wrong(path, _unknown_key(details["loc"], kind_of_file))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        # Pydantic names the field and its alias, 'kind' | 'from'; the last is the word of the file.
        key = str(context["discriminator"]).split("'")[-2]
        if kind == "union_tag_not_found":
            return (
                Wrong((*path, key), "missing") if isinstance(details["input"], dict) else Wrong(path, _is_no(details))
            )
        return Wrong((*path, key), _no_such_word(context["tag"], context["expected_tags"]))
    return Wrong(path, _message(details, str(path[-1]) if path else "file"))


def _follows(details: ErrorDetails, found: Sequence[ErrorDetails]) -> bool:
    """Say whether an error only follows from others: a list that is too short because its items are wrong.

    Of what may be a word or a list, pydantic tells why it is neither; one of the two is what was meant.
    """
    loc, others = details["loc"], [other for other in found if other != details]
    if details["type"] == "too_short":
        return any(other["loc"][: len(loc)] == loc for other in others)
    if (
        not loc
        or not _is_unnamed_member(loc[-1])
        or not any(other["loc"][: len(loc) - 1] == loc[:-1] for other in others)
    ):
        return False
    is_list = isinstance(details["input"], list | tuple | dict)
    return is_list == (details["type"] == "literal_error")


def _is_unnamed_member(part: str | int) -> bool:
    """Say whether a part of a location is what pydantic calls a member of a union that has no name in the file."""
    return isinstance(part, str) and part.startswith(("literal[", "tuple["))


def _message(details: ErrorDetails, key: str) -> str:
    """Return the words for an error that is no rule, no key and no tag."""
    kind, context, value = details["type"], details.get("ctx", {}), details["input"]
    if kind == "missing":
        return "missing"
    if kind == "literal_error":
        return _no_such_word(value, context["expected"])
    if kind == "value_error":
        return str(context["error"])
    return _about_value(details)


def _about_value(details: ErrorDetails) -> str:
    kind, context, value = details["type"], details.get("ctx", {}), details["input"]
    if kind in _TYPES:
        return _is_no(details)
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{quoted(value)} {words}{context[name]:g}"
    if kind == "string_pattern_mismatch":
        return f"{quoted(value)} must be lower-case letters, digits and -, e.g. chat-burst"
    if kind in ("too_short", "string_too_short"):
        return f"has {len(value)}; at least {context['min_length']} are wanted" if len(value) else "is empty"
    return f"{quoted(value)}: {details['msg']}"


def _is_no(details: ErrorDetails) -> str:
    wanted = _TYPES.get(details["type"], "a mapping")
    if details["input"] is None:
        return f"is empty; {wanted} is wanted"
    return f"{quoted(details['input'])} is not {wanted}"


def _no_such_word(value: object, allowed: str) -> str:
    words = allowed.replace("'", "").replace(" or ", ", ")
    near = difflib.get_close_matches(str(value), words.split(", "), n=1)
    hint = f"did you mean {near[0]}?" if near else f"it may be: {words}"
    return f"{quoted(value)} is not known; {hint}"


def _unknown_key(loc: Place, kind_of_file: type[BaseModel]) -> str:
    key = str(loc[-1])
    keys = keys_at(loc[:-1], kind_of_file)
    near = difflib.get_close_matches(key, keys, n=1)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; there are: {', '.join(keys)}"


def keys_at(loc: Place, kind_of_file: type[BaseModel] = WorkloadSpec) -> list[str]:
    """Return the keys that a file may have at a location of pydantic, which names the chosen members of unions."""
    root = kind_of_file.model_json_schema(by_alias=True)
    node: dict[str, Any] = root
    for part in loc:
        node = _below(node, part, root)
    return list(_plain(node, root).get("properties", {}))


def _below(node: dict[str, Any], part: str | int, root: dict[str, Any]) -> dict[str, Any]:
    node = _plain(node, root)
    below = node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
    if below is None and "discriminator" in node:
        below = {"$ref": node["discriminator"]["mapping"].get(part)}
    return below if isinstance(below, dict) else {}


def _plain(node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Follow references, and leave the `or null` of optional keys aside."""
    while True:
        others = [member for member in node.get("anyOf", ()) if member.get("type") != "null"]
        if isinstance(node.get("$ref"), str):
            node = root["$defs"][node["$ref"].rpartition("/")[2]]
        elif len(others) == 1:
            node = others[0]
        else:
            return node


def _path_in(loc: Place, value: object) -> Place:
    """Return a location of pydantic without the names of union members, which are no part of the file."""
    path: list[str | int] = []
    at: Any = value
    for depth, part in enumerate(loc):
        if _has(at, part):
            at = at[part]
        elif depth < len(loc) - 1 or _is_member(part, at) or _is_unnamed_member(part):
            continue
        path.append(part)
    return tuple(path)


def _has(at: object, part: str | int) -> bool:
    return part in at if isinstance(at, dict) else isinstance(at, tuple) and isinstance(part, int) and part < len(at)


def _is_member(part: str | int, at: object) -> bool:
    """Say whether the last part of a location names a union's member: a rule between the keys of one."""
    return isinstance(at, dict) and part in [at.get(key) for key in ("shape", "kind", "from", "process", "state")]
