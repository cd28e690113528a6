"""Know how numbers and times look on the terminal: three significant digits, counts in full, a dash for undefined."""

import math
from collections.abc import Sequence
from datetime import datetime

UNDEFINED = "\u2013"
"""Stands for a number that does not exist: never 0."""

DASH = "-"
"""The same in plain lines, which stay ASCII."""

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=+*#@"


def figure(value: float | None) -> str:
    """Return a number with three significant digits; from 1,000 on in full with separators; a dash for None or NaN."""
    if value is None or math.isnan(value):
        return UNDEFINED
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = round(value, digits)
    # Rounding may have reached the next power of ten (9.996 -> 10.0), which has one digit less behind the point.
    digits = max(0, 2 - math.floor(math.log10(abs(rounded)))) if rounded else digits
    return f"{rounded:,.{digits}f}"


def count(value: int | None) -> str:
    """Return an exact count with separators; a dash for None."""
    return UNDEFINED if value is None else f"{value:,}"


def clock(moment: datetime) -> str:
    """Return a local time with its offset, such as 14:18:36+02:00."""
    return moment.isoformat(timespec="seconds").partition("T")[2]


def minutes(seconds: float | None) -> str:
    """Return mm:ss, or h:mm:ss from an hour on; a dash for None."""
    if seconds is None:
        return UNDEFINED
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def sparkline(values: Sequence[float | None], width: int, *, unicode: bool = True) -> str:
    """Return the last `width` values as bars from 0 to their largest; a blank where there was no value."""
    bars = _BARS if unicode else _ASCII_BARS
    shown = list(values)[-width:]
    known = [value for value in shown if value is not None and not math.isnan(value)]
    top = max(known, default=0.0)
    cells = []
    for value in shown:
        if value is None or math.isnan(value):
            cells.append(" ")
        else:
            cells.append(bars[min(len(bars) - 1, int(value / top * len(bars)))] if top > 0 else bars[0])
    return "".join(cells).rjust(width)


def bar(share: float | None, width: int, *, unicode: bool = True) -> str:
    """Return a progress bar of `width` cells; empty when the share is unknown."""
    full, empty = ("█", "░") if unicode else ("#", ".")
    done = 0 if share is None else round(width * min(1.0, max(0.0, share)))
    return full * done + empty * (width - done)
