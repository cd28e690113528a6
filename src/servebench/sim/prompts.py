"""Know how a prompt becomes tokens and block keys without a tokenizer.

One token is four bytes of UTF-8, rounded up at the end of the prompt. A chat is first laid out as text, one line of
role before each message and one for the answer to come, which costs three to five tokens a message. The key of a block
covers the 64 bytes of its 16 tokens and the key before it, so two prompts share keys exactly as far as they share whole
blocks.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from servebench.sim.parameters import BLOCK_TOKENS

BYTES_PER_TOKEN = 4

_KEY_BYTES = 12


class Prompt(NamedTuple):
    """A prompt as the engine sees it: its length, the keys of its full blocks, and a digest of all of it."""

    tokens: int
    keys: list[bytes]
    digest: bytes


def chat_text(messages: Iterable[tuple[str, str]]) -> bytes:
    """Return the laid-out text of (role, content) messages, ready for the answer."""
    parts = [f"<|{role}|>\n{content}\n" for role, content in messages]
    return ("".join(parts) + "<|assistant|>\n").encode()


def read_prompt(text: bytes, bytes_per_token: int = BYTES_PER_TOKEN) -> Prompt:
    """Return the length and block keys of `text`; an empty text counts as one token, as a start token would."""
    width = BLOCK_TOKENS * bytes_per_token
    keys: list[bytes] = []
    key = b""
    for start in range(0, len(text) - width + 1, width):
        key = hashlib.blake2b(text[start : start + width], digest_size=_KEY_BYTES, key=key).digest()
        keys.append(key)
    digest = hashlib.blake2b(text[len(keys) * width :], digest_size=_KEY_BYTES, key=key).digest()
    return Prompt(max(1, -(-len(text) // bytes_per_token)), keys, digest)
