"""Know how the prompts of a spec become those of the workload: sources, lengths, conversations."""

from collections.abc import Iterable

import msgspec

from servebench.workload.builtin import PREFIX
from servebench.workload.files import Files
from servebench.workload.model import Conversation, Lengths, Phase, Prompts, PromptSource, Think, TraceSlice, Turns
from servebench.workload.places import Place, Wrong
from servebench.workload.spec_prompts import (
    ConversationSpec,
    EmpiricalLengths,
    FixedLengths,
    FixedTurns,
    GeometricTurns,
    LengthsSpec,
    LognormalLengths,
    OutputLengthsSpec,
    PromptsSpec,
    PromptTurns,
    ReplyLengths,
    SourceSpec,
    TraceLengths,
    TraceSource,
    TurnsSpec,
    UniformLengths,
    UniformTurns,
)
from servebench.workload.traces import WITH_BLOCKS, WITH_SESSIONS

SHIPPED_TEXT = PREFIX + "shakespeare"


def prompts_of(spec: PromptsSpec, phases: Iterable[Phase], files: Files) -> Prompts:
    """Return the prompts that a spec means; what is wrong with its files is noted in `files`."""
    lengths_trace = _lengths_trace(spec, phases, files)
    exponent = None
    if spec.order == "zipf":
        exponent = 1.0 if spec.zipf_exponent is None else float(spec.zipf_exponent)
    return Prompts(
        sources=_sources(spec, files, lengths_trace),
        order=spec.order,
        zipf_exponent=exponent,
        input_tokens=_lengths(spec.input_tokens),
        output_tokens=_lengths(spec.output_tokens),
        lengths_trace=lengths_trace,
        conversation=None if spec.conversation is None else _conversation(spec.conversation),
    )


def prompts_against_phases(prompts: Prompts, phases: tuple[Phase, ...]) -> list[Wrong]:
    """Return what prompts and phases together cannot be."""
    return [*_turns_against_phases(prompts, phases), *_blocks_against_phases(prompts, phases)]


def _turns_against_phases(prompts: Prompts, phases: tuple[Phase, ...]) -> list[Wrong]:
    """Return what is wrong with turns: a trace knows its own, other phases find none in a trace."""
    if prompts.conversation is None:
        return []
    place: Place = ("prompts", "conversation", "turns", "from")
    timed = [phase for phase in phases if phase.warm_per_s is None]
    others = [phase.name for phase in timed if phase.replay is None or phase.replay.kind not in WITH_SESSIONS]
    if prompts.conversation.turns.law == "trace" and others:
        return [Wrong(place, f"phase {others[0]} replays no trace with sessions ({', '.join(WITH_SESSIONS)})")]
    replays = [phase.name for phase in timed if phase.replay is not None]
    if prompts.conversation.turns.law != "trace" and replays:
        return [Wrong(place, f"phase {replays[0]} replays a trace, which has its own turns; only trace is possible")]
    return []


def _blocks_against_phases(prompts: Prompts, phases: tuple[Phase, ...]) -> list[Wrong]:
    """Return what is wrong with prompts made of blocks, which are numbered by rows: a second source, another trace."""
    if not any(source.kind == "trace" for source in prompts.sources):
        return []
    place: Place = ("prompts", "source")
    part = prompts.lengths_trace
    if len(prompts.sources) > 1:
        return [Wrong(("prompts", "sources"), "a source of kind trace stands alone")]
    if prompts.input_tokens.kind != "trace":
        return [Wrong(("prompts", "input_tokens", "from"), "prompts of kind trace need input_tokens: {from: trace}")]
    if part is None or part.kind not in WITH_BLOCKS:
        return [Wrong(place, f"kind trace needs a trace with blocks ({', '.join(WITH_BLOCKS)})")]
    if prompts.shared_share:
        return [Wrong(("target", "cache", "state"), "prompts of kind trace have the trace's own shared prefixes")]
    others = [p.name for p in phases if p.replay is not None and _file(p.replay) != _file(part)]
    return [Wrong(place, f"phase {others[0]} replays another trace than prompts are made of")] if others else []


def _file(part: TraceSlice) -> tuple[str, str, int | None]:
    return part.kind, part.path, part.empty_output


def _sources(prompts: PromptsSpec, files: Files, lengths_trace: TraceSlice | None) -> tuple[PromptSource, ...]:
    if prompts.source is not None:
        named: list[tuple[Place, SourceSpec]] = [(("prompts", "source"), prompts.source)]
    else:
        named = [(("prompts", "sources", index), source) for index, source in enumerate(prompts.sources or ())]
    sources: list[PromptSource] = []
    for place, source in named:
        if isinstance(source, TraceSource):
            path = "" if lengths_trace is None else lengths_trace.path
        else:
            default = SHIPPED_TEXT if source.kind == "text" else PREFIX + source.kind
            path = files.path(source.path, default, (*place, "path"))
        sources.append(PromptSource(kind=source.kind, path=path))
    return tuple(sources)


def _lengths_trace(prompts: PromptsSpec, phases: Iterable[Phase], files: Files) -> TraceSlice | None:
    """Return the trace that lengths are drawn from: the one named, else the first replayed; None where none is used."""
    wanting = [name for name in ("input_tokens", "output_tokens") if getattr(prompts, name).kind == "trace"]
    if prompts.trace is not None:
        part = files.trace(prompts.trace, ("prompts", "trace"))
        return msgspec.structs.replace(part, start_ns=prompts.trace.start, length_ns=prompts.trace.length)
    if not wanting:
        return None
    for phase in phases:
        if phase.replay is not None:
            return msgspec.structs.replace(phase.replay, speed=1.0, spread=False)
    message = "from: trace needs prompts.trace, or a phase that replays one"
    files.wrongs.append(Wrong(("prompts", wanting[0]), message))
    return None


def _conversation(spec: ConversationSpec) -> Conversation:
    turns = _turns(spec.turns)
    from_trace = turns.law == "trace"
    law = "trace" if spec.pacing == "trace" else spec.think_law
    return Conversation(
        turns=turns,
        think=Think(law=law, mean_ns=0 if law == "trace" else spec.think_time),
        # The rows of a trace hold whole prompts: what was said before is in them.
        history=spec.history if spec.history is not None else "none" if from_trace else "answers",
    )


def _turns(spec: TurnsSpec) -> Turns:
    if isinstance(spec, FixedTurns):
        return Turns(law="fixed", low=spec.count)
    if isinstance(spec, UniformTurns):
        return Turns(law="uniform", low=spec.min, high=spec.max)
    if isinstance(spec, GeometricTurns):
        return Turns(law="geometric", mean=float(spec.mean), high=spec.max)
    return Turns(law="prompt", high=spec.max) if isinstance(spec, PromptTurns) else Turns(law="trace")


def _lengths(lengths: LengthsSpec | OutputLengthsSpec) -> Lengths:  # noqa: PLR0911 - one line for each law
    if isinstance(lengths, FixedLengths):
        return Lengths(kind="fixed", tokens=lengths.tokens)
    if isinstance(lengths, TraceLengths):
        return Lengths(kind="trace", cap=lengths.max, over=lengths.over)
    if isinstance(lengths, UniformLengths):
        return Lengths(kind="uniform", low=lengths.min, high=lengths.max)
    if isinstance(lengths, LognormalLengths):
        return Lengths(kind="lognormal", median=float(lengths.median), sigma=float(lengths.sigma), cap=lengths.max)
    if isinstance(lengths, EmpiricalLengths):
        return Lengths(kind="empirical", values=lengths.tokens)
    if isinstance(lengths, ReplyLengths):
        return Lengths(kind="reply")
    return Lengths(kind="prompt")
