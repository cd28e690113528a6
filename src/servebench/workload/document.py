"""Know how a workload is written down again: the file that would give it."""

from typing import Any

import msgspec
import yaml

from servebench.core.units import format_duration
from servebench.workload.model import (
    Abandon,
    Closed,
    Conversation,
    Diurnal,
    Lengths,
    Objective,
    Phase,
    Prompts,
    PromptSource,
    Requests,
    Retrying,
    Segment,
    StopRules,
    Target,
    Think,
    TraceSlice,
    Workload,
)
from servebench.workload.processes import document_of_law
from servebench.workload.spec import QUANTILES
from servebench.workload.yaml_tree import RESOLVERS

Document = dict[str, Any]


class Dumper(yaml.SafeDumper):
    """Writes plain words only where both YAML 1.1 and our reader take them for text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML declares it without ClassVar
        **yaml.SafeDumper.yaml_implicit_resolvers,
        None: RESOLVERS,
    }

    def ignore_aliases(self, data: object) -> bool:
        """Write equal values out each time; a workload file needs no anchors."""
        return data is not None


def document_of(workload: Workload) -> Document:
    """Return the content of a file that gives this workload, without what is the default anyway.

    Raises ValueError for segments that no shape of the file gives.
    """
    return {
        "name": workload.name,
        "seed": workload.seed,
        "target": {**_target(workload.target), "cache": _cache(workload)},
        "prompts": _prompts(workload.prompts),
        "load": _load(workload) if workload.closed is None else _closed(workload.closed),
        "requests": _requests(workload.requests),
        **_objectives(workload.objectives),
        **({} if workload.stop is None else {"stop": _stop(workload.stop)}),
        **({"accept": msgspec.to_builtins(workload.accept)} if workload.accept else {}),
    }


def _target(target: Target) -> Document:
    document: Document = {"endpoint": target.endpoint}
    if target.model is not None:
        document["model"] = target.model
    if target.declared:
        document["declared"] = dict(target.declared)
    return document


def _cache(workload: Workload) -> Document:
    document: Document = {"state": workload.target.cache}
    if workload.target.cache == "shared_prefix":
        document["share"] = workload.prompts.shared_share
    for phase in workload.phases:
        if phase.warm_per_s is not None:
            document |= {"rate_per_s": phase.warm_per_s, "duration": format_duration(phase.duration_ns)}
    return document


def _prompts(prompts: Prompts) -> Document:
    document: Document = {
        "sources": [_source(source) for source in prompts.sources],
        "order": prompts.order,
        **({} if prompts.zipf_exponent is None else {"zipf_exponent": prompts.zipf_exponent}),
        "input_tokens": _lengths(prompts.input_tokens),
        "output_tokens": _lengths(prompts.output_tokens),
    }
    if prompts.lengths_trace is not None:
        part = prompts.lengths_trace
        document["trace"] = {**_trace(part), **_stretch(part)}
    if prompts.conversation is not None:
        document["conversation"] = _conversation(prompts.conversation)
    return document


def _conversation(talk: Conversation) -> Document:
    turns = talk.turns
    bounds: Document = {"count": turns.low} if turns.law == "fixed" else {}
    if turns.law == "uniform":
        bounds["min"] = turns.low
    if turns.high is not None:
        bounds["max"] = turns.high
    if turns.mean is not None:
        bounds["mean"] = turns.mean
    pause = {"pacing": "trace"} if talk.think.law == "trace" else _think(talk.think)
    return {"turns": {"from": turns.law, **bounds}, **pause, "history": talk.history}


def _think(think: Think) -> Document:
    return {"think_time": format_duration(think.mean_ns), "think_law": think.law}


def _load(workload: Workload) -> Document:
    return {
        "kind": "open",
        "arrivals": document_of_law(workload.arrivals),
        "phases": [_phase(phase) for phase in workload.phases if phase.warm_per_s is None],
    }


def _closed(closed: Closed) -> Document:
    document: Document = {"kind": "closed", "users": closed.users, **_think(closed.think)}
    if closed.requests is not None:
        document["requests"] = closed.requests
    if closed.duration_ns is not None:
        document["duration"] = format_duration(closed.duration_ns)
    return {**document, "warmup_requests": closed.warmup_requests}


def _source(source: PromptSource) -> Document:
    return {"kind": source.kind} if source.kind == "trace" else {"kind": source.kind, "path": source.path}


def _trace(part: TraceSlice) -> Document:
    document: Document = {"kind": part.kind, "path": part.path}
    if part.empty_output is not None:
        document["empty_output"] = part.empty_output
    if part.clients:
        document["clients"] = list(part.clients)
    return document


def _lengths(lengths: Lengths) -> Document:
    keys: Document = {
        "fixed": {"tokens": lengths.tokens},
        "uniform": {"min": lengths.low, "max": lengths.high},
        "lognormal": {"median": lengths.median, "sigma": lengths.sigma},
        "empirical": {"tokens": list(lengths.values)},
        "trace": {"over": lengths.over},
    }
    cap = {} if lengths.cap is None else {"max": lengths.cap}
    return {"from": lengths.kind, **keys.get(lengths.kind, {}), **cap}


def _stretch(part: TraceSlice) -> Document:
    length = {} if part.length_ns is None else {"length": format_duration(part.length_ns)}
    return {"start": format_duration(part.start_ns), **length}


def _phase(phase: Phase) -> Document:
    head: Document = {"name": phase.name, "shape": phase.shape}
    tail: Document = {} if phase.measured else {"measured": False}
    if phase.arrivals is not None:
        tail["arrivals"] = document_of_law(phase.arrivals)
    if phase.replay is not None:
        part = phase.replay
        return {**head, "trace": _trace(part), **_stretch(part), "speed": part.speed, "spread": part.spread, **tail}
    duration = {} if phase.shape == "spike" else {"duration": format_duration(phase.duration_ns)}
    shape = _shape(phase.shape, phase.segments) if phase.diurnal is None else _diurnal(phase.diurnal)
    return {**head, **shape, **duration, **tail}


def _diurnal(day: Diurnal) -> Document:
    return {
        "mean_per_s": day.mean_per_s,
        "profile": list(day.profile),
        "period": format_duration(day.period_ns),
        "start": format_duration(day.start_ns),
    }


def _shape(shape: str, segments: tuple[Segment, ...]) -> Document:
    """Return the keys of a shape but its duration; the rates of its segments, read back."""
    rates = [segment.from_per_s for segment in segments]
    if shape in ("steady", "soak"):
        return {"rate_per_s": rates[0]}
    if shape == "ramp":
        return {"from_per_s": rates[0], "to_per_s": segments[0].to_per_s}
    if shape == "spike" and len(segments) == 3:
        lengths = zip(("before", "length", "recovery"), segments, strict=True)
        parts = {key: format_duration(segment.duration_ns) for key, segment in lengths}
        return {"base_per_s": rates[0], "peak_per_s": rates[1], **parts}
    if shape == "steps":
        return {"rates_per_s": rates}
    if shape == "burst" and len(segments) > 1:
        base_ns, peak_ns = segments[0].duration_ns, segments[1].duration_ns
        return {
            "base_per_s": rates[0],
            "peak_per_s": rates[1],
            "every": format_duration(base_ns + peak_ns),
            "length": format_duration(peak_ns),
        }
    msg = f"no shape of the file gives these segments: {shape}"
    raise ValueError(msg)


def _requests(requests: Requests) -> Document:
    timeouts = requests.timeouts
    document: Document = {
        "timeouts": {
            "connect": format_duration(timeouts.connect_ns),
            "first_token": format_duration(timeouts.first_token_ns),
            "idle": format_duration(timeouts.idle_ns),
            "total": format_duration(timeouts.total_ns),
        },
        "stream": requests.stream,
    }
    if requests.lengths != "max_only":
        document["lengths"] = requests.lengths
    if requests.params:
        document["params"] = dict(requests.params)
    if requests.max_inflight is not None:
        document["max_inflight"] = requests.max_inflight
    if requests.headers:
        document["headers"] = dict(requests.headers)
    if requests.retries:
        document["retries"] = {"max": requests.retries, **_retrying(requests.retrying)}
    if requests.abandon is not None:
        document["abandon"] = _abandon(requests.abandon)
    if requests.redirects:
        document["redirects"] = True
    if requests.proxy is not None:
        document["proxy"] = requests.proxy
    return document


def _stop(rules: StopRules) -> Document:
    document: Document = {"window": format_duration(rules.window_ns), "least": rules.least}
    if rules.error_rate is not None:
        document["error_rate"] = rules.error_rate
    if rules.errors is not None:
        document["errors"] = rules.errors
    return {**document, "objectives": True} if rules.objectives else document


def _retrying(retrying: Retrying) -> Document:
    usual = Retrying()
    document: Document = {}
    if retrying.statuses:
        document["statuses"] = list(retrying.statuses)
    if retrying.pause_ns != usual.pause_ns:
        document["pause"] = format_duration(retrying.pause_ns)
    if retrying.longest_ns != usual.longest_ns:
        document["longest_pause"] = format_duration(retrying.longest_ns)
    if retrying.budget is not None:
        document["budget"] = retrying.budget
    return document


def _abandon(abandon: Abandon) -> Document:
    after = {} if abandon.after_ns is None else {"after": format_duration(abandon.after_ns)}
    tokens = {} if abandon.token_events is None else {"tokens": abandon.token_events}
    return {**after, **tokens, "share": abandon.share}


def _objectives(objectives: tuple[Objective, ...]) -> Document:
    words = {quantile: word for word, quantile in QUANTILES.items()}
    document: Document = {}
    for objective in objectives:
        if objective.quantile is None:
            document[objective.metric] = {"min": objective.limit} if objective.at_least else objective.limit
        else:
            limit = format_duration(round(objective.limit))
            document.setdefault(objective.metric, {})[words[objective.quantile]] = limit
    return {"objectives": document} if document else {}
