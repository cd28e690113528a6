"""Know running text to fill prompts with, its words counted, so that a slice of n tokens is two look-ups.

Where a slice begins is chosen by a number, so that texts of different numbers do not share a prefix.
"""

import math
from array import array
from bisect import bisect_left

from servebench.workload.tokens import token_weight, word_ends

_WRAP = "\n"
_SCATTER = 2_654_435_761


class Filler:
    """A text that slices are cut out of; one that is too short begins again at its end."""

    def __init__(self, text: str) -> None:
        ends, weights = word_ends(text)
        self._text = text[: ends[-1]]
        # Cut points: the beginning, and behind each word. Slices begin at the blank behind a word, which is stripped.
        self._at = array("q", [0, *ends])
        self._weight = array("d", [0.0, *weights])
        self._join_weight = token_weight(_WRAP)
        self._names = sorted({word for word in self._text.split() if word.isalpha()}) or ["text"]
        self._step = _coprime(_SCATTER, self.words)

    @property
    def words(self) -> int:
        """Number of words, which is the number of places where a slice may begin."""
        return len(self._at) - 1

    def cut(self, first: int, wanted: float) -> str:
        """Return a slice of about `wanted` tokens from word number `first` on; longer ones begin with shorter ones."""
        words = self.words
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

    def block(self, number: int, wanted: float) -> str:
        """Return the text of a block by its number: no two numbers below a few hundred million have the same one.

        About `wanted` tokens, at least a word; a shorter block of the same number is the beginning of a longer one.
        """
        again, place = divmod(number, self.words)
        name = self._names[again % len(self._names)]
        rest = wanted - token_weight(name)
        return f"{name} {self.cut(place * self._step % self.words, rest)}" if rest >= 1 else name


def _coprime(start: int, number: int) -> int:
    """Return the first number from `start` on that shares no factor with another: stepping by it reaches everything."""
    while math.gcd(start, number) != 1:
        start += 1
    return start
