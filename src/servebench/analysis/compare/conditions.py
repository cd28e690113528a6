"""Know which conditions of two sides differ: the load, which must not, and the system, of which one thing may."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servebench.analysis.compare.sides import Pairing, SideRun

_NO_LOAD = frozenset({"name", "seed", "target", "objectives", "stop"})
"""Parts of a workload that are not the load: pairs differ in seed, and objectives change nothing."""
_NO_SYSTEM = frozenset({"command", "preflight", "master_hub_lag_ms"})
LENGTH_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that is not the same on both sides; kind `load`, `cache` or `system`."""

    name: str
    base: str
    candidate: str
    kind: str

    @property
    def words(self) -> str:
        """Return name and both values."""
        return f"{self.name} ({self.base} / {self.candidate})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What differs. `change` is the one thing that was meant to; `refused` forbids the comparison, `marked` is told."""

    change: Condition | None
    refused: tuple[Condition, ...]
    marked: tuple[str, ...]


def judge_conditions(pairing: Pairing, allowed: Sequence[str] = (), change: str | None = None) -> Judgement:
    """Return which differences forbid a comparison: any of the load, any of the cache, all but one of the system.

    `allowed` names conditions that are only marked, `change` the one that was meant to differ.
    """
    found = list(_differences(pairing))
    system = [item for item in found if item.kind == "system"]
    meant = next((item for item in system if item.name == change), None)
    if meant is None and change is None:
        rest = [item for item in system if item.name not in allowed]
        meant = rest[0] if len(rest) == 1 else None
    against = [item for item in found if item is not meant]
    refused = tuple(item for item in against if item.name not in allowed)
    marked = [f"{item.words} differs and is allowed to" for item in against if item.name in allowed]
    return Judgement(change=meant, refused=refused, marked=(*marked, *_lengths(pairing)))


def _differences(pairing: Pairing) -> Iterator[Condition]:
    base, candidate = (_union([facts(run) for run in side]) for side in zip(*pairing.pairs, strict=True))
    for name in sorted({*base, *candidate}):
        a, b = base.get(name, "not said"), candidate.get(name, "not said")
        if a != b:
            yield Condition(name=name, base=_short(a), candidate=_short(b), kind=_kind(name))
    for pair in pairing.pairs:
        hashes = [run.manifest.schedule_hash for run in pair]
        if hashes[0] != hashes[1]:
            a, b = (_short(text or "none") for text in hashes)
            yield Condition(name="schedule", base=a, candidate=b, kind="load")
            break


def _kind(name: str) -> str:
    if name == "cache":
        return "cache"
    return "load" if name.startswith("load.") or name == "endpoint" else "system"


def facts(run: SideRun) -> dict[str, str]:
    """Return the conditions of a run by name: parts of its load, what was declared, what was observed."""
    workload = run.manifest.workload
    target = workload.get("target") or {}
    load = {name: value for name, value in workload.items() if name not in _NO_LOAD}
    found = dict(_flat("load", load))
    found |= {"endpoint": str(target.get("endpoint")), "cache": str(target.get("cache"))}
    model = run.digest.model or target.get("model")
    found["model"] = str(model)
    found |= {str(name): str(value) for name, value in (run.manifest.declared or target.get("declared") or {}).items()}
    observed = {name: value for name, value in run.manifest.observed.items() if name not in _NO_SYSTEM}
    found |= dict(_flat("observed", observed))
    return found


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, inner in enumerate(value):
            yield from _flat(f"{name}[{index}]", inner)
    elif value is not None:
        yield name, str(value)


def _union(facts_of_runs: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return each condition of a side, all its values where its own runs differ."""
    names = {name for one in facts_of_runs for name in one}
    return {name: ", ".join(sorted({one.get(name, "not said") for one in facts_of_runs})) for name in names}


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:12]}\N{HORIZONTAL ELLIPSIS}{text[-12:]}"


def _lengths(pairing: Pairing) -> Iterator[str]:
    """Yield a mark where the two sides did not do the same work, whatever was asked of them."""
    for metric, words in (("output_length", "answers"), ("input_length", "prompts")):
        means = []
        for side in zip(*pairing.pairs, strict=True):
            rows = [run.digest.table.find(metric, "all") for run in side]
            known = [row.mean for row in rows if row is not None and row.mean is not None]
            means.append(sum(known) / len(known) if known else None)
        a, b = means
        if a and b and abs(b / a - 1) > LENGTH_TOLERANCE:
            yield f"{words} differ in length: {a:.3g} / {b:.3g} tokens in the mean, so the work is not the same"
