"""Know how wide a terminal is, and how lines are made to fit it where they are too wide."""

import os
import re
from typing import TextIO

_PASTED = ("try:", "Next", "Report", "Run:", "Probes", "servebench ", "Web page:")
"""Lines that begin so hold something to paste or to open, which a line end would cut in two."""
_LEAST = 20


def columns_of(stream: TextIO) -> int | None:
    """Return how many columns the stream's terminal has; None where it is none, or one that does not tell."""
    if not stream.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def fitted(text: str, columns: int | None) -> str:
    """Return a text whose lines have at most `columns` cells, broken at blanks; None = as it is.

    A line goes on two cells to the right of where it began. What is to be pasted stays whole.
    """
    if columns is None or columns < _LEAST:
        return text
    return "\n".join(part for line in text.split("\n") for part in _broken(line, columns))


def _broken(line: str, columns: int) -> list[str]:
    if len(line) * 2 <= columns or line.lstrip().startswith(_PASTED):
        return [line]
    from servebench.analysis.render import width

    further = " " * (len(line) - len(line.lstrip()) + 2)
    lines = [""]
    for word in re.findall(r"\s*\S+", line):  # with the blanks before it, which hold the columns of a table apart
        if lines[-1].strip() and width(lines[-1] + word) > columns:
            lines.append(further + word.lstrip())
        else:
            lines[-1] += word
    return lines
