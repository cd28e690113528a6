"""Know which KV blocks are in use, which are free, and which free ones still hold a known prefix.

As in vLLM, a freed block keeps its content until it is needed again: the free list is in order of last use, a new block
is taken from its old end, and a prompt whose leading blocks are still there (in use or free) shares them. A block is
known by a key that covers it and everything before it, so equal keys mean equal prefixes.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Reference-counted KV blocks with a least-recently-used prefix cache."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._references = [0] * total
        self._keys: list[bytes | None] = [None] * total
        self._by_key: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(total))

    @property
    def free(self) -> int:
        """Blocks that no sequence holds, with or without cached content."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that at least one sequence holds."""
        return self.total - len(self._free)

    def match(self, keys: Sequence[bytes]) -> list[int]:
        """Return the blocks of the longest known prefix of `keys`; holds nothing yet."""
        found = []
        for key in keys:
            block = self._by_key.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def free_without(self, blocks: Iterable[int]) -> int:
        """Return how many blocks would be free if `blocks` were held."""
        return len(self._free) - sum(1 for block in blocks if not self._references[block])

    def hold(self, blocks: Iterable[int]) -> None:
        """Add one holder to each of `blocks`."""
        for block in blocks:
            if not self._references[block]:
                del self._free[block]
            self._references[block] += 1

    def take(self, count: int) -> list[int]:
        """Return `count` blocks with one holder each; the content they had is forgotten.

        Raises KeyError when fewer are free: the caller asks `free` first.
        """
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            key = self._keys[block]
            if key is not None:
                del self._by_key[key]
                self._keys[block] = None
            self._references[block] = 1
            taken.append(block)
        return taken

    def remember(self, block: int, key: bytes) -> None:
        """Let later prompts find a held block by `key`; the first block of a key keeps it."""
        if key not in self._by_key:
            self._by_key[key] = block
            self._keys[block] = key

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one holder of each; the end of a prefix becomes the first to be reused."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._free[block] = None
