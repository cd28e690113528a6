"""Know how a request ended: the end of the reading and what the answer said, to one outcome with its class."""

from enum import StrEnum
from typing import NamedTuple

from servebench.core.outcomes import Outcome


class End(StrEnum):
    """Why reading stopped. EOF = the server closed its side; RESET = the connection broke.

    ABANDONED = the user whom the request stands for had enough; CANCELLED = the run ended.
    """

    COMPLETE = "complete"
    EOF = "eof"
    RESET = "connection_reset"
    CONNECT_ERROR = "connect_error"
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"  # noqa: S105 - no password
    TIMEOUT_IDLE = "timeout_idle"
    TIMEOUT_TOTAL = "timeout_total"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


_REDIRECTS = frozenset({300, 301, 302, 303, 307, 308})
_TIMEOUTS = frozenset({End.TIMEOUT_CONNECT, End.TIMEOUT_FIRST_TOKEN, End.TIMEOUT_IDLE, End.TIMEOUT_TOTAL})

_GIVEN_UP = frozenset({End.CANCELLED, End.ABANDONED})


class Ruling(NamedTuple):
    """Outcome, finer class and message; both None when ok, the message also where nobody said anything."""

    outcome: Outcome
    error_class: str | None = None
    message: str | None = None


class Facts(NamedTuple):
    """What is known of a response when reading stops.

    `refusal` is what the body of a non-2xx response says. `fault` is what was wrong inside the answer. `terminal`:
    the dialect's own signal that the answer is over was seen. `evidence`: a token event or a finish reason was.
    `silent`: the body held nothing.
    """

    status: int | None
    received: int
    http_fault: str | None
    refusal: str | None
    fault: Ruling | None
    terminal: bool
    evidence: bool
    silent: bool


def judge(facts: Facts, end: End, detail: str | None) -> Ruling:
    """Return how the request ended. `detail` is what the system said about the end."""
    if facts.status is None:
        return _without_head(facts, end, detail)
    if not 200 <= facts.status < 300:
        name = "redirect" if facts.status in _REDIRECTS else f"http_{facts.status}"
        return Ruling(Outcome.HTTP_ERROR, name, facts.refusal)
    if facts.fault is not None:
        return facts.fault
    if facts.terminal:
        return Ruling(Outcome.OK) if facts.evidence else Ruling(Outcome.TRUNCATED, "empty_stream", detail)
    if facts.http_fault is not None:
        return Ruling(Outcome.MALFORMED, "malformed_http", facts.http_fault)
    return _unfinished(facts, end, detail)


def _without_head(facts: Facts, end: End, detail: str | None) -> Ruling:
    if facts.http_fault is not None:
        return Ruling(Outcome.MALFORMED, "malformed_http", facts.http_fault)
    if end in _TIMEOUTS or end in _GIVEN_UP or facts.received:
        return _unfinished(facts, end, detail)
    if end is End.RESET or end is End.CONNECT_ERROR:
        return Ruling(Outcome.CONNECT_ERROR, end.value, detail)
    return Ruling(Outcome.CONNECT_ERROR, "no_response", detail)


def _unfinished(facts: Facts, end: End, detail: str | None) -> Ruling:
    if end in _TIMEOUTS:
        return Ruling(Outcome.TIMEOUT, end.value, detail)
    if end in _GIVEN_UP:
        return Ruling(Outcome.CANCELLED, end.value, detail)
    if end is End.RESET:
        return Ruling(Outcome.TRUNCATED, end.value, detail)
    silent = facts.silent and facts.status is not None
    return Ruling(Outcome.TRUNCATED, "empty_stream" if silent else "truncated", detail)
