"""Know which failed attempts are made again, and after which pause."""

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer
from servebench.core.units import NS_PER_S
from servebench.loadgen.transport.exchange import Exchange
from servebench.workload.model import Retrying

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may pass: the server was busy, starting or broken, and no answer had begun."""

MAX_REDIRECTS = 5


def pause_s(answer: Answer, retry: int, policy: Retrying = Retrying()) -> float | None:  # noqa: B008 - immutable
    """Return how long to wait before the `retry`-th repetition (from 1); None = do not repeat.

    The server's own Retry-After, else the policy's first pause, doubled with each retry.
    """
    passing = answer.outcome is Outcome.CONNECT_ERROR or (
        answer.outcome is Outcome.HTTP_ERROR and answer.http_status in (policy.statuses or RETRIED_STATUSES)
    )
    if not passing:
        return None
    wanted = answer.retry_after_s
    if wanted is None:
        return min(policy.pause_ns * 2.0 ** (retry - 1), policy.longest_ns) / NS_PER_S
    return wanted if wanted * NS_PER_S <= policy.longest_ns else None  # else the run would end long after its load


class Course:
    """The attempts of one request: which it is (`attempt`, from 0) and where it goes (`path`, None = as planned).

    `retries` attempts may follow a failure; redirects within the target are followed where `redirects` says so, each
    as an attempt of its own, so that a row stands for everything that was sent.
    """

    __slots__ = ("_hops", "_policy", "_redirects", "_retried", "_retries", "attempt", "path")

    def __init__(self, retries: int, *, redirects: bool, policy: Retrying = Retrying()) -> None:  # noqa: B008
        self._retries, self._redirects, self._policy = retries, redirects, policy
        self._retried = self._hops = 0
        self.attempt = 0
        self.path: str | None = None

    def pause_after_s(self, done: Exchange, *, in_budget: bool = True) -> float | None:
        """Go on to the next attempt and return how long to wait before it; None = that was the last.

        Not `in_budget`: no retry may be sent now; a redirect may.
        """
        pause: float | None = None
        if self._redirects and done.redirected_to is not None and self._hops < MAX_REDIRECTS:
            self._hops += 1
            self.path = done.redirected_to
            pause = 0.0
        elif in_budget and self._retried < self._retries:
            pause = pause_s(done.answer, self._retried + 1, self._policy)
            self._retried += pause is not None
        if pause is not None:
            self.attempt += 1
        return pause
