"""Know how text is written where the terminal or the file does not speak UTF-8: in ASCII, never with an error."""

import codecs
import os
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path

HANDLER = "servebench-ascii"
CODEC = "servebench_ascii"
"""Has a name of its own: click takes a stream in "ascii" for a mistake and writes UTF-8 into it."""
_LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")
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
    codecs.register(_codec)
    plain = asks_for_ascii(_first_environment())
    for stream in (sys.stdout, sys.stderr):
        encoding = codecs.lookup(getattr(stream, "encoding", None) or "utf-8").name
        if not hasattr(stream, "reconfigure"):
            continue
        if encoding == "ascii" or (plain and encoding == "utf-8"):
            stream.reconfigure(encoding=CODEC)
        elif not encoding.startswith("utf"):
            stream.reconfigure(errors=HANDLER)


def asks_for_ascii(environment: Mapping[str, str]) -> bool:
    """Say whether the locale is C or POSIX by name. Where none is set, or Python was told otherwise, it is not."""
    if environment.get("PYTHONIOENCODING") or environment.get("PYTHONUTF8"):
        return False
    told = next((value for name in _LOCALE if (value := environment.get(name))), "")
    return told in {"C", "POSIX"}


def _first_environment() -> dict[str, str]:
    """Return the environment that this process was started with: Python itself writes LC_CTYPE=C.UTF-8 over LANG=C."""
    try:
        pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    return {name: value for name, _, value in (os.fsdecode(pair).partition("=") for pair in pairs)}


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


class _Encoder(codecs.IncrementalEncoder):
    def encode(self, text: str, final: bool = False) -> bytes:
        return in_ascii(text).encode("ascii")


def _codec(name: str) -> codecs.CodecInfo | None:
    if name != CODEC:
        return None
    return codecs.CodecInfo(
        lambda text, _errors="strict": (in_ascii(text).encode("ascii"), len(text)),
        codecs.ascii_decode,
        incrementalencoder=_Encoder,
        incrementaldecoder=codecs.lookup("ascii").incrementaldecoder,  # asked for, though nothing is read
        name=CODEC,
    )


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object[error.start : error.end]), error.end
