"""Know how often the user asked to stop."""

import signal
from types import FrameType, TracebackType
from typing import Any

# SIGHUP is a closed terminal: children have sessions of their own and would run on without it. SIGQUIT is Ctrl-\, which
# would leave the terminal without its cursor.
_ASKS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Stops:
    """Counts SIGINT, SIGTERM, SIGHUP and SIGQUIT while it is entered; the handlers from before come back at the end."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Stops":
        for number in _ASKS:
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
