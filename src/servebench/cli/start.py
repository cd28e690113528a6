"""Know how the command begins and ends: a Ctrl-C while Python loads or leaves is answered by one line.

In between KeyboardInterrupt does it, which cleans up. While modules are loaded it would come out anywhere, as a
traceback or as what some library makes of it, and there is nothing to clean up yet.
"""

import os
import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run this process's command line and exit with its code."""
    signal.signal(signal.SIGINT, _leave)
    from servebench.cli.main import main as command

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        _leave(signal.SIGINT, None)
    finally:
        signal.signal(signal.SIGINT, _leave)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)
