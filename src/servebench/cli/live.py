"""Know how the live screen is put on a terminal and taken off again."""

import time
from collections.abc import Callable
from datetime import datetime

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from servebench.cli.figures import clock
from servebench.cli.screen import Canvas, View, screen_lines
from servebench.cli.status import Status

REDRAW_S = 0.5


class LiveDisplay:
    """The live screen on stderr, redrawn twice a second at most; the final state stays when it closes."""

    def __init__(self, console: Console, view: View, now: Callable[[], datetime]) -> None:
        self._console = console
        self._view = view
        self._now = now
        self._drawn_at = 0.0
        self._width, self._lines = console.width, list[str]()
        self._live = Live(console=console, auto_refresh=False, transient=False, vertical_overflow="crop")
        self._live.start()

    def update(self, status: Status) -> None:
        """Take the newest status; it is drawn by the next tick."""
        self._view.take(status)

    def event(self, text: str) -> None:
        """Show something that happened in the note line."""
        self._view.note = f"{clock(self._now())} {text}"
        self._view.stopping = self._view.stopping or text.startswith("Stopping")
        self._draw()

    def tick(self) -> None:
        """Redraw when half a second has passed."""
        if time.monotonic() - self._drawn_at >= REDRAW_S:
            self._draw()

    def close(self) -> None:
        """Draw the final state once and give the cursor back."""
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        self._clear_what_was_broken()
        canvas = Canvas(width=self._width, unicode=self._console.encoding.lower().startswith("utf"), now=self._now())
        self._lines = screen_lines(self._view, canvas)
        text = Text("\n".join(self._lines), no_wrap=True, overflow="crop")
        text.highlight_regex(r"^(phase|run|LOAD|LATENCY|TOKENS|OUTCOMES|CLIENT|NOTE)\b", "bold")
        text.highlight_regex(r"[█░]+", "cyan")
        text.highlight_regex(r"✗missed|! busy", "red")
        self._live.update(text, refresh=True)

    def _clear_what_was_broken(self) -> None:
        """Erase the rows that a terminal made of lines for which it has become too narrow; rich counts lines."""
        before, self._width = self._width, self._console.width
        if self._width >= before:
            return
        more = sum(-(-cell_len(line) // self._width) - 1 for line in self._lines if line)
        self._console.control(Control(*[(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)] * more))
