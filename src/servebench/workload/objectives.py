"""Know how objectives are written, in a file or as options, and what they are in base units."""

from collections.abc import Iterator, Sequence
from typing import Any

from servebench.core.errors import Fault, SpecError
from servebench.workload.model import Objective
from servebench.workload.places import checked, quoted
from servebench.workload.spec import QUANTILES, LeastSpec, ObjectivesSpec

_BARE: dict[str, Any] = {
    "name": "objectives",
    "prompts": {"source": {"kind": "mt-bench"}},
    "load": {"kind": "closed", "users": 1, "requests": 1},
}
"""The least that a workload file holds, so that objectives alone can be checked as part of one."""


def objectives_of(objectives: ObjectivesSpec) -> Iterator[Objective]:
    """Yield what the objectives of a file, or of options, stand for, in base units."""
    for metric in type(objectives).model_fields:
        limits = getattr(objectives, metric)
        if isinstance(limits, float):
            yield Objective(metric=metric, quantile=None, limit=limits)
        elif isinstance(limits, LeastSpec):
            yield Objective(metric=metric, quantile=None, limit=limits.min, at_least=True)
        elif limits is not None:
            for name, quantile in QUANTILES.items():
                limit_ns = getattr(limits, name)
                if limit_ns is not None:
                    yield Objective(metric=metric, quantile=quantile, limit=float(limit_ns))


def parse_objectives(texts: Sequence[str]) -> tuple[Objective, ...]:
    """Return the objectives that options such as `ttft.p95=800ms` or `error_rate=1%` stand for.

    Raises SpecError with the option at fault.
    """
    document: dict[str, Any] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        metric, dot, key = place.strip().partition(".")
        if not equals or not metric or not value.strip():
            message = f"{quoted(text)} is no objective; e.g. ttft.p95=800ms, error_rate=1%"
            raise SpecError("--slo", [Fault(place="--slo", message=message)])
        if dot:
            document.setdefault(metric, {})[key] = value.strip()
        else:
            document[metric] = value.strip()
    spec, wrongs = checked({**_BARE, "objectives": document})
    if spec is None:
        faults = [Fault(place="--slo " + ".".join(map(str, w.path[1:])), message=w.message) for w in wrongs]
        raise SpecError("--slo", faults)
    return tuple(objectives_of(spec.objectives))
