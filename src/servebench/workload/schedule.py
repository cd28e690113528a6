"""Know the whole schedule before it begins: every request with its time, prompt and lengths.

Every process plans the same schedule from the same workload; its hash proves it. Requests are numbered phase by phase
in order of time, so (seq, intended_ns) is sorted. In a replayed phase a row dropped by `over: drop` has no seq.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.records import Ask
from servebench.workload.arrivals import arrivals
from servebench.workload.draw import ARRIVALS, Drawer, fits, generator, known, limit
from servebench.workload.model import Phase, Prompts, TraceSlice, Workload
from servebench.workload.prompts import PromptSet
from servebench.workload.traces import Trace, Traces, left_out_of, rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One load level of a phase: [start_ns, end_ns) on the run clock and its mean rate."""

    index: int
    start_ns: int
    end_ns: int
    rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """One phase: [start_ns, end_ns) on the run clock, and how many requests are planned in it."""

    name: str
    shape: str
    start_ns: int
    end_ns: int
    measured: bool
    planned: int
    steps: tuple[StepPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All planned requests as columns of one length, sorted by seq (0 .. n-1).

    `phase` is the index into `phases`. In `step`, `input_tokens` and `max_tokens` -1 is "none": no levels, as long as
    the prompt is, no limit sent. `notes` counts what planning clipped, dropped or left out, by reason; absent = none.
    """

    seq: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int32]
    step: npt.NDArray[np.int32]
    intended_ns: npt.NDArray[np.int64]
    prompt_id: npt.NDArray[np.int64]
    input_tokens: npt.NDArray[np.int32]
    max_tokens: npt.NDArray[np.int32]
    session: npt.NDArray[np.int64]
    turn: npt.NDArray[np.int32]
    phases: tuple[PhasePlan, ...]
    notes: dict[str, int]

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def phase_names(self) -> tuple[str, ...]:
        """Names in the order of the workload; `phase` holds indices into them."""
        return tuple(phase.name for phase in self.phases)

    @property
    def phase_measured(self) -> tuple[bool, ...]:
        """Whether each phase counts in the results."""
        return tuple(phase.measured for phase in self.phases)

    @property
    def schedule_hash(self) -> str:
        """Return the sha256 of the little-endian bytes of the columns of `plan.parquet` in order, 64 hex digits."""
        digest = hashlib.sha256()
        for column in (
            self.seq,
            self.phase,
            self.intended_ns,
            self.prompt_id,
            self.input_tokens,
            self.max_tokens,
            self.session,
            self.turn,
        ):
            digest.update(np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<")).data)
        return digest.hexdigest()

    def ask(self, seq: int) -> Ask:
        """Return the request number `seq`.

        Raises IndexError outside 0 .. n-1.
        """
        if not 0 <= seq < len(self.seq):
            msg = f"seq {seq} is outside 0..{len(self.seq) - 1}"
            raise IndexError(msg)
        phase = self.phases[self.phase[seq]]
        return Ask(
            seq=seq,
            phase=phase.name,
            step=known(int(self.step[seq])),
            measured=phase.measured,
            intended_ns=int(self.intended_ns[seq]),
            prompt_id=int(self.prompt_id[seq]),
            input_tokens=known(int(self.input_tokens[seq])),
            max_tokens=known(int(self.max_tokens[seq])),
            session=int(self.session[seq]),
            turn=int(self.turn[seq]),
        )


class _Part(NamedTuple):
    """The requests of one phase; `offset_ns` from its start."""

    offset_ns: npt.NDArray[np.int64]
    step: npt.NDArray[np.int32]
    input_tokens: npt.NDArray[np.int32]
    max_tokens: npt.NDArray[np.int32]


def plan(workload: Workload, prompts: PromptSet | None = None) -> Schedule:
    """Return the schedule of a workload: the same on every process.

    Pass the prompts where they are loaded already. Raises SpecError or InputError for prompt and trace files that are
    not usable; a workload may plan no request at all.
    """
    traces = Traces()
    drawer = Drawer(workload, prompts, traces)
    notes: Counter[str] = Counter()
    parts: list[_Part] = []
    phases: list[PhasePlan] = []
    first = start_ns = 0
    for index, phase in enumerate(workload.phases):
        if phase.replay is None:
            part = _drawn(workload, index, first, drawer, notes)
        else:
            part = _replayed(workload.prompts, phase.replay, traces.read(phase.replay.path), notes)
            # Dividing by the speed may round the last rows up to the very end, which is outside the phase.
            part = part._replace(offset_ns=np.minimum(part.offset_ns, phase.duration_ns - 1))
        count = len(part.offset_ns)
        end_ns = start_ns + phase.duration_ns
        phases.append(
            PhasePlan(
                name=phase.name,
                shape=phase.shape,
                start_ns=start_ns,
                end_ns=end_ns,
                measured=phase.measured,
                planned=count,
                steps=_steps(phase, start_ns),
            )
        )
        parts.append(part)
        first, start_ns = first + count, end_ns
    return _schedule(parts, phases, drawer, notes)


def _drawn(workload: Workload, index: int, first: int, drawer: Drawer, notes: Counter[str]) -> _Part:
    """Return a phase whose times come from the arrival process and whose lengths are drawn."""
    draws = generator(workload.seed, ARRIVALS, index)
    phase = workload.phases[index]
    due = arrivals(phase.arrivals or workload.arrivals, phase.segments, draws)
    pairs = drawer.lengths(first, len(due.offset_ns))
    _count(notes, clipped_input=pairs.clipped_input, clipped_output=pairs.clipped_output)
    return _Part(due.offset_ns, due.step, pairs.input_tokens, pairs.max_tokens)


def _replayed(prompts: Prompts, part: TraceSlice, trace: Trace, notes: Counter[str]) -> _Part:
    """Return a phase whose times, and where wanted lengths, are those of a trace's rows."""
    rows = rows_of(trace, part)
    fit_input = fits(prompts.input_tokens, trace.input_tokens[rows])
    fit_output = fits(prompts.output_tokens, trace.output_tokens[rows])
    keep = fit_input & fit_output
    inputs, clipped_input = limit(prompts.input_tokens, trace.input_tokens[rows][keep], int(keep.sum()))
    outputs, clipped_output = limit(prompts.output_tokens, trace.output_tokens[rows][keep], int(keep.sum()))
    _count(
        notes,
        clipped_input=clipped_input,
        clipped_output=clipped_output,
        dropped_input=int(np.count_nonzero(~fit_input)),
        dropped_output=int(np.count_nonzero(fit_input & ~fit_output)),
        zero_output_left_out=left_out_of(trace, part),
        trace_steps_back=trace.steps_back,
    )
    offset_ns = ((trace.offset_ns[rows][keep] - part.start_ns) / part.speed).astype(np.int64)
    return _Part(offset_ns, np.full(len(offset_ns), -1, dtype=np.int32), inputs, outputs)


def _schedule(parts: list[_Part], phases: list[PhasePlan], drawer: Drawer, notes: Counter[str]) -> Schedule:
    counts = [phase.planned for phase in phases]
    total = sum(counts)
    seq = np.arange(total, dtype=np.int64)
    starts = np.repeat(np.array([phase.start_ns for phase in phases], dtype=np.int64), counts)
    return Schedule(
        seq=seq,
        phase=np.repeat(np.arange(len(phases), dtype=np.int32), counts),
        step=_joined([part.step for part in parts]),
        intended_ns=starts + np.concatenate([part.offset_ns for part in parts]),
        prompt_id=drawer.prompt_ids(0, total),
        input_tokens=_joined([part.input_tokens for part in parts]),
        max_tokens=_joined([part.max_tokens for part in parts]),
        session=seq.copy(),
        turn=np.zeros(total, dtype=np.int32),
        phases=tuple(phases),
        notes=dict(sorted(notes.items())),
    )


def _joined(columns: list[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32]:
    return np.concatenate(columns, dtype=np.int32)


def _steps(phase: Phase, start_ns: int) -> tuple[StepPlan, ...]:
    """Return the levels of a phase; segments without a level have none."""
    steps: list[StepPlan] = []
    at = start_ns
    for segment in phase.segments:
        end = at + segment.duration_ns
        if segment.step is not None:
            rate = (segment.from_per_s + segment.to_per_s) / 2
            steps.append(StepPlan(index=segment.step, start_ns=at, end_ns=end, rate_per_s=rate))
        at = end
    return tuple(steps)


def _count(notes: Counter[str], **counts: int) -> None:
    notes.update({reason: count for reason, count in counts.items() if count})
