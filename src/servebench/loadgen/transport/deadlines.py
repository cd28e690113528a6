"""Know which of a request's four deadlines runs when, and when a user loses patience."""

from typing import NamedTuple

from servebench.core.units import NS_PER_MS, format_duration
from servebench.wire.outcome import End
from servebench.workload.model import Timeouts

NEVER = 2**63 - 1

LINGER_NS = 200 * NS_PER_MS
"""How long an answer that is over waits for the end of its HTTP message, which frees the connection."""


class Alarm:
    """When the earliest deadline of all requests may pass; before it, none needs to be looked at."""

    __slots__ = ("at_ns",)

    def __init__(self) -> None:
        self.at_ns = NEVER

    def set(self, due_ns: int) -> None:
        """Go off at a time, or earlier if that was asked for."""
        self.at_ns = min(self.at_ns, due_ns)


class Progress(NamedTuple):
    """How far a request has come; times in monotonic ns, None = did not happen.

    `connecting_ns`: when the attempt now under way began, None while a connection is up. `token_due`: a streamed answer
    was asked for and its first token has not come. `done_ns`: when the answer was over, so that nothing can change it.
    """

    connecting_ns: int | None
    sent_ns: int | None
    last_read_ns: int | None
    token_due: bool
    done_ns: int | None


class Patience(NamedTuple):
    """When a user leaves an answer: so long after sending, or with so many token events; None = not for that."""

    after_ns: int | None
    token_events: int | None


ENDLESS = Patience(None, None)


def deadline_words(end: End, timeouts: Timeouts) -> str | None:
    """Return which limit a request passed and where it is set; None for an end that is no deadline of the workload."""
    limits = {
        End.TIMEOUT_CONNECT: ("no connection within", timeouts.connect_ns, "connect"),
        End.TIMEOUT_FIRST_TOKEN: ("no token came within", timeouts.first_token_ns, "first_token"),
        End.TIMEOUT_IDLE: ("nothing came for", timeouts.idle_ns, "idle"),
        End.TIMEOUT_TOTAL: ("not over after", timeouts.total_ns, "total"),
    }
    if end not in limits:
        return None
    words, limit_ns, name = limits[end]
    return f"{words} {format_duration(limit_ns)} (requests.timeouts.{name})"


def next_deadline(progress: Progress, timeouts: Timeouts, patience: Patience = ENDLESS) -> tuple[int, End]:
    """Return the earliest deadline that runs, in monotonic ns, and how the request ends when it passes.

    The idle deadline runs from the last read once the first token is there: before it, silence is the server thinking,
    which the first-token deadline bounds. NEVER where none runs.
    """
    connecting, sent, last_read, token_due, done = progress
    running: list[tuple[int, End]] = []
    if connecting is not None:
        running.append((connecting + timeouts.connect_ns, End.TIMEOUT_CONNECT))
    if sent is not None:
        running.append((sent + timeouts.total_ns, End.TIMEOUT_TOTAL))
        if patience.after_ns is not None:
            running.append((sent + patience.after_ns, End.ABANDONED))
        if token_due:
            running.append((sent + timeouts.first_token_ns, End.TIMEOUT_FIRST_TOKEN))
        elif last_read is not None:
            running.append((last_read + timeouts.idle_ns, End.TIMEOUT_IDLE))
    if done is not None:
        running.append((done + LINGER_NS, End.COMPLETE))
    return min(running, default=(NEVER, End.TIMEOUT_TOTAL))
