"""Know how text is written where the terminal or the file does not speak UTF-8: in ASCII, never with an error."""

import codecs
import sys
import unicodedata

HANDLER = "servebench-ascii"
_SPOKEN = {
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{CHECK MARK}": "ok",
    "\N{BALLOT X}": "x",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{RIGHTWARDS ARROW}": "->",
    "\N{MIDDLE DOT}": "-",
    "\N{PLUS-MINUS SIGN}": "+/-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{FULL BLOCK}": "#",
    "\N{LIGHT SHADE}": ".",
}
"""Signs of our own; letters lose their accents, anything else becomes a question mark."""


def fit_streams() -> None:
    """Make stdout and stderr write what their encoding lacks in ASCII. For the start of a command."""
    codecs.register_error(HANDLER, _replaced)
    for stream in (sys.stdout, sys.stderr):
        encoding = getattr(stream, "encoding", None) or "utf-8"
        if not encoding.lower().replace("_", "-").startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=HANDLER)


def in_ascii(text: str) -> str:
    """Return a text without what ASCII lacks."""
    return "".join(_one(character) for character in text)


def _one(character: str) -> str:
    if character.isascii():
        return character
    if character in _SPOKEN:
        return _SPOKEN[character]
    bare = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return bare or ("" if unicodedata.combining(character) else "?")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object[error.start : error.end]), error.end
