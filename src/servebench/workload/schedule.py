"""Know the whole schedule before it begins: every request with its time, prompt and lengths.

Every process plans the same schedule from the same workload; its hash proves it. Requests are numbered phase by phase
in order of time; the turns of a conversation have consecutive numbers, and stand where the conversation begins. In a
replayed phase a row dropped by `over: drop` has no seq.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from servebench.core.errors import InputError
from servebench.core.records import Ask
from servebench.workload.draw import Drawer, known
from servebench.workload.lengths import NONE
from servebench.workload.model import Phase, Workload
from servebench.workload.parts import Part, Position, drawn, note, replayed, warming
from servebench.workload.prompts import PromptSet
from servebench.workload.traces import Traces


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
    the prompt is, no limit sent. `due_ns` is when a request, or the conversation that it belongs to, begins: sorted.
    `intended_ns` is the same, but -1 for later turns, whose time depends on the answer before them; `think_ns` is their
    pause after it, -1 for first turns, None where there are no later ones. `notes` counts what planning clipped,
    dropped or left out, by reason; absent = none.
    """

    seq: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int32]
    step: npt.NDArray[np.int32]
    due_ns: npt.NDArray[np.int64]
    intended_ns: npt.NDArray[np.int64]
    prompt_id: npt.NDArray[np.int64]
    input_tokens: npt.NDArray[np.int32]
    max_tokens: npt.NDArray[np.int32]
    session: npt.NDArray[np.int64]
    turn: npt.NDArray[np.int32]
    think_ns: npt.NDArray[np.int64] | None
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
            intended_ns=known(int(self.intended_ns[seq])),
            prompt_id=int(self.prompt_id[seq]),
            input_tokens=known(int(self.input_tokens[seq])),
            max_tokens=known(int(self.max_tokens[seq])),
            session=int(self.session[seq]),
            turn=int(self.turn[seq]),
            think_ns=None if self.think_ns is None else known(int(self.think_ns[seq])),
        )


def plan(workload: Workload, prompts: PromptSet | None = None) -> Schedule:
    """Return the schedule of a workload: the same on every process.

    Pass the prompts where they are loaded already. Raises SpecError or InputError for prompt and trace files that are
    not usable, and InputError for closed load; a workload may plan no request at all.
    """
    if workload.closed is not None:
        msg = f"{workload.name} is closed load: its requests follow answers, so there is no schedule"
        raise InputError(msg)
    traces = Traces(workload.seed)
    loaded = PromptSet.load(workload.prompts) if prompts is None else prompts
    drawer = Drawer(workload, loaded, traces)
    notes: Counter[str] = Counter()
    note(notes, **{f"prompts_skipped_{reason}": count for reason, count in loaded.skipped.items()})
    parts = _parts(workload, drawer, traces, notes)
    phases: list[PhasePlan] = []
    start_ns = 0
    for phase, part in zip(workload.phases, parts, strict=True):
        end_ns = start_ns + phase.duration_ns
        phases.append(
            PhasePlan(
                name=phase.name,
                shape=phase.shape,
                start_ns=start_ns,
                end_ns=end_ns,
                measured=phase.measured,
                planned=len(part),
                steps=_steps(phase, start_ns),
            )
        )
        start_ns = end_ns
    return _schedule(parts, phases, notes)


def _parts(workload: Workload, drawer: Drawer, traces: Traces, notes: Counter[str]) -> list[Part]:
    """Return the requests of each phase. A warm-up pass, which comes first, depends on all others and is made last."""
    warm = [phase for phase in workload.phases if phase.warm_per_s is not None]
    # Without it phases have the numbers, and so the draws, that they have in the workload that is not warmed.
    timed = msgspec.structs.replace(workload, phases=workload.phases[len(warm) :])
    parts: list[Part] = []
    at = Position(0, 0)
    for index, phase in enumerate(timed.phases):
        if phase.replay is None:
            part = drawn(timed, index, at, drawer, notes)
        else:
            part = replayed(timed, index, at, drawer, traces.read(phase.replay), notes)
        parts.append(part)
        at = at.after(part)
    return [*(warming(phase, parts, notes) for phase in warm), *parts]


def _schedule(parts: list[Part], phases: list[PhasePlan], notes: Counter[str]) -> Schedule:
    counts = [phase.planned for phase in phases]
    starts = np.repeat(np.array([phase.start_ns for phase in phases], dtype=np.int64), counts)
    due_ns = starts + np.concatenate([part.offset_ns for part in parts])
    turn = np.concatenate([part.turn for part in parts], dtype=np.int32)
    later = turn > 0
    talks = bool(later.any())
    return Schedule(
        seq=np.arange(len(turn), dtype=np.int64),
        phase=np.repeat(np.arange(len(phases), dtype=np.int32), counts),
        step=np.concatenate([part.step for part in parts], dtype=np.int32),
        due_ns=due_ns,
        intended_ns=np.where(later, np.int64(NONE), due_ns) if talks else due_ns,
        prompt_id=np.concatenate([part.prompt_id for part in parts]),
        input_tokens=np.concatenate([part.input_tokens for part in parts], dtype=np.int32),
        max_tokens=np.concatenate([part.max_tokens for part in parts], dtype=np.int32),
        session=np.cumsum(~later, dtype=np.int64) - 1,
        turn=turn,
        think_ns=np.concatenate([part.think_ns for part in parts]) if talks else None,
        phases=tuple(phases),
        notes=dict(sorted(notes.items())),
    )


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
