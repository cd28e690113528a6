"""Know the prompts: all of them in one block of text, rendered at a wanted length and in the wanted cache state.

Prompt sets are short (about 40 tokens) against real traffic (about 1,000), so a longer input is the prompt behind a
slice of running text. The slice begins at a word that prompt and length choose, so that prompts do not share a prefix
more than their texts do; it ends at the word that brings the estimate to the wanted count. A declared shared prefix
comes before that, the same for all prompts; a run's salt comes first of all, so that nothing of earlier runs matches.
"""

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from servebench.core.errors import InputError
from servebench.core.records import Message
from servebench.workload.block_texts import BlockTexts
from servebench.workload.builtin import PREFIX, read_data
from servebench.workload.filler import Filler
from servebench.workload.model import Prompts, Workload
from servebench.workload.prompt_files import JOIN, Talk, read_talks
from servebench.workload.tokens import estimate_tokens, token_weight
from servebench.workload.traces import read_trace

FILLER = PREFIX + "shakespeare"
_SALT_DIGITS = 16


class PromptSet:
    """All prompts of a workload, numbered from 0 through its sources in their order.

    `starts` says at which prompts conversations begin, and ends with the number of prompts. `replies` is the length of
    the reply to each prompt in the file, int32, where the workload asks for that. `skipped` counts rows of dumps that
    are no prompts, by reason. `blocks` is set where prompts are made of a trace's rows.
    """

    def __init__(
        self, pile: "Pile", filler: Filler, *, blocks: BlockTexts | None = None, shared_share: float = 0.0
    ) -> None:
        """Hold what was read; `blocks` are the prompts of a trace, in place of those of the pile."""
        self._blob, self._offsets = pile.blob, pile.offsets
        # Estimated when asked for: a million prompts are loaded in the time that reading them takes.
        self._weights = array("d", [math.nan]) * len(pile)
        self._filler, self.blocks, self.shared_share = filler, blocks, shared_share
        self._join_weight = token_weight(JOIN)
        self._salt = ""
        self._checks = pile.checks
        self.skipped = dict(pile.skipped)
        self.replies = None if pile.replies is None else np.array(pile.replies, dtype=np.int32)
        begins = np.array(pile.starts, dtype=np.int64)
        self.starts: npt.NDArray[np.int64] = np.append(begins, len(pile))
        if blocks is not None:
            self.starts = np.arange(len(blocks) + 1, dtype=np.int64)

    @classmethod
    def of(cls, texts: Iterable[str], filler: str, starts: Iterable[int] | None = None) -> "PromptSet":
        """Return a set of these texts; `starts` says at which of them conversations begin, None: each is one."""
        pile = Pile()
        for text in texts:
            pile.add((text,))
        if starts is not None:
            pile.starts = array("q", starts)
        return cls(pile, Filler(filler))

    @classmethod
    def load(cls, prompts: Prompts) -> "PromptSet":
        """Read every source of a workload's prompts.

        Raises SpecError with the faults of a file, at most 20 of them, and InputError where one cannot be read.
        """
        talk = prompts.conversation
        whole = talk is not None and talk.turns.law == "prompt"
        by_reply = prompts.output_tokens.kind == "reply"
        filler, pile = Filler(read_data(FILLER).decode()), Pile(replies=array("i") if by_reply else None)
        blocks = None
        for source in prompts.sources:
            if source.kind == "trace" and prompts.lengths_trace is not None:
                blocks = BlockTexts(read_trace(prompts.lengths_trace), filler)
                continue
            rows = read_talks(source, pile.skipped)
            for row in _first_turns(rows) if source.kind == "oasst" and not whole else rows:
                pile.add(row.turns if whole else row.turns[:1], row.reply, row.checks)
        if not len(pile) and blocks is None:
            reasons = ", ".join(f"{count} {reason}" for reason, count in pile.skipped.items())
            msg = f"{', '.join(source.path for source in prompts.sources)}: no usable prompt (skipped: {reasons})"
            raise InputError(msg)
        return cls(pile, filler, blocks=blocks, shared_share=prompts.shared_share)

    def __len__(self) -> int:
        return len(self._weights) if self.blocks is None else len(self.blocks)

    @property
    def sha256(self) -> str:
        """Digest of all prompts in order; equal on two machines that will send the same texts."""
        if self.blocks is not None:
            return self.blocks.sha256
        digest = hashlib.sha256(self._blob)
        digest.update(self._offsets.tobytes())
        return digest.hexdigest()

    def salt(self, run_id: str) -> None:
        """Put a text made from the run's id before every prompt from now on."""
        self._salt = salt_of(run_id)

    def text(self, prompt_id: int) -> str:
        """Return a prompt as it stands in its file, or of a trace as long as it was recorded."""
        if self.blocks is not None:
            return self.blocks.text(prompt_id, None)
        return self._blob[self._offsets[prompt_id] : self._offsets[prompt_id + 1]].decode()

    @property
    def has_checks(self) -> bool:
        """Whether any prompt asks something of its answer."""
        return bool(self._checks)

    def checks(self, prompt_id: int) -> bytes:
        """Return what a prompt asks of its answer, as JSON of `workload.checks`; empty where it asks nothing."""
        return self._checks.get(prompt_id, b"")

    def weight(self, prompt_id: int) -> float:
        """Return the tokens of a prompt as it stands, by estimate; not of one made of blocks."""
        weight = self._weights[prompt_id]
        if math.isnan(weight):
            weight = self._weights[prompt_id] = token_weight(self.text(prompt_id))
        return weight

    def messages(self, prompt_id: int, input_tokens: int | None) -> tuple[Message, ...]:
        """Return the messages to send, of about `input_tokens` tokens by `estimate_tokens`, without those of a salt.

        None, or fewer than the prompt has: the prompt alone, whole. A shared prefix keeps its share all the same.
        """
        if self.blocks is not None:
            return (Message("user", self._salt + self.blocks.text(prompt_id, input_tokens)),)
        text = self.text(prompt_id)
        front = ""
        if self.shared_share:
            wanted = max(input_tokens or 0, self.weight(prompt_id) / (1 - self.shared_share))
            front = self._filler.cut(0, wanted * self.shared_share - self._join_weight) + JOIN
            input_tokens = round(wanted * (1 - self.shared_share))
        if input_tokens is not None:
            room = input_tokens - self.weight(prompt_id) - self._join_weight
            if room >= 1:
                first = (prompt_id * 2_654_435_761 + input_tokens * 40_503) % self._filler.words
                text = self._filler.cut(first, room) + JOIN + text
        return (Message("user", self._salt + front + text),)


class Pile:
    """Prompts while they are read: bytes and numbers, no list of texts. With `replies`, only prompts that have one."""

    def __init__(self, replies: "array[int] | None" = None) -> None:
        self.blob = bytearray()
        self.offsets = array("q", [0])
        self.starts = array("q")
        self.replies = replies
        self.checks: dict[int, bytes] = {}
        self.skipped: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def add(self, turns: Sequence[str], reply: str | None = None, checks: bytes = b"") -> None:
        """Take the turns of one conversation; counts it as skipped where a reply is wanted and missing.

        `checks` are of the answer to the first turn.
        """
        if self.replies is not None and reply is None:
            self.skipped["no_reply"] += 1
            return
        self.starts.append(len(self))
        if checks:
            self.checks[len(self)] = checks
        for turn in turns:
            self.blob += turn.encode()
            self.offsets.append(len(self.blob))
            if self.replies is not None and reply is not None:
                self.replies.append(estimate_tokens(reply))


def load_prompts(workload: Workload, run_id: str) -> PromptSet:
    """Return a workload's prompts as one run sends them: salted where it declares a cold cache.

    Raises what `PromptSet.load` raises.
    """
    prompts = PromptSet.load(workload.prompts)
    if workload.target.cache == "cold":
        prompts.salt(run_id)
    return prompts


def salt_of(run_id: str) -> str:
    """Return the text that a run with a cold cache puts before every prompt; about 10 tokens."""
    return f"[{hashlib.sha256(run_id.encode()).hexdigest()[:_SALT_DIGITS]}]\n"


def _first_turns(talks: Iterable[Talk]) -> Iterator[Talk]:
    """Yield one of the ways that go out from one root, where only first turns are sent."""
    before: str | None = None
    for talk in talks:
        if talk.turns[0] != before:
            yield talk
        before = talk.turns[0]
