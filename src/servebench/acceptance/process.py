"""Know the checking process: it answers the questions of one worker in order, each within its time.

A process of its own, because a regular expression or a user's function may hold the interpreter for as long as it
runs, and the worker has streams to time. A timer interrupts what takes too long: Python code and `re` heed it. Where
code of another language does not, the worker ends the process.
"""

import os
import signal
import socket
import time
from contextlib import suppress
from types import FrameType

from servebench.acceptance.given import Verdict, unchecked
from servebench.acceptance.judge import Judge
from servebench.acceptance.letters import Finding, Opened, Opening, Question, Splitter, letter, opened
from servebench.core.errors import ServebenchError
from servebench.core.units import NS_PER_S, format_duration

READ_BYTES = 1 << 16
NICE = 5
"""Behind the worker, whose stamps come first."""
_AGAIN_S = 0.05
"""Between two interruptions, for a function that swallowed the first."""


class _TimeOverError(BaseException):
    """Not an Exception, so that a function's own `except Exception` lets it pass."""


class Timer:
    """Interrupts the main thread after a time; made once a process."""

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGALRM, self._ring)

    def verdict(self, judge: Judge, question: Question) -> Verdict:
        """Return the verdict on a question, or that it took too long."""
        try:
            limit_ns = judge.limit_ns(question.checks)
        except ServebenchError as error:  # checks of a prompt that cannot be applied
            return Verdict(reason=unchecked(error))
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, limit_ns / NS_PER_S, _AGAIN_S)
            try:
                return judge.verdict(question.given, question.checks)
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except _TimeOverError:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            return Verdict(reason=unchecked(f"took longer than {format_duration(limit_ns)}"))

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            raise _TimeOverError


def serve(descriptor: int) -> None:
    """Answer questions on a connected socket until the other side closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then still wants its last answers
    os.dup2(2, 1)  # what a user's function prints must not reach the output of a command
    os.nice(NICE)
    timer, judge, splitter = Timer(), None, Splitter()
    # A worker that is gone wants no answer any more.
    with suppress(ConnectionError), socket.socket(fileno=descriptor) as line:
        line.setblocking(True)  # made together with the worker's end, which does not block
        while data := line.recv(READ_BYTES):
            for message in splitter.feed(data):
                if judge is None:
                    judge, said = _open(message)
                    line.sendall(letter(said))
                else:
                    line.sendall(letter(_answer(timer, judge, opened(message, Question))))


def _open(message: bytes) -> tuple[Judge | None, Opened]:
    try:
        return Judge(opened(message, Opening).checks), Opened()
    except ServebenchError as error:
        return None, Opened(fault=str(error))


def _answer(timer: Timer, judge: Judge, question: Question) -> Finding:
    begin_ns = time.perf_counter_ns()
    verdict = timer.verdict(judge, question)
    return Finding(
        number=question.number,
        accepted=verdict.accepted,
        reason=verdict.reason,
        spent_ns=time.perf_counter_ns() - begin_ns,
    )
