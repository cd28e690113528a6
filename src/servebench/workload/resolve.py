"""Know how a checked spec becomes the workload as understood: base units, absolute paths, segments."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from servebench.core.errors import Fault, SpecError
from servebench.core.units import format_duration
from servebench.workload.builtin import PREFIX
from servebench.workload.document import Dumper, document_of
from servebench.workload.files import Files
from servebench.workload.model import (
    Lengths,
    Objective,
    Phase,
    Prompts,
    PromptSource,
    Requests,
    Target,
    Timeouts,
    TraceSlice,
    Workload,
)
from servebench.workload.places import Place, Wrong, checked
from servebench.workload.processes import law_of
from servebench.workload.segments import diurnal_of, segments_of
from servebench.workload.spec import QUANTILES, ObjectivesSpec, RequestsSpec, TargetSpec, WorkloadSpec
from servebench.workload.spec_load import AnyPhase, DiurnalPhase, ReplayPhase
from servebench.workload.spec_prompts import FixedLengths, LengthsSpec, PromptsSpec, SourceSpec, TraceLengths

QUICK_PROMPTS = ("mt-bench", "self-instruct")
_AZURE_CONV = PREFIX + "azure-llm-2023-conv"


def resolve(spec: WorkloadSpec, folder: Path) -> tuple[Workload | None, list[Wrong]]:
    """Return the workload that a spec means, or what is wrong with the files that it names.

    Relative paths are those below `folder`. A replay without a length reads its trace, to know where that ends.
    Raises SpecError with the faults of such a trace.
    """
    files = Files(folder)
    sources = _sources(spec.prompts, files)
    phases = tuple(_phase(phase, ("load", "phases", index), files) for index, phase in enumerate(spec.load.phases))
    lengths_trace = _lengths_trace(spec.prompts, phases, files)
    if files.wrongs:
        return None, files.wrongs
    workload = Workload(
        name=spec.name,
        seed=spec.seed,
        target=_target(spec.target),
        prompts=Prompts(
            sources=sources,
            order=spec.prompts.order,
            input_tokens=_lengths(spec.prompts.input_tokens),
            output_tokens=_lengths(spec.prompts.output_tokens),
            lengths_trace=lengths_trace,
        ),
        arrivals=law_of(spec.load.arrivals),
        phases=phases,
        requests=_requests(spec.requests),
        objectives=tuple(_objectives(spec.objectives)),
    )
    return workload, []


def quick_workload(
    *,
    rate_per_s: float,
    duration_ns: int,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    model: str | None = None,
    endpoint: Literal["openai-chat", "openai-completions"] = "openai-chat",
) -> Workload:
    """Return the workload of the quick form: Poisson arrivals at one rate, shipped prompts.

    None for a length: as long as the prompt is, no limit sent. Raises SpecError for values out of bounds.
    """
    document = {
        "name": "quick",
        "target": {"endpoint": endpoint, "model": model},
        "prompts": {
            "sources": tuple({"kind": kind} for kind in QUICK_PROMPTS),
            "input_tokens": _fixed(input_tokens),
            "output_tokens": _fixed(output_tokens),
        },
        "load": {
            "kind": "open",
            "phases": (
                {
                    "name": "steady",
                    "shape": "steady",
                    "rate_per_s": rate_per_s,
                    "duration": format_duration(duration_ns),
                },
            ),
        },
    }
    spec, wrongs = checked(document)
    workload, more = resolve(spec, Path()) if spec is not None else (None, [])
    if workload is None:
        raise SpecError("the quick form", [Fault(place=_option(w.path), message=w.message) for w in wrongs + more])
    return workload


def _option(place: Place) -> str:
    """Return the option behind a place of the quick form's document."""
    names = {"rate_per_s": "--rate", "duration": "--duration", "input_tokens": "--input-tokens"}
    names |= {"output_tokens": "--output-tokens", "model": "--model", "endpoint": "--endpoint"}
    return next((names[part] for part in place if isinstance(part, str) and part in names), str(place[-1]))


def dump_yaml(workload: Workload) -> str:
    """Return a workload file that loads as the same workload, wherever it lies: its paths are absolute."""
    return yaml.dump(document_of(workload), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)


def _sources(prompts: PromptsSpec, files: Files) -> tuple[PromptSource, ...]:
    if prompts.source is not None:
        named: list[tuple[Place, SourceSpec]] = [(("prompts", "source"), prompts.source)]
    else:
        named = [(("prompts", "sources", index), source) for index, source in enumerate(prompts.sources or ())]
    return tuple(
        PromptSource(kind=source.kind, path=files.path(source.path, PREFIX + source.kind, (*place, "path")))
        for place, source in named
    )


def _phase(phase: AnyPhase, place: Place, files: Files) -> Phase:
    if isinstance(phase, ReplayPhase):
        return _replay(phase, place, files)
    segments = segments_of(phase)
    return Phase(
        name=phase.name,
        shape=phase.shape,
        duration_ns=sum(segment.duration_ns for segment in segments),
        measured=phase.measured,
        segments=segments,
        arrivals=None if phase.arrivals is None else law_of(phase.arrivals),
        diurnal=diurnal_of(phase) if isinstance(phase, DiurnalPhase) else None,
    )


def _replay(phase: ReplayPhase, place: Place, files: Files) -> Phase:
    path = files.path(phase.trace.path, _AZURE_CONV, (*place, "trace", "path"))
    length_ns = files.length_ns(path, phase.start, place) if phase.length is None else phase.length
    part = TraceSlice(
        kind=phase.trace.kind, path=path, start_ns=phase.start, length_ns=length_ns, speed=float(phase.speed)
    )
    # Rounded up: the last row of the slice, at less than length_ns, must come before the end.
    duration_ns = math.ceil(length_ns / phase.speed)
    return Phase(name=phase.name, shape="replay", duration_ns=duration_ns, measured=phase.measured, replay=part)


def _lengths_trace(prompts: PromptsSpec, phases: Iterable[Phase], files: Files) -> TraceSlice | None:
    """Return the trace that lengths are drawn from: the one named, else the first replayed; None where none is used."""
    wanting = [name for name in ("input_tokens", "output_tokens") if getattr(prompts, name).kind == "trace"]
    if prompts.trace is not None:
        path = files.path(prompts.trace.path, _AZURE_CONV, ("prompts", "trace", "path"))
        return TraceSlice(
            kind=prompts.trace.kind, path=path, start_ns=prompts.trace.start, length_ns=prompts.trace.length
        )
    if not wanting:
        return None
    for phase in phases:
        if phase.replay is not None:
            return msgspec.structs.replace(phase.replay, speed=1.0)
    message = "from: trace needs prompts.trace, or a phase that replays one"
    files.wrongs.append(Wrong(("prompts", wanting[0]), message))
    return None


def _lengths(lengths: LengthsSpec) -> Lengths:
    if isinstance(lengths, FixedLengths):
        return Lengths(kind="fixed", tokens=lengths.tokens)
    if isinstance(lengths, TraceLengths):
        return Lengths(kind="trace", cap=lengths.max, over=lengths.over)
    return Lengths(kind="prompt")


def _target(target: TargetSpec) -> Target:
    return Target(
        endpoint=target.endpoint, model=target.model, declared=dict(target.declared), cache=target.cache.state
    )


def _requests(requests: RequestsSpec) -> Requests:
    timeouts = requests.timeouts
    return Requests(
        timeouts=Timeouts(
            connect_ns=timeouts.connect,
            first_token_ns=timeouts.first_token,
            idle_ns=timeouts.idle,
            total_ns=timeouts.total,
        ),
        params=dict(requests.params),
        stream=requests.stream,
        max_inflight=requests.max_inflight,
    )


def _objectives(objectives: ObjectivesSpec) -> Iterable[Objective]:
    for metric in type(objectives).model_fields:
        limits = getattr(objectives, metric)
        if isinstance(limits, float):
            yield Objective(metric=metric, quantile=None, limit=limits)
        elif limits is not None:
            for name, quantile in QUANTILES.items():
                limit_ns = getattr(limits, name)
                if limit_ns is not None:
                    yield Objective(metric=metric, quantile=quantile, limit=float(limit_ns))


def _fixed(tokens: int | None) -> dict[str, object]:
    return {"from": "prompt"} if tokens is None else {"from": "fixed", "tokens": tokens}
