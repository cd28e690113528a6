"""Know the verdict on one answer: all checks of the run and of its prompt, in order, until one does not hold.

The rules of prompts are kept, the latest used first, because the same prompts come again. Time is not looked at here:
whoever calls sets the limit (`limit_ns`) and may raise out of `verdict`.
"""

from collections.abc import Sequence
from functools import lru_cache

from servebench.acceptance.given import Given, Verdict, unchecked
from servebench.acceptance.rules import Rule, flaw_of, rule_of
from servebench.core.errors import Fault, SpecError
from servebench.workload.checks import DEFAULT_LIMIT_NS, Check, Flaw, checks_of, limit_ns

KEPT_PROMPTS = 4096


class Judge:
    """The checks of one run, ready to be applied.

    Raises SpecError where one of them cannot be: a schema that is none, a function that cannot be loaded.
    """

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = tuple(checks)
        self._rules = _rules(self._checks, "accept")
        self._allowed = _allowed(self._checks)
        self._limit_ns = limit_ns(self._checks) or DEFAULT_LIMIT_NS
        self._of_prompt = lru_cache(KEPT_PROMPTS)(_prompt_rules)

    def limit_ns(self, prompt_checks: bytes = b"") -> int:
        """Return how long all checks of an answer may take together."""
        return self._of_prompt(prompt_checks).limit_ns or self._limit_ns

    def verdict(self, given: Given, prompt_checks: bytes = b"") -> Verdict:
        """Return what the checks say; a check that fails itself leaves it open and is named, it never raises."""
        try:
            own = self._of_prompt(prompt_checks)
            flaw = flaw_of(given, self._allowed | own.allowed)
            if flaw is not None:
                return Verdict(accepted=False, reason=flaw)
            for rule in (*self._rules, *own.rules):
                reason = rule(given)
                if reason is not None:
                    return Verdict(accepted=False, reason=reason)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; the run goes on
            return Verdict(reason=unchecked(error))
        return Verdict(accepted=True)


class _PromptRules:
    """What a prompt adds to the run's checks."""

    __slots__ = ("allowed", "limit_ns", "rules")

    def __init__(self, checks: tuple[Check, ...]) -> None:
        self.rules = _rules(checks, "accept")
        self.allowed = _allowed(checks)
        self.limit_ns = limit_ns(checks)


def _prompt_rules(data: bytes) -> _PromptRules:
    return _PromptRules(checks_of(data) if data else ())


def _rules(checks: tuple[Check, ...], place: str) -> tuple[Rule, ...]:
    rules, faults = [], []
    for number, check in enumerate(checks):
        if check.kind in ("allow", "time_limit"):
            continue
        try:
            rules.append(rule_of(check))
        except Exception as error:  # noqa: BLE001 - of a user's file; all faults are told together
            faults.append(Fault(place=f"{place}[{number}]", message=str(error)))
    if faults:
        raise SpecError("the workload", faults)
    return tuple(rules)


def _allowed(checks: tuple[Check, ...]) -> frozenset[Flaw]:
    return frozenset(flaw for check in checks for flaw in check.allow or ())
