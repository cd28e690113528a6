"""Know traces written as JSON lines: Mooncake, Qwen-Bailian and RAGPulse.

All three have timestamp, input_length, output_length and hash_ids, and differ in what these hold. Mooncake: ms, a list
of ids of 512-token blocks. Qwen-Bailian: s, a list of ids of 16-token blocks, chat_id and parent_chat_id (-1 for the
first turn). RAGPulse: seconds as a text, session_id, and an object of five lists whose ids have their lengths in five
files beside it; what the input has beyond its parts (6 to 12 tokens of template) is a text of its own for each row.
Ids of blocks are equal exactly where their texts are; ids of RAGPulse count within their part.
"""

import json
import math
from array import array
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from servebench.core.errors import Fault, InputError, SpecError
from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.workload.builtin import data_path, open_data
from servebench.workload.rows import MAX_FAULTS, MAX_TOKENS, Blocks, Rows

BLOCK_TOKENS = {"mooncake": 512, "qwen-bailian": 16}
RAG_PARTS = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
RAG_FILES = ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search")
_RAG_KEYS = {
    "sys_prompt": ("1_sys_prompt", "sys_prompt_id"),
    "passages_ids": ("2_passages", "passage_id"),
    "history": ("3_history", "history_id"),
    "user_input": ("4_user_input", "user_input_id"),
    "web_search": ("5_web_search", "web_search_id"),
}
_PARTS = 8
"""Ids of RAGPulse are multiplied by this, to make room for the number of their part."""


class BadRowError(Exception):
    """A line is no row of the format; becomes a Fault with its line."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(message)
        self.place, self.message = place, message


def read_json_lines(path: str, kind: str) -> Rows:
    """Return the rows of a trace in its file's order; of RAGPulse `path` is the file of rows or its folder.

    Raises SpecError with line and place of each fault, at most 20 of them, and InputError where a file cannot be read.
    """
    if kind == "ragpulse" and data_path(path).is_dir():
        path = str(data_path(path) / "0_trace.jsonl")
    reader = _Reader(kind, _rag_lengths(data_path(path).parent) if kind == "ragpulse" else {})
    faults: list[Fault] = []
    with open_data(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.isspace():
                continue
            try:
                reader.read(_decoded(line))
            except BadRowError as error:
                faults.append(Fault(place=error.place, message=error.message, line=number))
            if len(faults) >= MAX_FAULTS:
                break
    if faults:
        raise SpecError(path, faults)
    return reader.rows()


class _Reader:
    """Collects rows, their sessions and their blocks."""

    def __init__(self, kind: str, rag_lengths: dict[int, int]) -> None:
        self._kind, self._rag_lengths = kind, rag_lengths
        self._times = array("q")
        self._inputs, self._outputs, self._sessions = array("i"), array("i"), array("i")
        self._ids, self._sizes, self._ends = array("q"), array("i"), array("q")
        self._numbers: dict[object, int] = {}

    def read(self, row: dict[str, Any]) -> None:
        """Add one row; raises BadRowError before anything is added."""
        time_ns = self._time_ns(row.get("timestamp"))
        inputs, outputs = _tokens(row, "input_length"), _tokens(row, "output_length")
        ids, sizes = self._rag_blocks(row, inputs) if self._kind == "ragpulse" else self._list_blocks(row)
        session = self._session(row)
        self._times.append(time_ns)
        self._inputs.append(inputs)
        self._outputs.append(outputs)
        self._sessions.append(session)
        self._ids.extend(ids)
        self._sizes.extend(sizes)
        self._ends.append(len(self._ids))

    def rows(self) -> Rows:
        """Return what was read."""
        last = np.array(self._ends, dtype=np.int64)
        return Rows(
            time_ns=np.array(self._times, dtype=np.int64),
            input_tokens=np.array(self._inputs, dtype=np.int32),
            output_tokens=np.array(self._outputs, dtype=np.int32),
            session=None if self._kind == "mooncake" else np.array(self._sessions, dtype=np.int32),
            blocks=Blocks(
                first=np.concatenate([[0], last[:-1]]).astype(np.int64),
                last=last,
                ids=np.array(self._ids, dtype=np.int64),
                tokens=np.array(self._sizes, dtype=np.int32),
            ),
        )

    def _time_ns(self, value: object) -> int:
        try:
            if self._kind == "ragpulse":
                number = float(value) if isinstance(value, str) else None
            else:
                number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not math.isfinite(number) or abs(number) > 1e13:
            wanted = "a text of seconds" if self._kind == "ragpulse" else "a number"
            raise BadRowError("timestamp", f"{_shown(value)} is not {wanted}, as it is in a {self._kind} trace")
        return round(number * (NS_PER_MS if self._kind == "mooncake" else NS_PER_S))

    def _list_blocks(self, row: dict[str, Any]) -> tuple[list[int], list[int]]:
        ids = row.get("hash_ids")
        if not isinstance(ids, list):
            hint = "; an object of lists is RAGPulse's, kind: ragpulse" if isinstance(ids, dict) else ""
            raise BadRowError("hash_ids", f"{_shown(ids)} is not a list of block ids{hint}")
        return _ids(ids, "hash_ids"), [BLOCK_TOKENS[self._kind]] * len(ids)

    def _rag_blocks(self, row: dict[str, Any], inputs: int) -> tuple[list[int], list[int]]:
        parts = row.get("hash_ids")
        if not isinstance(parts, dict):
            hint = "; a list of ids is Mooncake's or Qwen's" if isinstance(parts, list) else ""
            raise BadRowError("hash_ids", f"{_shown(parts)} is not an object of lists{hint}")
        ids: list[int] = []
        sizes: list[int] = []
        for number, part in enumerate(RAG_PARTS):
            for block in _ids(parts.get(part, []), f"hash_ids.{part}"):
                key = block * _PARTS + number
                if key not in self._rag_lengths:
                    raise BadRowError(f"hash_ids.{part}", f"{block} is not in {_RAG_KEYS[part][0]}.jsonl")
                ids.append(key)
                sizes.append(self._rag_lengths[key])
        rest = inputs - sum(sizes)
        if rest > 0:
            ids.append(len(self._times) * _PARTS + len(RAG_PARTS))
            sizes.append(rest)
        return ids, sizes

    def _session(self, row: dict[str, Any]) -> int:
        if self._kind == "mooncake":
            return -1
        if self._kind == "ragpulse":
            name = row.get("session_id")
            return -1 if name is None else self._numbers.setdefault(str(name), len(self._numbers))
        chat, parent = row.get("chat_id"), row.get("parent_chat_id")
        if not isinstance(chat, int | str):
            raise BadRowError("chat_id", f"{_shown(chat)} is no id")
        # A turn continues the conversation of its parent; a parent before the beginning of the file is a new one.
        known = self._numbers.get(parent) if parent not in (None, -1, "-1") else None
        number = len(self._times) if known is None else known
        self._numbers[chat] = number
        return number


def _rag_lengths(folder: Path) -> dict[int, int]:
    """Return the token length of each block of the five dictionaries beside a RAGPulse trace, by id and part."""
    lengths: dict[int, int] = {}
    for number, part in enumerate(RAG_PARTS):
        name, key = _RAG_KEYS[part]
        path = folder / f"{name}.jsonl"
        if not path.is_file():
            msg = f"{path} is missing; a RAGPulse trace needs its five dictionaries beside it"
            raise InputError(msg)
        with open_data(str(path)) as stream:
            for line_number, line in enumerate(stream, start=1):
                if line.isspace():
                    continue
                try:
                    row = _decoded(line)
                    lengths[_ids([row.get(key)], key)[0] * _PARTS + number] = _tokens(row, "token_length")
                except BadRowError as error:
                    fault = Fault(place=error.place, message=error.message, line=line_number)
                    raise SpecError(str(path), [fault]) from error
    return lengths


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRowError("text", f"no JSON: {error}") from error
    except RecursionError as error:
        raise BadRowError("text", "nested too deeply") from error
    if not isinstance(row, dict):
        raise BadRowError("row", f"a JSON object is wanted, not {type(row).__name__}")
    return row


def _tokens(row: dict[str, Any], key: str) -> int:
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOKENS:
        found = "missing" if key not in row else f"{_shown(value)} is no whole number of tokens from 0 to {MAX_TOKENS}"
        raise BadRowError(key, f"{found}; the row has {', '.join(row) or 'no keys'}")
    return value


def _ids(values: object, place: str) -> list[int]:
    if not isinstance(values, list) or not all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**59 for value in values
    ):
        raise BadRowError(place, f"{_shown(values)} is not a list of block ids")
    return values


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
