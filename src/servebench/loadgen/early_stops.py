"""Know how a process ends that is told to go before anything in it listens: at once, by one line, with exit code 130.

Python's own answer to SIGINT is an exception wherever it just is, and Locust makes of it a traceback and exit code 1
until the last lines of its start. There is no run yet, so nothing has to be written. Locust and the roles put their own
handlers in this one's place.
"""

import contextlib
import os
import signal
from types import FrameType
from typing import NoReturn

from servebench.core.outcomes import ExitCode

STOPS = frozenset({signal.SIGINT, signal.SIGTERM})


def answer_stops() -> None:
    """Answer SIGINT and SIGTERM from now on; called by the locustfile.

    `servebench master` and `worker` block both before they become this process, so that none gets lost: it comes now.
    """
    for number in STOPS:
        signal.signal(number, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    with contextlib.suppress(OSError):  # nobody may read it any more
        os.write(2, b"interrupted before a run began\n")
    os._exit(ExitCode.INTERRUPTED)
