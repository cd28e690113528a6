"""Know what is said of a metric: its two events, unit, formula, when it is undefined, what other tools call it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["request", "chunk", "rate", "share"]
Shown = Literal["always", "present", "asked"]
NOT_OK = "the request is not ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `unit` is for people, `base_unit` for storage; `aka` maps another tool to its name for this.

    kind: `request` one value a request, `chunk` one a gap, `rate` one a window, `share` one a set of requests.
    `source` is the column or columns it is computed from. `shown` in tables for people: always, when there is something
    to tell, or when asked for all.
    """

    name: str
    title: str
    unit: str
    base_unit: str
    start_event: str
    stop_event: str
    formula: str
    undefined_when: str
    kind: Kind
    source: str
    shown: Shown = "asked"
    aka: Mapping[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Return how many base units one display unit holds."""
        return _BASE_PER_DISPLAY[self.unit]


_BASE_PER_DISPLAY = {
    "ms": 1e6,
    "ms/token": 1e6,
    "1/s": 1.0,
    "tok/s": 1.0,
    "%": 0.01,
    "tokens": 1.0,
    "requests": 1.0,
    "stalls": 1.0,
}
