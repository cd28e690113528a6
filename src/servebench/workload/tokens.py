"""Know how many tokens a text has, about, without a tokenizer.

tokens ~ sum over pieces of the text of a weight by class of the piece. The weights are a least-squares fit to the o200k
vocabulary: totals of English, code and Chinese come within 5 %, single prompts within 5 to 20 %, mixed languages 50 %.
The estimate is additive over pieces, which is what makes fitting a text to a length a binary search.
"""

import re

_PIECES = re.compile(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<digit>[0-9])"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])"
    r"|(?P<newlines>(?:\r?\n)+)"
    r"|(?P<blanks>[ \t]{2,})"
    r"|(?P<blank>\s)"
    r"|(?P<letter>[^\W\d_])"
    r"|(?P<other>.)",
    re.DOTALL,
)
_WEIGHTS: dict[str, float] = {
    "word": 1.12,
    "digit": 0.8,
    "cjk": 0.8,
    "newlines": 1.5,
    "blanks": 0.6,
    "blank": 0.0,
    "letter": 0.35,
    "other": 0.38,
}
"""Tokens per piece. A single blank belongs to the word behind it."""


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has; 0 only for the empty text."""
    return max(round(token_weight(text)), 1) if text else 0


def token_weight(text: str) -> float:
    """Return the estimate before rounding, in tokens."""
    return sum(_WEIGHTS[match.lastgroup or "other"] for match in _PIECES.finditer(text))


def word_ends(text: str) -> tuple[list[int], list[float]]:
    """Return where the words of a text end, and the estimate of the text up to there.

    Both lists have one entry per run of ASCII letters: the index behind its last letter, and tokens.
    """
    ends: list[int] = []
    weights: list[float] = []
    total = 0.0
    for match in _PIECES.finditer(text):
        kind = match.lastgroup or "other"
        total += _WEIGHTS[kind]
        if kind == "word":
            ends.append(match.end())
            weights.append(total)
    return ends, weights
