"""Know YAML as far as a workload file uses it: plain values with the line of each, and everything odd as a fault.

Words resolve by the core schema of YAML 1.2, narrowed: only true and false are truth values, 1e3 is a number, and what
YAML 1.1 turns into octal (0123), minutes (1:30) or dates stays text, so that its type is a fault instead of a surprise.
Nothing is built from tags. Aliases share what they point at; a file that unfolds to more than `MAX_VALUES` is refused.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from servebench.core.errors import Fault, SpecError
from servebench.workload.places import Place, Wrong, place_of

MAX_VALUES = 20_000
MAX_DEPTH = 40

_TAG = "tag:yaml.org,2002:"
RESOLVERS: list[tuple[str, re.Pattern[str]]] = [
    (_TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$")),
    (_TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
    (_TAG + "int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$")),
    (_TAG + "float", re.compile(r"^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")),
]


def _written(text: str) -> "Written":
    number = Written(text)
    number.text = text
    return number


_READ: dict[str, Callable[[str], bool | int | float]] = {
    "bool": lambda text: text.lower() == "true",
    "int": int,
    "float": _written,
}

Plain = str | int | float | bool | tuple["Plain", ...] | dict[str, "Plain"] | None


class Written(float):
    """A number with a point or exponent, and how it was written: version 1.10 is not 1.1."""

    text: str


def _text(text: str) -> str | None:
    """Return a text with the surrogate pairs that JSON escapes give joined; None where one stands alone."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


class Tree(NamedTuple):
    """A file's values: mappings as dict, lists as tuple. `lines` maps each path to its 1-based line."""

    value: Plain
    lines: dict[Place, int]
    wrongs: list[Wrong]

    def line_of(self, path: Place) -> int:
        """Return the line of a path, or of the nearest one above it that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_tree(text: str, source: str) -> Tree:
    """Return the values of a YAML text.

    Raises SpecError where it is no YAML, more than one document, or unfolds to too much.
    """
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(word for word in (error.context, error.problem) if word)
        raise SpecError(source, [Fault(place="YAML", message=words, line=mark.line + 1 if mark else None)]) from error
    except yaml.YAMLError as error:
        raise SpecError(source, [Fault(place="YAML", message=str(error).splitlines()[0])]) from error
    except RecursionError as error:
        raise SpecError(source, [Fault(place="YAML", message="nested too deeply")]) from error
    if node is None:
        raise SpecError(source, [Fault(place="file", message="is empty", line=1)])
    walk = _Walk(source)
    value = walk.value(node, ())
    return Tree(value, walk.lines, walk.wrongs)


class _Loader(yaml.SafeLoader):
    """The parser with the resolvers above; only its `compose` is used, so it constructs nothing."""

    yaml_implicit_resolvers = {None: RESOLVERS}  # noqa: RUF012 - PyYAML declares it without ClassVar


class _Walk:
    """One walk over the nodes of a file; stops with SpecError where aliases unfold to too much."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[Place, int] = {}
        self.wrongs: list[Wrong] = []
        self._seen = 0

    def value(self, node: Node, path: Place) -> Plain:
        """Return the value of a node, and note lines and faults below it."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._seen += 1
        if self._seen > MAX_VALUES or len(path) > MAX_DEPTH:
            message = f"unfolds to more than {MAX_VALUES} values or {MAX_DEPTH} levels (aliases?)"
            raise SpecError(self.source, [Fault(place=place_of(path[:3]), message=message, line=line)])
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return tuple(self.value(item, (*path, index)) for index, item in enumerate(node.value))
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        return self._refused(node, path)

    def _mapping(self, node: MappingNode, path: Place) -> dict[str, Plain]:
        values: dict[str, Plain] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.wrongs.append(Wrong(path, "a key must be a word"))
                continue
            key = _text(str(key_node.value))
            if key is None:
                self.wrongs.append(Wrong(path, "a key holds half a surrogate pair, which is no character"))
                continue
            here = (*path, key)
            if key in values:
                line = key_node.start_mark.line + 1
                self.wrongs.append(
                    Wrong(here, f"duplicate key: again in line {line}, first in line {self.lines[here]}")
                )
                continue
            self.lines[here] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, here)
        return values

    def _scalar(self, node: ScalarNode, path: Place) -> Plain:
        kind, text = node.tag.removeprefix(_TAG), str(node.value)
        if kind == "str":
            whole = _text(text)
            if whole is None:
                self.wrongs.append(Wrong(path, "the text holds half a surrogate pair, which is no character"))
            return whole
        if kind == "null":
            return None
        for name, pattern in RESOLVERS:
            # An explicit tag such as !!int is believed only where the text has that form.
            if node.tag == name and pattern.match(text):
                return _READ[kind](text)
        return self._refused(node, path)

    def _refused(self, node: Node, path: Place) -> Plain:
        tag = node.tag.replace(_TAG, "!!")
        self.wrongs.append(Wrong(path, f"the tag {tag} is not allowed; plain values only"))
        return None
