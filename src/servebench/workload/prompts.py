"""Know the prompts: read prompt files into one block of text, and render a prompt at a wanted length.

Prompt sets are short (about 40 tokens) against real traffic (about 1,000), so a longer input is the prompt behind a
slice of running text. The slice begins at a word that prompt and length choose, so that prompts do not share a prefix
more than their texts do; it ends at the word that brings the estimate to the wanted count.
"""

import hashlib
import json
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from servebench.core.errors import Fault, InputError, SpecError
from servebench.core.records import Message
from servebench.workload.builtin import PREFIX, read_data
from servebench.workload.model import Prompts, PromptSource
from servebench.workload.tokens import token_weight, word_ends

FILLER = PREFIX + "shakespeare"
MAX_FAULTS = 20
_JOIN = "\n\n"
_WRAP = "\n"


class PromptSet:
    """All prompts of a workload, numbered from 0 through its sources in their order."""

    def __init__(self, texts: list[str], filler: str, starts: Sequence[int] | None = None) -> None:
        """Hold texts; `starts` says at which of them conversations begin, None: each is one."""
        encoded = [text.encode() for text in texts]
        self._blob = b"".join(encoded)
        self._offsets = array("q", [0])
        for data in encoded:
            self._offsets.append(self._offsets[-1] + len(data))
        self._weights = array("d", [token_weight(text) for text in texts])
        self._filler = _Filler(filler)
        begins = range(len(texts)) if starts is None else starts
        self.starts = np.array([*begins, len(texts)], dtype=np.int64)
        self._join_weight = token_weight(_JOIN)

    @classmethod
    def load(cls, prompts: Prompts) -> "PromptSet":
        """Read every source of a workload's prompts.

        Raises SpecError with the faults of a file, at most 20 of them, and InputError where one cannot be read.
        """
        texts: list[str] = []
        for source in prompts.sources:
            texts.extend(read_prompts(source))
        return cls(texts, read_data(FILLER).decode())

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def sha256(self) -> str:
        """Digest of all prompts in order; equal on two machines that will send the same texts."""
        return hashlib.sha256(self._blob + self._offsets.tobytes()).hexdigest()

    def text(self, prompt_id: int) -> str:
        """Return a prompt as it stands in its file."""
        return self._blob[self._offsets[prompt_id] : self._offsets[prompt_id + 1]].decode()

    def messages(self, prompt_id: int, input_tokens: int | None) -> tuple[Message, ...]:
        """Return the messages to send, of about `input_tokens` tokens by `estimate_tokens`.

        None, or fewer than the prompt has: the prompt alone, whole.
        """
        text = self.text(prompt_id)
        if input_tokens is not None:
            wanted = input_tokens - self._weights[prompt_id] - self._join_weight
            if wanted >= 1:
                text = self._filler.cut(prompt_id, input_tokens, wanted) + _JOIN + text
        return (Message("user", text),)


class _Filler:
    """Running text with its words counted, so that a slice of n tokens is two look-ups."""

    def __init__(self, text: str) -> None:
        ends, weights = word_ends(text)
        self._text = text[: ends[-1]]
        # Cut points: the beginning, and behind each word. Slices begin at the blank behind a word, which is stripped.
        self._at = array("q", [0, *ends])
        self._weight = array("d", [0.0, *weights])
        self._join_weight = token_weight(_WRAP)

    def cut(self, prompt_id: int, input_tokens: int, wanted: float) -> str:
        """Return a slice of about `wanted` tokens whose beginning depends on the first two arguments."""
        words = len(self._at) - 1
        first = (prompt_id * 2_654_435_761 + input_tokens * 40_503) % words
        parts: list[str] = []
        while wanted > 0:
            goal = self._weight[first] + wanted
            last = bisect_left(self._weight, goal)
            if last <= words:
                if goal - self._weight[last - 1] < self._weight[last] - goal:
                    last -= 1
                parts.append(self._text[self._at[first] : self._at[last]])
                break
            parts.append(self._text[self._at[first] :])
            wanted -= self._weight[words] - self._weight[first] + self._join_weight
            first = 0
        return _WRAP.join(parts).lstrip()


def read_prompts(source: PromptSource) -> list[str]:
    """Return the prompts of one file in its order; blank lines are no rows, a prompt is never stripped.

    mt-bench: the first turn of each question. self-instruct: the instruction, and below it its first input. jsonl: the
    value of `prompt`.
    Raises SpecError with line and place of each fault, and InputError where the file cannot be read.
    """
    data = read_data(source.path).removeprefix(b"\xef\xbb\xbf")
    take = _TAKE[source.kind]
    texts: list[str] = []
    faults: list[Fault] = []
    if data.lstrip()[:1] == b"[":
        message = "the file is one JSON array; one object per line is wanted, e.g. jq -c '.[]' FILE"
        raise SpecError(source.path, [Fault(place="text", message=message, line=1)])
    for number, (line, at) in enumerate(_lines_of(data), start=1):
        try:
            if line.strip():
                texts.append(take(_row(line, at)))
        except _NoPromptError as error:
            faults.append(Fault(place=error.place, message=error.message, line=number))
        if len(faults) >= MAX_FAULTS:
            break
    if faults:
        raise SpecError(source.path, faults)
    if not texts:
        msg = f"{source.path} holds no prompt"
        raise InputError(msg)
    return texts


class _NoPromptError(Exception):
    """A line holds no prompt; becomes a Fault with its line."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(message)
        self.place, self.message = place, message


def _lines_of(data: bytes) -> list[tuple[bytes, int]]:
    lines, at = [], 0
    for line in data.split(b"\n"):
        lines.append((line, at))
        at += len(line) + 1
    return lines


def _row(line: bytes, at: int) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        message = f"byte {line[error.start]:#04x} at offset {at + error.start} of the file is not UTF-8"
        raise _NoPromptError("text", message) from error
    except json.JSONDecodeError as error:
        raise _NoPromptError("text", f"no JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(row, dict):
        raise _NoPromptError("row", f"a JSON object is wanted, not {type(row).__name__}")
    return row


def _word(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        found = "missing" if value is None else f"{json.dumps(value)[:40]} is no text"
        raise _NoPromptError(key, f"{found}; the row has {', '.join(row) or 'no keys'}")
    if not value:
        raise _NoPromptError(key, "empty")
    return value


def _mt_bench(row: dict[str, Any]) -> str:
    turns = row.get("turns")
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str) or not turns[0]:
        raise _NoPromptError("turns", "a list of texts is wanted")
    return turns[0]


def _self_instruct(row: dict[str, Any]) -> str:
    instruction = _word(row, "instruction")
    try:
        given = row["instances"][0]["input"]
    except (KeyError, IndexError, TypeError) as error:
        raise _NoPromptError("instances", "a list of objects with input is wanted") from error
    return f"{instruction}{_JOIN}{given}" if given else instruction


def _jsonl(row: dict[str, Any]) -> str:
    return _word(row, "prompt")


_TAKE: dict[str, Callable[[dict[str, Any]], str]] = {
    "mt-bench": _mt_bench,
    "self-instruct": _self_instruct,
    "jsonl": _jsonl,
}
