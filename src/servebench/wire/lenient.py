"""Know how to read JSON that a strict decoder refuses although nothing that matters is wrong with it.

Servers send NaN and Infinity inside log probabilities, content as a list of parts, and lone surrogates: halves of one
character where an event ends inside it. This path is taken only after the strict one failed.
"""

import json
from typing import Any

from servebench.wire.endpoint import PayloadError

EXCERPT_BYTES = 500
MAX_LENIENT_BYTES = 1 << 20
"""Longest payload that gets a second try: as Python objects it may take twenty times its length."""

_MAX_ERROR_DEPTH = 4


def load_object(payload: bytes) -> dict[str, Any]:
    """Return the JSON object in a payload, non-finite numbers allowed; lone surrogates stay in values (see `sound`).

    Raises PayloadError, with a bounded excerpt, for anything else, and for what is longer than MAX_LENIENT_BYTES.
    """
    if len(payload) > MAX_LENIENT_BYTES:
        msg = f"{len(payload)} bytes that are not as the dialect has them: {excerpt(payload, 300)}"
        raise PayloadError(msg)
    try:
        value = _with_sound_keys(json.loads(payload.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        msg = f"no JSON ({type(error).__name__}): {excerpt(payload)}"
        raise PayloadError(msg) from None
    if not isinstance(value, dict):
        msg = f"no JSON object: {excerpt(payload)}"
        raise PayloadError(msg)
    return value


def sound(text: str) -> str:
    """Return text that can be encoded: halves of a character that met are joined, those left alone are replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _with_sound_keys(value: object) -> object:
    """Return a JSON value whose keys can be encoded."""
    if isinstance(value, list):
        return [_with_sound_keys(item) for item in value]
    if isinstance(value, dict):
        return {sound(key): _with_sound_keys(item) for key, item in value.items()}
    return value


def excerpt(data: bytes, limit: int = EXCERPT_BYTES) -> str:
    """Return the first bytes as text of at most `limit` bytes, what is no UTF-8 replaced."""
    return clip(data[:limit].decode("utf-8", "replace"), limit)


def clip(text: str, limit: int = EXCERPT_BYTES) -> str:
    """Return text of at most `limit` bytes of UTF-8, lone surrogates replaced."""
    return text[:limit].encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def join_parts(value: object) -> str | None:
    """Return content as text: a string as it is, a list of parts by their text; None for anything else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    texts = (part.get("text") if isinstance(part, dict) else part for part in value)
    return "".join(text for text in texts if isinstance(text, str))


def error_text(value: object) -> str:
    """Return what an error says: a string itself, else its message, else its JSON."""
    for _ in range(_MAX_ERROR_DEPTH):
        if isinstance(value, str):
            return clip(value)
        if not isinstance(value, dict):
            break
        inner = (value[key] for key in ("message", "detail", "error", "msg") if key in value)
        found = next((text for text in inner if isinstance(text, str | dict) and text), None)
        if found is None:
            break
        value = found
    try:
        return clip(json.dumps(value, ensure_ascii=False))
    except (ValueError, RecursionError):
        return "an error too deep to quote"


def body_error_text(payload: bytes) -> str:
    """Return what the body of a failed request says: the message of its JSON, else its first bytes."""
    try:
        return error_text(load_object(payload))
    except PayloadError:
        return excerpt(payload)
