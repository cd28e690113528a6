"""Know what is to be read in an answer's text: loops, numbers, JSON behind a Markdown fence."""

import json
import re

LONGEST_UNIT = 200
"""Most characters of a passage whose repetition is looked for."""
LEAST_COPIES = 4
LEAST_LOOP = 200
"""Least characters that a loop covers."""
_LOOKED_AT = LONGEST_UNIT * (LEAST_COPIES + 1)

_FENCE = re.compile(r"\s*```[A-Za-z0-9_-]*[ \t]*\r?\n(.*?)\r?\n?```\s*", re.DOTALL)
_NUMBER = re.compile(
    r"(?:(?<![\w.])[-+])?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?|(?<![\w.])[-+]?\.\d+"
)


def is_repeating(text: str) -> bool:
    """Return whether the text ends in a loop: one passage of at most 200 characters, again and again.

    At least four times, over at least 200 characters; the last copy may be cut, as a limit of tokens cuts it. Blanks
    at the very end are left aside.
    """
    tail = text.rstrip()[-_LOOKED_AT:][::-1]
    matches = _matches_with_itself(tail)
    return any(
        unit + matches[unit] >= max(LEAST_LOOP, LEAST_COPIES * unit)
        for unit in range(1, min(LONGEST_UNIT, len(tail) - 1) + 1)
    )


def _matches_with_itself(text: str) -> list[int]:
    """Return for each place how many characters from there on equal those from the start (the Z function)."""
    lengths = [0] * len(text)
    left = right = 0
    for place in range(1, len(text)):
        length = min(right - place, lengths[place - left]) if place < right else 0
        while place + length < len(text) and text[length] == text[place + length]:
            length += 1
        lengths[place] = length
        if place + length > right:
            left, right = place, place + length
    return lengths


def last_number(text: str) -> float | None:
    """Return the last number of a text, None without one; `1,234.5` and `1e3` are numbers."""
    found = None
    for match in _NUMBER.finditer(text):
        found = match[0]
    return None if found is None else float(found.replace(",", ""))


def unfenced(text: str) -> str:
    """Return what stands in a text that is one fenced block of Markdown; else the text."""
    match = _FENCE.fullmatch(text)
    return text if match is None else match[1]


def read_json(text: str) -> object:
    """Return the value of JSON after RFC 8259: NaN and Infinity are none.

    Raises ValueError for anything else, and for nesting that is too deep to read.
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


def _no_number(word: str) -> object:
    msg = f"{word} is no JSON number"
    raise ValueError(msg)
