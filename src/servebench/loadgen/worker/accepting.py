"""Know how answers are checked beside the load: sent to a process of the run's own, their findings put into the rows.

Nothing here runs a check. A process that ends, or holds one answer far past its time, is replaced; the answer that it
was at is left open and named, the others go to the next process. So no check can stop a run.
"""

import dataclasses
import logging
import time
from collections.abc import Sequence

import gevent
from gevent.event import AsyncResult

from servebench.acceptance.given import Given, unchecked
from servebench.acceptance.letters import Finding, Question, letter
from servebench.core.errors import InputError
from servebench.core.outcomes import Outcome, TokenSource
from servebench.core.records import Answer, RequestRecord
from servebench.core.units import NS_PER_S
from servebench.loadgen.worker.checking_process import CheckingProcess
from servebench.workload.checks import DEFAULT_LIMIT_NS, Check, checks_of, limit_ns

log = logging.getLogger(__name__)

MAX_WAITING_BYTES = 64 << 20
"""Memory for answers that wait; those above are not checked, because the load must not wait for the checks."""
MAX_ENDS = 5
"""Times that the process may end on its own before no further one is started."""
GRACE_NS = 2 * NS_PER_S
"""Past an answer's limit; by then the process should have interrupted itself."""
LOOK_EVERY_S = 0.25


class _Waiting:
    """A question that has no finding yet."""

    __slots__ = ("checks", "data", "finding")

    def __init__(self, data: bytes, checks: bytes) -> None:
        self.data, self.checks = data, checks
        self.finding: AsyncResult[Finding] = AsyncResult()


class AnswerChecker:
    """The checks of one run on one worker; all methods are for greenlets of one hub, and none blocks the hub.

    `of_prompts`: prompts have checks of their own. `open` before the load, `close` after it: what waits then is left
    open. Where nothing is asked there is no process.
    """

    def __init__(self, checks: Sequence[Check], *, of_prompts: bool) -> None:
        self._checks = tuple(checks)
        self._asked = bool(checks) or of_prompts
        self._process: CheckingProcess | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._waiting_bytes = 0
        self._numbers = 0
        self._ends = 0
        self._head_since_ns = 0
        self._over: str | None = "the checks were not begun"

    def open(self) -> None:
        """Start the process; blocks the calling greenlet until it is ready. Raises InputError with what is wrong."""
        if not self._asked:
            return
        self._process = CheckingProcess(self._checks, self._found, self._lost)
        self._over = None
        gevent.spawn(self._watch)

    def wants(self, answer: Answer, prompt_checks: bytes) -> bool:
        """Whether this answer is to be checked: it came whole, and something is asked of it."""
        return answer.outcome is Outcome.OK and bool(self._checks or prompt_checks)

    def checked(self, record: RequestRecord, prompt_checks: bytes) -> RequestRecord:
        """Return the record with what came of its checks; blocks the calling greenlet."""
        answer = record.answer
        if answer.text is None:
            return _left_open(record, "the answer is no text, or too long to be kept")
        given = Given(
            text=answer.text,
            tools=answer.tools,
            finish_reason=answer.finish_reason,
            tokens=_tokens(record),
            prompt_id=record.ask.prompt_id,
        )
        finding = self._ask(given, prompt_checks)
        if isinstance(finding, str):
            return _left_open(record, finding)
        return dataclasses.replace(
            record,
            accepted=finding.accepted,
            accept_reason=finding.reason,
            validated_ns=answer.end_ns + finding.spent_ns if finding.accepted is not None else None,
        )

    def close(self) -> None:
        """End the process; blocks the calling greenlet for at most 2 s."""
        self._give_up("the run ended before")
        if self._process is not None:
            self._process.close()

    def _ask(self, given: Given, prompt_checks: bytes) -> Finding | str:
        """Return the finding, or why there will be none."""
        if self._over is not None:
            return self._over
        self._numbers += 1
        number = self._numbers
        waiting = _Waiting(letter(Question(number=number, given=given, checks=prompt_checks)), prompt_checks)
        if self._waiting_bytes + len(waiting.data) > MAX_WAITING_BYTES:
            return "the checks are slower than the answers come"
        if not self._waiting:
            self._head_since_ns = time.monotonic_ns()
        self._waiting[number] = waiting
        self._waiting_bytes += len(waiting.data)
        if self._process is not None:  # else one is being started, and gets all that waits
            self._process.send(waiting.data)
        finding = waiting.finding.get()
        assert finding is not None
        return finding

    def _found(self, finding: Finding) -> None:
        waiting = self._waiting.pop(finding.number, None)
        self._head_since_ns = time.monotonic_ns()
        if waiting is not None:
            self._waiting_bytes -= len(waiting.data)
            waiting.finding.set(finding)

    def _lost(self, process: CheckingProcess, why: str) -> None:
        """Replace the process; the answer that it was at is left open."""
        if self._over is not None or process is not self._process:
            return
        log.error("the checking process %s", why)
        self._ends += 1
        self._process = None
        if self._waiting:
            self._leave_open(next(iter(self._waiting)), f"the checking process {why}")
        if self._ends > MAX_ENDS:
            self._give_up(f"the checking process ended {self._ends} times; it {why}")
            return
        try:
            successor = CheckingProcess(self._checks, self._found, self._lost)
        except (InputError, OSError) as error:
            self._give_up(f"the checking process cannot be started again: {error}")
            return
        if self._over is not None:
            successor.close()
            return
        self._process = successor
        self._head_since_ns = time.monotonic_ns()
        for waiting in self._waiting.values():
            successor.send(waiting.data)

    def _give_up(self, why: str) -> None:
        """Check nothing from now on; what waits is left open."""
        self._over = self._over or why
        for number in list(self._waiting):
            self._leave_open(number, why)

    def _leave_open(self, number: int, why: str) -> None:
        self._found(Finding(number=number, accepted=None, reason=unchecked(why), spent_ns=0))

    def _watch(self) -> None:
        """End a process that is far too long at one answer; its loss then goes on as any other."""
        while self._over is None:
            gevent.sleep(LOOK_EVERY_S)
            process = self._process
            if process is None or not self._waiting:
                continue
            over_ns = time.monotonic_ns() - self._head_since_ns - GRACE_NS
            if over_ns > 0 and over_ns > self._limit_ns(next(iter(self._waiting.values()))):
                process.kill()

    def _limit_ns(self, waiting: _Waiting) -> int:
        own = limit_ns(checks_of(waiting.checks)) if waiting.checks else None
        return own or limit_ns(self._checks) or DEFAULT_LIMIT_NS


def _tokens(record: RequestRecord) -> int | None:
    """Return how long the answer is; events are no tokens, so without usage or a count of our own nobody knows."""
    by_usage = record.answer.token_source is TokenSource.USAGE
    return record.answer.output_tokens if by_usage else record.output_tokens_counted


def _left_open(record: RequestRecord, why: str) -> RequestRecord:
    return dataclasses.replace(record, accept_reason=unchecked(why))
