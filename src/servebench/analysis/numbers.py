"""Know how numbers are written for people: three significant digits, exact counts, a dash for undefined."""

import math

UNDEFINED = "\N{EN DASH}"
_SHOWN_AS_0 = 5e-10
"""No unit of ours measures less: what is left of a difference of floats."""


def significant(value: float | None) -> str:
    """Return three significant digits with thousands separators, such as 1,210 or 41.8; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return UNDEFINED
    if abs(value) < _SHOWN_AS_0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    if abs(rounded) >= 10 ** (3 - digits):  # 9.996 has become 10.00: one decimal less
        digits -= 1
    return f"{rounded:,.{max(0, min(digits, 9))}f}"


def bounds(lo: float | None, hi: float | None) -> str:
    """Return an interval such as [590, 640]; a dash where one of its ends is not known."""
    return UNDEFINED if lo is None or hi is None else f"[{significant(lo)}, {significant(hi)}]"


def count(value: int | None) -> str:
    """Return a count in full, with separators."""
    return UNDEFINED if value is None else f"{value:,}"


def plain(value: float | None, digits: int = 6) -> float | None:
    """Return the value for JSON and CSV: rounded below what is measurable, None for NaN."""
    return None if value is None or not math.isfinite(value) else round(value, digits) + 0  # -0.0 becomes 0.0


def clock(seconds: float) -> str:
    """Return a length of time as 09:30, or 1:09:30 from an hour on."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"
