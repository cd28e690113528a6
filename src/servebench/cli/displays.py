"""Know which display suits stderr and the user's wish."""

import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from servebench.cli.base import coloured, say
from servebench.cli.display import Display, NoDisplay, PlainDisplay

if TYPE_CHECKING:
    from servebench.cli.screen import View


def make_display(progress: str, view: "Callable[[], View]") -> Display:
    """Return the display for `auto`, `rich`, `plain` or `none`; auto draws on a terminal that can, else writes lines.

    `view` is called only for the live screen, which loads rich.
    """
    if progress == "none":
        return NoDisplay()
    if progress == "rich" or (progress == "auto" and can_draw()):
        from rich.console import Console

        from servebench.cli.live import LiveDisplay

        # Colours are ours to decide; whether the cursor can be moved is rich's.
        forced = True if progress == "rich" else None
        system: Literal["standard"] | None = "standard" if coloured() else None
        console = Console(stderr=True, no_color=not coloured(), color_system=system, force_terminal=forced)
        return LiveDisplay(console, view(), local_now)
    return PlainDisplay(say, local_now)


def can_draw() -> bool:
    """Say whether stderr is a terminal that moves its cursor. NO_COLOR takes the colours only."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def local_now() -> datetime:
    """Return the local time with its zone."""
    return datetime.now().astimezone()
