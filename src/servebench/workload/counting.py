"""Know how many tokens a text has by a tokenizer: the user's own file, OpenAI's o200k, or no tokenizer but an estimate.

Making a counter takes time and memory and holds the GIL, so a worker makes it before its run begins: o200k takes 0.3 s
and 49 MiB. Counting takes 36 us for a thousand characters (o200k, which lets other threads run), 0.4 ms with a
tokenizer file.
"""

import lzma
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from servebench.core.errors import InputError
from servebench.core.outcomes import CountedSource
from servebench.core.records import Answer
from servebench.workload.tokens import estimate_tokens

if TYPE_CHECKING:
    from tiktoken import Encoding
    from tokenizers import Tokenizer

BLOCK_CHARS = 50_000
"""Longest text that a tokenizer gets at once: some take quadratic time over a text without any blank."""

_LETTERS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K_PATTERN = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?{_LETTERS}*{_SMALL}+{_SUFFIX}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_LETTERS}+{_SMALL}*{_SUFFIX}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""How o200k cuts a text into pieces before it merges bytes; part of the vocabulary's definition."""


class TokenCounter(Protocol):
    """Count the tokens of a text; `source` says by what."""

    @property
    def source(self) -> CountedSource:
        """What the counts rest on; counts of different sources are never mixed."""
        ...

    def count(self, text: str) -> int:
        """Return how many tokens a text has, special tokens not among them; 0 only for the empty text."""
        ...


class Estimate:
    """Count by classes of characters (`workload.tokens`)."""

    source = CountedSource.ESTIMATE

    def count(self, text: str) -> int:
        """Return about how many tokens a text has."""
        return estimate_tokens(text)


class O200k:
    """Count by OpenAI's vocabulary o200k_base, which the package holds; raises ImportError without tiktoken."""

    source = CountedSource.O200K

    def __init__(self) -> None:
        self._encoding = _o200k()

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        return sum(len(self._encoding.encode_ordinary(block)) for block in blocks(text))


class TokenizerFile:
    """Count by a `tokenizer.json` of the user's; raises InputError where it cannot be used."""

    source = CountedSource.TOKENIZER

    def __init__(self, path: Path) -> None:
        self._tokenizer = _tokenizer(path)

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        return sum(len(self._tokenizer.encode(block, add_special_tokens=False).ids) for block in blocks(text))


def token_counter(tokenizer: Path | None) -> TokenCounter:
    """Return the best counter there is: the file that is given, else o200k, else the estimate.

    Raises InputError where a file is given and cannot be used: another count than the one asked for would not be said.
    """
    if tokenizer is not None:
        return TokenizerFile(tokenizer)
    try:
        return O200k()
    except ImportError:
        return Estimate()


def count_answer(counter: TokenCounter, answer: Answer) -> int | None:
    """Return the tokens of all that an answer generated; None where its text was not kept.

    Texts of choices, reasoning and tool calls are counted one by one, so each may be a token off where the server's
    template joins them.
    """
    if answer.text is None:
        return None
    return sum(counter.count(text) for text in (answer.text, *answer.asides))


def blocks(text: str) -> Iterator[str]:
    """Yield a text in blocks of bounded length, each but the first beginning with a blank where there is one."""
    start = 0
    while len(text) - start > BLOCK_CHARS:
        stop = text.rfind(" ", start + 1, start + BLOCK_CHARS)
        stop = start + BLOCK_CHARS if stop < 0 else stop
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]


def o200k_ranks() -> dict[bytes, int]:
    """Return the vocabulary: byte sequence to rank, in the order of ranks. Reads the packed file, 0.2 s."""
    packed = resources.files("servebench.workload").joinpath("data", "tokens", "o200k_base.xz").read_bytes()
    data = lzma.decompress(packed)
    ranks: dict[bytes, int] = {}
    at = 0
    while at < len(data):
        stop = at + 1 + data[at]
        ranks[data[at + 1 : stop]] = len(ranks)
        at = stop
    return ranks


def _o200k() -> "Encoding":
    from tiktoken import Encoding

    ranks = o200k_ranks()
    encoding = Encoding("o200k_base", pat_str=O200K_PATTERN, mergeable_ranks=ranks, special_tokens={})
    # The encoding has tables of its own and keeps ours for pickling only: 30 MiB less in every worker.
    ranks.clear()
    return encoding


def _tokenizer(path: Path) -> "Tokenizer":
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        msg = f"--tokenizer {path} needs the package tokenizers.\n  try: pip install 'locust-servebench[tokenizer]'"
        raise InputError(msg) from error
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises Exception itself for every fault of a file
        msg = f"--tokenizer {path} cannot be read: {error}.\n  try: the path of a model's tokenizer.json"
        raise InputError(msg) from error
