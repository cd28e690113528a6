"""Know which requests are spoiled on purpose, and how."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from servebench.core.errors import Fault as InputFault
from servebench.core.errors import SpecError
from servebench.core.units import parse_duration_ns

FaultKind = Literal["error", "stall", "cut", "http-429", "http-500", "http-503"]

FAULT_KINDS: tuple[FaultKind, ...] = ("error", "stall", "cut", "http-429", "http-500", "http-503")

_FAULT_STREAM = 3
_DEFAULT_STALL_NS = 5_000_000_000


class FaultRule(NamedTuple):
    """Spoil `share` of the requests. `error`, `stall` and `cut` strike halfway through the answer.

    `error`: an error object in the stream. `stall`: silence for `stall_ns`, then the rest. `cut`: the connection ends
    inside the body. `http-NNN`: that status and an error body at once.
    """

    kind: FaultKind
    share: float
    stall_ns: int = _DEFAULT_STALL_NS


def parse_fault(text: str) -> FaultRule:
    """Return the rule in `KIND:SHARE` or `stall:SHARE:DURATION`, e.g. `http-503:0.01`, `stall:0.02:3s`.

    Raises SpecError.
    """
    kind, _, rest = text.partition(":")
    share_text, _, stall_text = rest.partition(":")
    known = next((name for name in FAULT_KINDS if name == kind), None)
    if known is None:
        raise _wrong(text, f"unknown kind; known are {', '.join(FAULT_KINDS)}")
    try:
        share = float(share_text)
        stall_ns = parse_duration_ns(stall_text) if stall_text else _DEFAULT_STALL_NS
    except ValueError as error:
        raise _wrong(text, f"{error}; e.g. {kind}:0.01") from error
    if not 0 <= share <= 1:
        raise _wrong(text, f"share {share_text}: must be between 0 and 1")
    if stall_text and known != "stall":
        raise _wrong(text, "only stall takes a duration")
    return FaultRule(known, share, stall_ns)


def _wrong(text: str, message: str) -> SpecError:
    return SpecError("sim", [InputFault(place=f"--fault {text}", message=message)])


class FaultDraw:
    """Draws, request by request in order of arrival, which rule strikes it; the same for the same seed."""

    def __init__(self, rules: Sequence[FaultRule], seed: int) -> None:
        if sum(rule.share for rule in rules) > 1:
            raise SpecError("sim", [InputFault(place="--fault", message="the shares add up to more than 1")])
        self._rules = tuple(rules)
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_FAULT_STREAM,)))

    def next(self) -> FaultRule | None:
        """Return the rule for the next request; None = it is served well."""
        if not self._rules:
            return None
        left = self._rng.random()
        for rule in self._rules:
            left -= rule.share
            if left < 0:
                return rule
        return None
