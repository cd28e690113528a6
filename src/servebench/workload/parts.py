"""Know how one phase is planned: its requests in order of time, drawn from a law or taken from a trace.

Where conversations are asked for, arrivals begin them, and each has its turns behind it.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.errors import InputError
from servebench.core.units import NS_PER_MS, NS_PER_S, format_duration
from servebench.workload.arrivals import arrivals
from servebench.workload.draw import Drawer, is_of_trace, recorded
from servebench.workload.lengths import NONE, Tokens, fits
from servebench.workload.model import Conversation, Phase, TraceSlice, Workload
from servebench.workload.rows import Trace
from servebench.workload.seeds import ARRIVALS, SPREAD, generator
from servebench.workload.ticks import spread, ticks_of
from servebench.workload.traces import left_out_of, rows_of

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The requests of one phase as columns of one length.

    `offset_ns` is when a request, or its conversation, begins, from the start of the phase. `turn` counts from 0;
    `think_ns` is -1 for first turns.
    """

    offset_ns: Ints
    step: Tokens
    prompt_id: Ints
    input_tokens: Tokens
    max_tokens: Tokens
    turn: Tokens
    think_ns: Ints

    def __len__(self) -> int:
        return len(self.offset_ns)


class Position(NamedTuple):
    """How many requests and conversations come before a phase."""

    seq: int
    session: int

    def after(self, part: Part) -> "Position":
        """Return the position behind a phase."""
        return Position(self.seq + len(part), self.session + int(np.count_nonzero(part.turn == 0)))


def drawn(workload: Workload, index: int, at: Position, drawer: Drawer, notes: Counter[str]) -> Part:
    """Return a phase whose times come from the arrival process and whose lengths are drawn."""
    draws = generator(workload.seed, ARRIVALS, index)
    phase = workload.phases[index]
    due = arrivals(phase.arrivals or workload.arrivals, phase.segments, draws)
    offset_ns, step = due.offset_ns, due.step
    talk = workload.prompts.conversation
    if talk is None:
        turn, think_ns = _single(len(offset_ns))
        prompt_id = drawer.prompt_ids(at.seq, len(turn))
    else:
        turns = drawer.turns(at.session, len(offset_ns))
        offset_ns, step, turn = np.repeat(offset_ns, turns), np.repeat(step, turns), _counted(turns)
        think_ns = np.where(turn > 0, drawer.thinks_ns(talk.think, at.seq, len(turn)), np.int64(NONE))
        prompt_id = _talked(talk, turns, turn, at, drawer)
    pairs = drawer.lengths(at.seq, len(turn), prompt_id)
    note(notes, **pairs.changed)
    return Part(
        offset_ns=offset_ns,
        step=step,
        prompt_id=prompt_id,
        input_tokens=pairs.input_tokens,
        max_tokens=pairs.max_tokens,
        turn=turn,
        think_ns=think_ns,
    )


def replayed(workload: Workload, index: int, at: Position, drawer: Drawer, trace: Trace, notes: Counter[str]) -> Part:
    """Return a phase whose times, and where wanted lengths, are those of a trace's rows."""
    phase, talk = workload.phases[index], workload.prompts.conversation
    part = phase.replay
    if part is None:
        msg = f"phase {phase.name} replays no trace"
        raise ValueError(msg)
    if trace.end_ns is None and part.start_ns > trace.offset_ns[-1]:
        end = format_duration(int(trace.offset_ns[-1]))
        msg = f"phase {phase.name} starts at {format_duration(part.start_ns)} of {trace.path}, which ends at {end}"
        raise InputError(msg)
    rows = _kept_rows(workload, part, trace, notes)
    # Dividing by the speed may round the last rows up to the very end, which is outside the phase.
    recorded_ns = _unticked(workload, index, trace.offset_ns[rows] - part.start_ns, notes)
    times_ns = (recorded_ns / part.speed).astype(np.int64)
    times_ns = np.minimum(times_ns, phase.duration_ns - 1)
    sessions = None if talk is None or trace.session is None else trace.session[rows]
    if talk is None or sessions is None:
        order, (turn, think_ns) = np.arange(len(rows)), _single(len(rows))
    else:
        order, turn = _by_session(sessions)
        think_ns = _recorded(times_ns[order], turn)
        if talk.think.law != "trace":
            think_ns = np.where(turn > 0, drawer.thinks_ns(talk.think, at.seq, len(turn)), np.int64(NONE))
    rows = rows[order]
    prompt_id = rows if is_of_trace(workload.prompts) else drawer.prompt_ids(at.seq, len(rows))
    pairs = drawer.lengths(at.seq, len(rows), prompt_id, recorded(workload.prompts, trace, rows))
    note(notes, **pairs.changed)
    firsts = np.flatnonzero(turn == 0)
    return Part(
        offset_ns=np.repeat(times_ns[order][firsts], np.diff(firsts, append=len(turn))),
        step=np.full(len(rows), NONE, dtype=np.int32),
        prompt_id=prompt_id,
        input_tokens=pairs.input_tokens,
        max_tokens=pairs.max_tokens,
        turn=turn,
        think_ns=think_ns,
    )


def warming(phase: Phase, parts: list[Part], notes: Counter[str]) -> Part:
    """Return the pass that sends each prompt of the plan once, for one token, in the order of their first use.

    Later turns of conversations hold answers that nobody knows yet; they are left to the run.
    """
    firsts = [part.turn == 0 for part in parts]
    pairs = np.stack(
        [
            np.concatenate([part.prompt_id[first] for part, first in zip(parts, firsts, strict=True)]),
            np.concatenate([part.input_tokens[first] for part, first in zip(parts, firsts, strict=True)]),
        ],
        axis=1,
    )
    _, used = np.unique(pairs, axis=0, return_index=True)
    rate_per_s = phase.warm_per_s or 1.0
    offset_ns = (np.arange(len(used)) / rate_per_s * NS_PER_S).astype(np.int64)
    count = int(np.searchsorted(offset_ns, phase.duration_ns, side="left"))
    note(notes, warm_pass_left_out=len(used) - count)
    chosen = pairs[np.sort(used)[:count]]
    turn, think_ns = _single(count)
    return Part(
        offset_ns=offset_ns[:count],
        step=np.full(count, NONE, dtype=np.int32),
        prompt_id=chosen[:, 0],
        input_tokens=chosen[:, 1].astype(np.int32),
        max_tokens=np.ones(count, dtype=np.int32),
        turn=turn,
        think_ns=think_ns,
    )


def note(notes: Counter[str], **counts: int) -> None:
    """Add to the notes of a plan what there is of something; nothing where there is none."""
    notes.update({reason: count for reason, count in counts.items() if count})


def _kept_rows(workload: Workload, part: TraceSlice, trace: Trace, notes: Counter[str]) -> Ints:
    """Return which rows of a trace are sent, in order of time, and note what is not."""
    chosen, prompts = rows_of(trace, part), workload.prompts
    fit_input = fits(prompts.input_tokens, trace.input_tokens[chosen])
    fit_output = fits(prompts.output_tokens, trace.output_tokens[chosen])
    note(
        notes,
        dropped_input=int(np.count_nonzero(~fit_input)),
        dropped_output=int(np.count_nonzero(fit_input & ~fit_output)),
        zero_output_left_out=left_out_of(trace, part),
        trace_steps_back=trace.steps_back,
    )
    rows: Ints = np.flatnonzero(fit_input & fit_output) + chosen.start
    return rows


def _unticked(workload: Workload, index: int, times_ns: Ints, notes: Counter[str]) -> Ints:
    """Return times with the ticks of a coarse clock spread where that is wanted; note what was found and done."""
    part, found = workload.phases[index].replay, ticks_of(times_ns)
    if found is None or part is None:
        return times_ns
    if not part.spread:
        note(notes, trace_equal_times=found.equal)
        notes["trace_tick_ms"] = max(notes["trace_tick_ms"], found.tick_ns // NS_PER_MS)
        return times_ns
    note(notes, trace_spread_rows=found.equal)
    return spread(times_ns, found.tick_ns, generator(workload.seed, SPREAD, index))


def _single(count: int) -> tuple[Tokens, Ints]:
    """Return turns and pauses of requests that belong to no conversation."""
    return np.zeros(count, dtype=np.int32), np.full(count, NONE, dtype=np.int64)


def _counted(turns: Ints) -> Tokens:
    """Return 0, 1, ... for each conversation in turn."""
    total = int(turns.sum())
    return (np.arange(total) - np.repeat(np.cumsum(turns) - turns, turns)).astype(np.int32)


def _talked(talk: Conversation, turns: Ints, turn: Tokens, at: Position, drawer: Drawer) -> Ints:
    """Return the prompts of conversations: turn by turn as in the file, or each drawn as any other."""
    if talk.turns.law == "prompt":
        return np.repeat(drawer.prompt_ids(at.session, len(turns)), turns) + turn
    return drawer.prompt_ids(at.seq, len(turn))


def _by_session(sessions: Tokens) -> tuple[Ints, Tokens]:
    """Return the order that brings the rows of each session together, by its first row, and the turn of each.

    Rows of session -1 stand alone.
    """
    names = np.where(sessions >= 0, sessions.astype(np.int64), -1 - np.arange(len(sessions)))
    _, first, number = np.unique(names, return_index=True, return_inverse=True)
    began = first[number]
    order = np.argsort(began, kind="stable")
    _, counts = np.unique(began[order], return_counts=True)
    return order, _counted(counts.astype(np.int64))


def _recorded(times_ns: Ints, turn: Tokens) -> Ints:
    """Return the time from the row before in the same session; -1 for first turns."""
    return np.where(turn > 0, np.diff(times_ns, prepend=0), np.int64(NONE))
