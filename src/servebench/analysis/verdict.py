"""Know when the numbers of a run may not be used, and say why with the number and the way out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from servebench.analysis.accounting import Accounting
from servebench.analysis.seals import UNSEALED, Seals
from servebench.core.outcomes import ExitCode, Status
from servebench.core.units import NS_PER_MS
from servebench.shards.manifest import OUT_OF_REACH, Verdict

LOST_LIMIT = 0.01
LATE_LIMIT = 0.01
SPOILED_LIMIT = 0.05
IMPOSSIBLE_LIMIT = 0.01
FEW_IMPOSSIBLE = 3
FINISHED = "finished"
USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFacts:
    """What the verdict asks of a measured phase. `lagging` = dispatched later than `lag_limit_ns` after intended."""

    name: str
    planned: int
    lost: int
    dispatched: int
    lagging: int
    lag_limit_ns: float
    seconds: float
    spoiled_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a verdict rests on; `objectives` is the word of `objectives.overall`, `marks` is told beside it.

    `impossible`: measured ok answers whose times cannot be. `contradictions`: `plausible.contradictions`.
    """

    engine: str
    stop_cause: str | None
    accounting: Accounting
    part_faults: tuple[str, ...]
    ok: int
    impossible: int
    objectives: str
    marks: tuple[str, ...]
    phases: tuple[PhaseFacts, ...]
    seals: Seals = UNSEALED
    contradictions: tuple[str, ...] = ()


def lag_limit_ns(seconds: float, planned: int) -> float:
    """Return the dispatch lag that spoils a request: max(5 ms, 10 % of the mean gap between arrivals)."""
    mean_gap_ns = seconds * 1e9 / planned if planned else 0.0
    return max(5.0 * NS_PER_MS, 0.1 * mean_gap_ns)


def judge(facts: Facts) -> Verdict:
    """Return the verdict; its reasons begin with what makes it other than valid, then come marks."""
    broken = list(_broken(facts))
    cut = list(_cut(facts))
    status = Status.INTERRUPTED if cut else Status.INVALID if broken else Status.VALID
    reasons = [*cut, *broken, *_marks(facts)]
    objectives = "missed" if _out_of_reach(facts) else facts.objectives
    return Verdict(valid=status is Status.VALID, status=status.value, objectives=objectives, reasons=reasons)


def exit_code(verdict: Verdict, *, strict: bool = False) -> int:
    """Return the exit code of a command that shows this verdict; `strict`: an undecided objective counts as missed."""
    if verdict.status == Status.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if not verdict.valid:
        return ExitCode.INVALID
    if verdict.objectives == "missed" or (strict and verdict.objectives == "undecided"):
        return ExitCode.MISSED
    return ExitCode.OK


def _out_of_reach(facts: Facts) -> bool:
    """Whether the run ended early because an objective could not be met any more."""
    return facts.stop_cause is not None and facts.stop_cause.startswith(OUT_OF_REACH)


def _cut(facts: Facts) -> Iterator[str]:
    if facts.stop_cause is None:
        yield (
            "the master ended without closing the run; planned counts only what the rows prove. "
            "Look into log/master.log and run again"
        )
    elif facts.stop_cause == USER and facts.engine == "plan":
        yield "stopped by the user before the plan was done; numbers hold up to the stop"


def _broken(facts: Facts) -> Iterator[str]:
    books = facts.accounting
    if facts.stop_cause not in (None, USER, FINISHED) and not _out_of_reach(facts):
        yield f"the run was stopped: {facts.stop_cause}"
    for path in facts.seals.changed:
        yield f"{path} has other bytes than when the run was merged first (sha256 in run.json); put the right file back"
    if books.duplicates:
        yield f"{books.duplicates:,} rows repeat the (seq, attempt) of another; remove parts that were copied twice"
    if books.beyond:
        yield f"{books.beyond:,} requests lie beyond the {books.planned:,} planned; parts of another run?"
    if books.unnamed:
        yield f"{books.unnamed:,} requests were begun but have neither row nor name; look into the workers' logs"
    yield from facts.contradictions
    if _mostly_impossible(facts):
        yield (
            f"{facts.impossible:,} of {facts.ok:,} answers hold times that cannot be, such as a token before the "
            "request or an end before the last token: a clock was set, or the parts are not of a run. Run again"
        )
    if not facts.ok and facts.part_faults and not books.rows:
        yield "no part could be used; what is wrong with each stands below"
    elif not facts.ok:
        yield "no measured request was answered well; look at the outcomes, then: servebench run … with one request"
    for phase in facts.phases:
        yield from _phase_faults(phase)


def _mostly_impossible(facts: Facts) -> bool:
    """Whether more answers than a few hold impossible times: then the others cannot be trusted either."""
    return 0 < facts.ok == facts.impossible or facts.impossible > max(FEW_IMPOSSIBLE, IMPOSSIBLE_LIMIT * facts.ok)


def _phase_faults(phase: PhaseFacts) -> Iterator[str]:
    if phase.lost > LOST_LIMIT * phase.planned:
        share = 100 * phase.lost / max(phase.planned, 1)
        yield (
            f"{phase.lost:,} of {phase.planned:,} requests of phase {phase.name} were lost ({share:.1f} %, limit 1 %); "
            "run.json names them and their worker: see its log"
        )
    if phase.lagging > LATE_LIMIT * phase.dispatched:
        share = 100 * phase.lagging / max(phase.dispatched, 1)
        yield (
            f"{phase.lagging:,} of {phase.dispatched:,} requests of phase {phase.name} were dispatched more than "
            f"{phase.lag_limit_ns / NS_PER_MS:.3g} ms late ({share:.1f} %, limit 1 %): the client was too slow. "
            "Add workers: --workers N"
        )
    if phase.spoiled_seconds > SPOILED_LIMIT * phase.seconds:
        yield (
            f"{phase.spoiled_seconds:,} of {phase.seconds:.0f} s of phase {phase.name} were spoiled by this client "
            "(limit 5 %): a worker's hub lag or CPU. Add workers: --workers N"
        )


def _marks(facts: Facts) -> Iterator[str]:
    if _out_of_reach(facts):
        yield f"ended early by stop.objectives, {facts.stop_cause}; numbers hold up to the stop"
    for fault in facts.part_faults:
        yield f"a part could not be used: {fault}"
    for path in facts.seals.gone:
        yield f"{path} is gone or damaged since the run was merged first; put it back for the rows that it held"
    lost = facts.accounting.lost_count
    if lost:
        yield f"{lost:,} of {facts.accounting.planned:,} planned requests were lost; run.json names them"
    if facts.impossible and not _mostly_impossible(facts):
        answers = "1 answer holds" if facts.impossible == 1 else f"{facts.impossible:,} answers hold"
        yield f"{answers} times that cannot be, such as a token before the request; what follows from them is left out"
    yield from facts.marks


def phase_planned(sizes: Sequence[int | None], rows: Sequence[int], planned: int) -> tuple[int, ...]:
    """Return how many requests each phase planned up to the stop, from the plan's sizes, else from the rows.

    Seqs follow the phases, so a run of `planned` seqs cuts the sizes off in order.
    """
    found, left = [], planned
    for size, seen in zip(sizes, rows, strict=True):
        found.append(seen if size is None else min(size, left))
        left = max(0, left - found[-1])
    return tuple(found)
