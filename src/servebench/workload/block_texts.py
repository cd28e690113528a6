"""Know how the blocks of a trace become prompts that share text exactly where the recorded ones did.

A server's prefix cache reuses what equal beginnings have in common. Rows whose first blocks have the same ids get the
same text for these blocks, and different text from the first different id on. Lengths are those of the estimator, so a
block of 512 tokens may be 510 or 515 by the server's tokenizer; its share of the whole hardly changes.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from servebench.workload.filler import Filler
from servebench.workload.lengths import NONE
from servebench.workload.rows import Ints, Tokens, Trace
from servebench.workload.tokens import token_weight

JOIN = "\n"

Floats = npt.NDArray[np.float64]


class BlockTexts:
    """The prompts of a trace's rows; holds numbers of blocks, no texts."""

    def __init__(self, trace: Trace, filler: Filler) -> None:
        """Take what prompts are made of; raises ValueError for a trace without blocks."""
        if trace.blocks is None:
            msg = f"{trace.path} has no blocks"
            raise ValueError(msg)
        self._blocks, self._inputs, self._filler = trace.blocks, trace.input_tokens, filler
        self._join_weight = token_weight(JOIN)

    def __len__(self) -> int:
        return len(self._inputs)

    @property
    def sha256(self) -> str:
        """Digest of which row is made of which blocks."""
        digest = hashlib.sha256()
        for column in (self._blocks.first, self._blocks.last, self._blocks.ids, self._blocks.tokens, self._inputs):
            digest.update(column.tobytes())
        return digest.hexdigest()

    def reused(self, rows: Ints, input_tokens: Tokens) -> tuple[Floats, Floats]:
        """Return the tokens of each row, and how many lie in blocks that came earlier with all blocks before them."""
        numbers: dict[tuple[int, int], int] = {}
        sent = np.where(input_tokens == NONE, self._inputs[rows], input_tokens).astype(np.float64)
        found = np.zeros(len(rows), dtype=np.float64)
        for index, row in enumerate(rows.tolist()):
            left, chain, seen = int(sent[index]), 0, True
            first, last = int(self._blocks.first[row]), int(self._blocks.last[row])
            blocks = zip(self._blocks.ids[first:last].tolist(), self._blocks.tokens[first:last].tolist(), strict=True)
            for block, size in blocks:
                if left <= 0:
                    break
                tokens = min(size, left)
                left -= tokens
                # A chain of blocks has a number of its own; a block cut by the input's length is still its beginning.
                number = numbers.get((chain, block))
                seen = seen and number is not None
                found[index] += tokens if seen else 0
                chain = numbers.setdefault((chain, block), len(numbers) + 1)
        return sent, found

    def text(self, row: int, input_tokens: int | None) -> str:
        """Return the prompt of a row, cut to `input_tokens`; None: as long as recorded.

        What a row has beyond its blocks is a text of its own.
        """
        left = int(self._inputs[row]) if input_tokens is None else input_tokens
        parts: list[str] = []
        for at in range(int(self._blocks.first[row]), int(self._blocks.last[row])):
            if left <= 0:
                break
            tokens = min(int(self._blocks.tokens[at]), left)
            parts.append(self._filler.block(int(self._blocks.ids[at]), tokens - self._join_weight))
            left -= tokens
        if left > 0:
            # Ids of blocks count from 0; a negative number is nobody's block.
            parts.append(self._filler.block(-1 - row, left))
        return JOIN.join(parts)
