"""Know how a checked spec becomes the workload as understood: base units, absolute paths, segments."""

import math
from pathlib import Path

import msgspec
import yaml

from servebench.core.errors import Fault, SpecError
from servebench.core.units import format_duration
from servebench.workload.document import Dumper, document_of
from servebench.workload.files import Files
from servebench.workload.limits import lengths_against_prompts, sizes_against_limits, talk_against_closed_load
from servebench.workload.model import (
    Abandon,
    Arrivals,
    Closed,
    Phase,
    Requests,
    Retrying,
    StopRules,
    Target,
    Think,
    Timeouts,
    Workload,
)
from servebench.workload.objectives import objectives_of
from servebench.workload.phase_names import CACHE_WARMUP
from servebench.workload.places import Place, Wrong, checked
from servebench.workload.processes import law_of
from servebench.workload.resolve_checks import checks_of_spec
from servebench.workload.resolve_prompts import prompts_against_phases, prompts_of
from servebench.workload.segments import diurnal_of, segments_of
from servebench.workload.spec import (
    SharedPrefixCache,
    StopSpec,
    TargetSpec,
    WarmCache,
    WorkloadSpec,
)
from servebench.workload.spec_load import AnyPhase, ClosedLoad, DiurnalPhase, OpenLoad, ReplayPhase
from servebench.workload.spec_requests import RequestsSpec
from servebench.workload.words import LONGEST_NS

QUICK_PROMPTS = ("mt-bench", "self-instruct")


def resolve(spec: WorkloadSpec, folder: Path) -> tuple[Workload | None, list[Wrong]]:
    """Return the workload that a spec means, or what is wrong with the files that it names.

    Relative paths are those below `folder`. A replay without a length reads its trace, to know where that ends.
    Raises SpecError with the faults of such a trace.
    """
    files = Files(folder)
    load = spec.load
    shapes = load.phases if isinstance(load, OpenLoad) else ()
    phases = tuple(_phase(phase, ("load", "phases", index), files) for index, phase in enumerate(shapes))
    prompts = prompts_of(spec.prompts, phases, files)
    accept = checks_of_spec(spec.accept, files)
    cache = spec.target.cache
    if isinstance(cache, SharedPrefixCache):
        prompts = msgspec.structs.replace(prompts, shared_share=cache.share)
    if isinstance(cache, WarmCache):
        if any(phase.name == CACHE_WARMUP for phase in phases):
            text = f'"{CACHE_WARMUP}" is its phase; no other may have that name'
            files.wrongs.append(Wrong(("target", "cache"), text))
        phases = (_warm_pass(cache), *phases)
    wrongs = [*files.wrongs, *prompts_against_phases(prompts, phases), *lengths_against_prompts(spec.requests, prompts)]
    if isinstance(load, OpenLoad):
        wrongs += sizes_against_limits(phases, law_of(load.arrivals), prompts.conversation)
    else:
        wrongs += talk_against_closed_load(prompts.conversation)
    if wrongs:
        return None, wrongs
    workload = Workload(
        name=spec.name,
        seed=spec.seed,
        target=_target(spec.target),
        prompts=prompts,
        arrivals=law_of(load.arrivals) if isinstance(load, OpenLoad) else Arrivals(),
        phases=phases,
        requests=_requests(spec.requests),
        objectives=tuple(objectives_of(spec.objectives)),
        closed=_closed(load) if isinstance(load, ClosedLoad) else None,
        accept=accept,
        stop=_stop(spec.stop),
    )
    return workload, []


def quick_workload(  # noqa: PLR0913 - one argument for each option of the quick form
    *,
    rate_per_s: float | None = None,
    duration_ns: int | None = None,
    concurrency: int | None = None,
    requests: int | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    model: str | None = None,
    endpoint: str = "openai-chat",
) -> Workload:
    """Return the workload of the quick form: shipped prompts, and load of one of two kinds.

    Open: `rate_per_s` and `duration_ns`, Poisson arrivals. Closed: `concurrency`, with `requests` or `duration_ns`.
    None for a length: as long as the prompt is, no limit sent. Raises SpecError for values out of bounds, and for
    options that are missing or do not go together.
    """
    document = {
        "name": "quick",
        "target": {"endpoint": endpoint, "model": model},
        "prompts": {
            "sources": tuple({"kind": kind} for kind in QUICK_PROMPTS),
            "input_tokens": _fixed(input_tokens),
            "output_tokens": _fixed(output_tokens),
        },
        "load": _quick_load(rate_per_s, duration_ns, concurrency, requests),
    }
    spec, wrongs = checked(document)
    workload, more = resolve(spec, Path()) if spec is not None else (None, [])
    if workload is None:
        faults = [Fault(place=_option(w.path), message=w.message) for w in [*wrongs, *more]]
        raise SpecError("the quick form", faults)
    return workload


def _quick_load(
    rate_per_s: float | None, duration_ns: int | None, concurrency: int | None, requests: int | None
) -> dict[str, object]:
    duration = {} if duration_ns is None else {"duration": format_duration(duration_ns)}
    if concurrency is None and requests is None:
        rate = {} if rate_per_s is None else {"rate_per_s": rate_per_s}
        return {"kind": "open", "phases": ({"name": "steady", "shape": "steady", **rate, **duration},)}
    if rate_per_s is not None:
        message = "--rate is for open load, --concurrency and --requests are for closed load; choose one"
        raise SpecError("the quick form", [Fault(place="--rate", message=message)])
    users = {} if concurrency is None else {"users": concurrency}
    number = {} if requests is None else {"requests": requests}
    return {"kind": "closed", **users, **number, **duration}


def _option(place: Place) -> str:
    """Return the option behind a place of the quick form's document."""
    names = {"rate_per_s": "--rate", "duration": "--duration", "input_tokens": "--input-tokens"}
    names |= {"output_tokens": "--output-tokens", "model": "--model", "endpoint": "--endpoint"}
    names |= {"users": "--concurrency", "requests": "--requests", "load": "--concurrency"}
    return next((names[part] for part in reversed(place) if isinstance(part, str) and part in names), str(place[-1]))


def dump_yaml(workload: Workload) -> str:
    """Return a workload file that loads as the same workload, wherever it lies: its paths are absolute."""
    return yaml.dump(document_of(workload), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)


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


def _warm_pass(cache: WarmCache) -> Phase:
    return Phase(
        name=CACHE_WARMUP,
        shape="warm",
        duration_ns=cache.duration,
        measured=False,
        warm_per_s=float(cache.rate_per_s),
    )


def _replay(phase: ReplayPhase, place: Place, files: Files) -> Phase:
    part = msgspec.structs.replace(
        files.trace(phase.trace, (*place, "trace")),
        start_ns=phase.start,
        speed=float(phase.speed),
        spread=phase.spread,
    )
    length_ns = files.length_ns(part, place) if phase.length is None else phase.length
    part = msgspec.structs.replace(part, length_ns=length_ns)
    duration_ns = LONGEST_NS
    if length_ns / phase.speed > LONGEST_NS:
        files.wrongs.append(Wrong((*place, "speed"), f"{phase.speed:g} makes the phase longer than 366d"))
    else:
        # Rounded up: the last row of the slice, at less than length_ns, must come before the end.
        duration_ns = math.ceil(length_ns / phase.speed)
    return Phase(name=phase.name, shape="replay", duration_ns=duration_ns, measured=phase.measured, replay=part)


def _stop(stop: StopSpec | None) -> StopRules | None:
    if stop is None:
        return None
    return StopRules(
        error_rate=stop.error_rate,
        window_ns=stop.window,
        least=stop.least,
        errors=stop.errors,
        objectives=stop.objectives,
    )


def _closed(load: ClosedLoad) -> Closed:
    return Closed(
        users=load.users,
        think=Think(law=load.think_law, mean_ns=load.think_time),
        requests=load.requests,
        duration_ns=load.duration,
        warmup_requests=load.warmup_requests,
    )


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
        lengths=requests.lengths,
        params=dict(requests.params),
        stream=requests.stream,
        max_inflight=requests.max_inflight,
        headers=dict(requests.headers),
        retries=requests.retries.max,
        redirects=requests.redirects,
        proxy=requests.proxy,
        retrying=Retrying(
            statuses=requests.retries.statuses,
            pause_ns=requests.retries.pause,
            longest_ns=requests.retries.longest_pause,
            budget=requests.retries.budget,
        ),
        abandon=None
        if requests.abandon is None
        else Abandon(
            share=requests.abandon.share, after_ns=requests.abandon.after, token_events=requests.abandon.tokens
        ),
    )


def _fixed(tokens: int | None) -> dict[str, object]:
    return {"from": "prompt"} if tokens is None else {"from": "fixed", "tokens": tokens}
