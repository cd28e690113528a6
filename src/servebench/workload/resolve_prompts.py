"""Know how the prompts of a spec become those of the workload: sources, lengths, conversations."""

from collections.abc import Iterable

import msgspec

from servebench.workload.builtin import PREFIX
from servebench.workload.files import Files
from servebench.workload.model import Conversation, Lengths, Phase, Prompts, PromptSource, Think, TraceSlice, Turns
from servebench.workload.places import Place, Wrong
from servebench.workload.spec_prompts import (
    ConversationSpec,
    FixedLengths,
    FixedTurns,
    GeometricTurns,
    LengthsSpec,
    PromptsSpec,
    PromptTurns,
    SourceSpec,
    TraceLengths,
    TurnsSpec,
    UniformTurns,
)

WITH_SESSIONS = ("burstgpt", "csv", "qwen-bailian", "ragpulse")
AZURE_CONV = PREFIX + "azure-llm-2023-conv"


def prompts_of(spec: PromptsSpec, phases: Iterable[Phase], files: Files) -> Prompts:
    """Return the prompts that a spec means; what is wrong with its files is noted in `files`."""
    return Prompts(
        sources=_sources(spec, files),
        order=spec.order,
        input_tokens=_lengths(spec.input_tokens),
        output_tokens=_lengths(spec.output_tokens),
        lengths_trace=_lengths_trace(spec, phases, files),
        conversation=None if spec.conversation is None else _conversation(spec.conversation),
    )


def turns_against_phases(prompts: Prompts, phases: Iterable[Phase]) -> list[Wrong]:
    """Return what is wrong with conversations in some phases: a trace knows its own turns, other phases have none."""
    if prompts.conversation is None:
        return []
    place: Place = ("prompts", "conversation", "turns", "from")
    replayed = {phase.name for phase in phases if phase.replay is not None and phase.replay.kind in WITH_SESSIONS}
    others = [phase.name for phase in phases if phase.name not in replayed]
    if prompts.conversation.turns.law == "trace" and others:
        return [Wrong(place, f"phase {others[0]} replays no trace with sessions ({', '.join(WITH_SESSIONS)})")]
    plain = [phase.name for phase in phases if phase.replay is not None]
    if prompts.conversation.turns.law != "trace" and plain:
        return [Wrong(place, f"phase {plain[0]} replays a trace, which has its own turns; only trace is possible")]
    return []


def _sources(prompts: PromptsSpec, files: Files) -> tuple[PromptSource, ...]:
    if prompts.source is not None:
        named: list[tuple[Place, SourceSpec]] = [(("prompts", "source"), prompts.source)]
    else:
        named = [(("prompts", "sources", index), source) for index, source in enumerate(prompts.sources or ())]
    return tuple(
        PromptSource(kind=source.kind, path=files.path(source.path, PREFIX + source.kind, (*place, "path")))
        for place, source in named
    )


def _lengths_trace(prompts: PromptsSpec, phases: Iterable[Phase], files: Files) -> TraceSlice | None:
    """Return the trace that lengths are drawn from: the one named, else the first replayed; None where none is used."""
    wanting = [name for name in ("input_tokens", "output_tokens") if getattr(prompts, name).kind == "trace"]
    if prompts.trace is not None:
        path = files.path(prompts.trace.path, AZURE_CONV, ("prompts", "trace", "path"))
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


def _lengths(lengths: LengthsSpec) -> Lengths:
    if isinstance(lengths, FixedLengths):
        return Lengths(kind="fixed", tokens=lengths.tokens)
    if isinstance(lengths, TraceLengths):
        return Lengths(kind="trace", cap=lengths.max, over=lengths.over)
    return Lengths(kind="prompt")
