"""Know how durations are written by people and kept by the program (int64 nanoseconds)."""

import re

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_UNIT_NS = {
    "ns": 1,
    "us": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
    "d": 86400 * NS_PER_S,
}
_MOST_NS = 2**63 - 1
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(ns|us|ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds in a duration such as `30s`, `1h30m`, `250ms` or `1.5s`.

    Raises ValueError, with an example of the right form, for a number without unit, a negative one, or anything else,
    and for more than int64 holds.
    """
    compact = text.strip().replace(" ", "")
    if not _WHOLE.fullmatch(compact):
        if re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?", compact):
            msg = f'"{text}" has no unit; e.g. {compact.lstrip("+-")}s, {compact.lstrip("+-")}m'
        else:
            msg = f'"{text}" is no duration; e.g. 30s, 1h30m, 250ms'
        raise ValueError(msg)
    total = sum(float(number) * _UNIT_NS[unit] for number, unit in _PART.findall(compact))
    if total > _MOST_NS:
        shown = compact if len(compact) <= 40 else f"{compact[:37]}..."
        msg = f'"{shown}" is longer than 292 years'
        raise ValueError(msg)
    return round(total)


def format_duration(ns: int) -> str:
    """Return the shortest exact form that `parse_duration_ns` reads back, such as `1m30s` or `250ms`."""
    if ns == 0:
        return "0s"
    parts, rest = [], ns
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _UNIT_NS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
