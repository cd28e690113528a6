"""Know how files of prompts are written, and read them row by row, however long they are.

Blank lines are no rows, and a prompt is never stripped. What a row must have and has not is a fault with its line; of
ShareGPT and OASST dumps, which are full of such rows, they are skipped and counted by reason instead.

mt-bench: `turns`. self-instruct: the instruction, and below it its first input. humaneval: `prompt`. jsonl: `prompt`,
and maybe `accept`, the checks of its answer.
arena-hard: `prompt`, or the content of `turns`. sharegpt: an array of `conversations`, each a list of `from` and
`value`. oasst: one tree of messages per line. text: the paragraphs, long ones in passages of 12 lines.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from servebench.core.errors import Fault, InputError, SpecError
from servebench.workload.builtin import open_data
from servebench.workload.checks import checks_json, read_check
from servebench.workload.model import PromptSource

MAX_FAULTS = 20
JOIN = "\n\n"
PASSAGE_LINES = 12
_CHUNK = 1 << 20
MOST_ITEM_CHARACTERS = 1 << 26
_BEFORE = re.compile(r"\s*\[[\s,]*")
_BETWEEN = re.compile(r"[\s,]*")
_HUMANS = frozenset({"human", "user"})
_ASIDE = frozenset({"system", "tool", "function"})


class Talk(NamedTuple):
    """What a user says, turn by turn, and the reply to the first turn; None: the file has none.

    `checks` is the JSON of what the answer to the first turn must be, empty where the file says nothing.
    """

    turns: tuple[str, ...]
    reply: str | None = None
    checks: bytes = b""


class Row(NamedTuple):
    """One row of a file: its line, its value, or what is wrong with its text."""

    line: int
    value: object
    fault: str | None = None


class NoPromptError(Exception):
    """A row holds no prompt; becomes a Fault with its line, or a count."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(message)
        self.place, self.message = place, message


def read_talks(source: PromptSource, skipped: Counter[str]) -> Iterator[Talk]:
    """Yield the rows of one file in its order; `skipped` counts by reason what a dump has that is no prompt.

    Raises SpecError with line and place of each fault, at most 20 of them, and InputError where the file cannot be read
    or holds no prompt.
    """
    faults: list[Fault] = []
    found = False
    with open_data(source.path) as stream:
        for row in _rows(source, stream):
            try:
                talks = _talks(source, row)
                _refuse_half_characters(talks)
            except NoPromptError as error:
                if source.kind == "sharegpt" and row.fault is None:
                    skipped[error.place] += 1
                    continue
                faults.append(Fault(place=error.place, message=error.message, line=row.line))
                if len(faults) >= MAX_FAULTS:
                    break
                continue
            found = found or bool(talks)
            if not faults:
                yield from talks
    if faults:
        raise SpecError(source.path, faults)
    if not found:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        msg = f"{source.path} holds no prompt{f' (skipped: {reasons})' if reasons else ''}"
        raise InputError(msg)


def _refuse_half_characters(talks: Iterable[Talk]) -> None:
    """Raise NoPromptError for a text that no UTF-8 can hold: JSON may escape one half of a surrogate pair."""
    for talk in talks:
        for text in (*talk.turns, talk.reply or ""):
            if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
                raise NoPromptError("text", "holds half a surrogate pair, which is no character")


def _rows(source: PromptSource, stream: BinaryIO) -> Iterator[Row]:
    if source.kind == "text":
        return _passages(stream, source.path)
    head = stream.peek(_CHUNK) if hasattr(stream, "peek") else b""
    if head.lstrip()[:1] != b"[":
        return _json_lines(stream)
    if source.kind == "sharegpt":
        return _array_items(stream, source.path)
    message = "the file is one JSON array; one object per line is wanted, e.g. jq -c '.[]' FILE"
    raise SpecError(source.path, [Fault(place="text", message=message, line=1)])


def _json_lines(stream: BinaryIO) -> Iterator[Row]:
    at = 0
    for number, line in enumerate(stream, start=1):
        if line.strip():
            yield _json_row(line, number, at)
        at += len(line)


def _json_row(line: bytes, number: int, at: int) -> Row:
    try:
        return Row(number, json.loads(line.decode()))
    except UnicodeDecodeError as error:
        message = f"byte {line[error.start]:#04x} at offset {at + error.start} of the file is not UTF-8"
    except json.JSONDecodeError as error:
        message = f"no JSON: {error.msg} at column {error.colno}"
    except RecursionError:
        message = "nested too deeply"
    except ValueError as error:  # what Python does not read although it is JSON: a number of thousands of digits
        message = f"no JSON that can be read: {str(error).partition(';')[0]}"
    return Row(number, None, message)


def _array_items(stream: BinaryIO, source: str) -> Iterator[Row]:
    """Yield the items of one JSON array, holding a few megabytes of it at a time."""
    decoder, reader = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")()
    text, at, line, begun, ended = "", 0, 1, False, False
    while True:
        skipped = (_BETWEEN if begun else _BEFORE).match(text, at)
        begun = skipped is not None
        here = at if skipped is None else skipped.end()
        line += text.count("\n", at, here)
        if begun and text.startswith("]", here):
            if text[here + 1 :].strip() or stream.read(_CHUNK).strip():
                raise SpecError(
                    source, [Fault(place="text", message="more follows behind the end of the array", line=line)]
                )
            return
        try:
            value, end = decoder.raw_decode(text, here)
        except (ValueError, RecursionError) as error:
            cut = isinstance(error, json.JSONDecodeError)  # anything else is no better with more text
            if ended or not cut or len(text) - here > MOST_ITEM_CHARACTERS:
                raise SpecError(source, [_no_item(error, line, text, here)]) from error
            chunk = stream.read(_CHUNK)
            ended = not chunk
            # What has been read is let go of only here: cutting it off item by item would copy a megabyte each time.
            text, at = text[here:] + _utf8(reader, chunk, source, line, final=ended), 0
            continue
        yield Row(line, value)
        line += text.count("\n", here, end)
        at = end


def _no_item(error: Exception, line: int, text: str, here: int) -> Fault:
    if isinstance(error, json.JSONDecodeError) and len(text) - here <= MOST_ITEM_CHARACTERS:
        return Fault(place="text", message=f"no JSON: {error.msg}", line=line + text.count("\n", here, error.pos))
    message = "an item of the array is nested too deeply, too long, or has a number that is"
    return Fault(place="text", message=message, line=line)


def _utf8(reader: codecs.IncrementalDecoder, chunk: bytes, source: str, line: int, *, final: bool) -> str:
    try:
        return reader.decode(chunk, final)
    except UnicodeDecodeError as error:
        message = f"byte {error.object[error.start]:#04x}, after this line, is not UTF-8"
        raise SpecError(source, [Fault(place="text", message=message, line=line)]) from error


def _passages(stream: BinaryIO, source: str) -> Iterator[Row]:
    lines: list[str] = []
    begin = 1
    for number, raw in enumerate(stream, start=1):
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            message = f"byte {raw[error.start]:#04x} is not UTF-8"
            raise SpecError(source, [Fault(place="text", message=message, line=number)]) from error
        if text.strip():
            begin = begin if lines else number
            lines.append(text)
        if lines and (not text.strip() or len(lines) >= PASSAGE_LINES):
            yield Row(begin, "".join(lines).rstrip("\r\n"))
            lines = []
    if lines:
        yield Row(begin, "".join(lines).rstrip("\r\n"))


def _talks(source: PromptSource, row: Row) -> list[Talk]:
    """Return the conversations of a row; raises NoPromptError where it holds none."""
    kind = source.kind
    if row.fault is not None:
        raise NoPromptError("text", row.fault)
    if kind == "text":
        return [Talk((str(row.value),))]
    if not isinstance(row.value, dict):
        place = "not_an_object" if kind == "sharegpt" else "row"
        raise NoPromptError(place, f"a JSON object is wanted, not {type(row.value).__name__}")
    if kind == "oasst":
        return _oasst(row.value)
    talk = _TAKE[kind](row.value)
    if kind == "jsonl" and "accept" in row.value:
        talk = talk._replace(checks=_checks(row.value["accept"], Path(source.path).parent))
    return [talk]


def _checks(items: object, folder: Path) -> bytes:
    """Return the checks of a prompt as JSON; paths in them are those below `folder`."""
    if not isinstance(items, list):
        raise NoPromptError("accept", "a list of checks is wanted")
    checks = []
    for number, item in enumerate(items):
        try:
            checks.append(read_check(item, folder))
        except ValueError as error:
            raise NoPromptError(f"accept[{number}]", str(error)) from error
    return checks_json(tuple(checks)) if checks else b""


def _word(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        found = "missing" if value is None else f"{json.dumps(value)[:40]} is no text"
        raise NoPromptError(key, f"{found}; the row has {', '.join(row) or 'no keys'}")
    if not value:
        raise NoPromptError(key, "empty")
    return value


def _mt_bench(row: dict[str, Any]) -> Talk:
    turns = row.get("turns")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise NoPromptError("turns", "a list of texts is wanted")
    return Talk(tuple(turns))


def _self_instruct(row: dict[str, Any]) -> Talk:
    instruction = _word(row, "instruction")
    try:
        given, reply = row["instances"][0]["input"], row["instances"][0].get("output")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise NoPromptError("instances", "a list of objects with input is wanted") from error
    return Talk((f"{instruction}{JOIN}{given}" if given else instruction,), reply or None)


def _human_eval(row: dict[str, Any]) -> Talk:
    reply = row.get("canonical_solution")
    return Talk((_word(row, "prompt"),), reply if isinstance(reply, str) and reply else None)


def _jsonl(row: dict[str, Any]) -> Talk:
    return Talk((_word(row, "prompt"),))


def _arena_hard(row: dict[str, Any]) -> Talk:
    turns = row.get("turns")
    if "prompt" in row or not isinstance(turns, list) or not turns:
        return _jsonl(row)
    return Talk(tuple(_word(turn if isinstance(turn, dict) else {}, "content") for turn in turns))


def _sharegpt(row: dict[str, Any]) -> Talk:
    said = row.get("conversations")
    if not isinstance(said, list) or not said:
        raise NoPromptError("no_conversation", "conversations: a list with something in it is wanted")
    turns: list[str] = []
    replies: list[str] = []
    for message in said:
        role = message.get("from") if isinstance(message, dict) else None
        text = message.get("value") if isinstance(message, dict) else None
        if role in _HUMANS:
            if not isinstance(text, str) or not text:
                raise NoPromptError("empty_turn", "a turn of the user is empty")
            turns.append(text)
        elif turns and role not in _ASIDE and len(turns) == 1 and isinstance(text, str) and text:
            replies.append(text)
    if not turns:
        raise NoPromptError("no_user_turn", "the user says nothing")
    return Talk(tuple(turns), replies[0] if replies else None)


def _oasst(row: dict[str, Any]) -> list[Talk]:
    """Return what the user says on each way from the root to a leaf; ways that differ in replies only count once."""
    root = row.get("prompt")
    if not isinstance(root, dict):
        raise NoPromptError("prompt", f"missing; the row has {', '.join(row) or 'no keys'}")
    _word(root, "text")
    found: dict[tuple[str, ...], Talk] = {}
    ways: list[tuple[dict[str, Any], tuple[str, ...], str | None]] = [(root, (), None)]
    while ways:
        message, turns, reply = ways.pop()
        text = message.get("text")
        if message.get("role") == "prompter" and isinstance(text, str) and text:
            turns = (*turns, text)
        elif len(turns) == 1 and reply is None and isinstance(text, str) and text:
            reply = text
        replies = [below for below in message.get("replies") or () if isinstance(below, dict)]
        if not replies and turns:
            found.setdefault(turns, Talk(turns, reply))
        # Reversed, so that the ways come out in the order of the file.
        ways.extend((below, turns, reply) for below in reversed(replies))
    return list(found.values())


_TAKE: dict[str, Callable[[dict[str, Any]], Talk]] = {
    "mt-bench": _mt_bench,
    "self-instruct": _self_instruct,
    "humaneval": _human_eval,
    "jsonl": _jsonl,
    "arena-hard": _arena_hard,
    "sharegpt": _sharegpt,
}
