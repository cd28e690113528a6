"""Know what is checked of an answer, and what a check says of it."""

import msgspec

from servebench.core.records import ToolCall


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says, as checks and the user's own functions see it.

    `tokens` is None where nobody counted. `finish_reason` is the server's word, None where it gave none.
    """

    text: str
    tools: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    tokens: int | None = None
    prompt_id: int | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the checks. `accepted` None = it could not be told, and `reason` says why; both None = no checks."""

    accepted: bool | None = None
    reason: str | None = None


LONGEST_REASON = 120


def unchecked(why: BaseException | str) -> str:
    """Return the reason that stands in a row whose checks could not be applied."""
    text = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
    return f"not checked: {' '.join(text.split())[:LONGEST_REASON]}"
