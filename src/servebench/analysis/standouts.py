"""Know which findings of a run deserve a sentence; each is a named rule that is silent when its conditions fail."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from servebench.analysis.counts import OutcomeCount
from servebench.analysis.curve import CurvePoint
from servebench.analysis.held_back import HeldBack
from servebench.analysis.numbers import count, significant
from servebench.analysis.tables import POOLED, Table
from servebench.core.outcomes import Outcome, TokenSource

MOST = 3
PHASE_CONTRAST = 1.5
QUIET_SEND_LAG_MS = 5.0
KEPT_UP = 0.9
LEVEL_LENGTHS = 10
"""A level is long enough to be judged from this many typical requests on."""
EDGE_SIGMAS = 3.0
OFTEN_COALESCED = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the rules look at; `coalesced` = share of token events that shared a read, NaN without events."""

    table: Table
    curve: tuple[CurvePoint, ...]
    outcomes: tuple[OutcomeCount, ...]
    token_source: str | None
    coalesced: float
    held_back: HeldBack | None = None


def stand_out(scene: Scene) -> tuple[str, ...]:
    """Return at most three sentences, in order of the rules."""
    rules: tuple[Callable[[Scene], str | None], ...] = (
        slower_phase,
        not_kept_up,
        timed_out,
        first_tokens_held_back,
        tokens_estimated,
        chunks_coalesced,
    )
    return tuple(sentence for rule in rules if (sentence := rule(scene)) is not None)[:MOST]


def slower_phase(scene: Scene) -> str | None:
    """Compare TTFT p95 of the slowest phase with the fastest one's; says whether the client waited too."""
    rows = [row for row in scene.table.rows if row.metric == "ttft" and row.group != (POOLED,) and row.p95 is not None]
    if len(rows) < 2:
        return None
    slow, fast = max(rows, key=lambda row: row.p95 or 0), min(rows, key=lambda row: row.p95 or 0)
    if slow.p95 is None or fast.p95 is None or slow.p95 < PHASE_CONTRAST * fast.p95:
        return None
    text = f"TTFT p95 is {significant(slow.p95)} ms in {slow.group[0]}, {significant(fast.p95)} ms in {fast.group[0]}"
    lag = scene.table.find("send_lag", *slow.group)
    if lag is not None and lag.p95 is not None and lag.p95 < QUIET_SEND_LAG_MS:
        return f"{text}; send lag there is {significant(lag.p95)} ms (p95): the wait is in the server."
    return text + "."


def not_kept_up(scene: Scene) -> str | None:
    """Name the first load level at which fewer requests were answered well than sent.

    Levels too short against the length of a request are passed over: their answers fall into the next one. So are
    shortfalls that the requests open at the edges of the level explain: with L open on average, the numbers open at its
    start and its end differ by about sqrt(2 L), and by L more where the level began the run, with none open. A queue
    that grows all along leaves 2 L open.
    """
    for point in scene.curve:
        typical_ms = point.latency["e2e"].p50
        if typical_ms is None or point.level.window.seconds < LEVEL_LENGTHS * typical_ms / 1000:
            continue
        sent, achieved = point.sent_per_s, point.achieved_per_s
        began_empty = point.in_flight_mean if point.level.window.start_ns == 0 else 0.0
        at_edges = EDGE_SIGMAS * sqrt(2 * point.in_flight_mean) + began_empty
        if achieved < KEPT_UP * sent and (sent - achieved) * point.level.window.seconds > at_edges:
            where = (
                point.level.phase if point.level.step is None else f"{point.level.phase}, level {point.level.step + 1}"
            )
            return f"At {significant(sent)} req/s sent ({where}) {significant(achieved)} req/s were answered well."
    return None


def timed_out(scene: Scene) -> str | None:
    """Say that requests over a deadline count as errors and are in no latency."""
    hits = [
        (item.error_class or Outcome.TIMEOUT.value, item.n)
        for item in scene.outcomes
        if item.outcome == Outcome.TIMEOUT
    ]
    if not hits:
        return None
    total = sum(n for _, n in hits)
    kinds = ", ".join(f"{name} {count(n)}" for name, n in hits)
    return (
        f"{count(total)} request{'s' if total != 1 else ''} hit a deadline ({kinds}): in the error rate, in no latency."
    )


def first_tokens_held_back(scene: Scene) -> str | None:
    """Say that TTFT holds a wait of the server's kernel for an acknowledgement, and the way out."""
    found = scene.held_back
    if found is None:
        return None
    return (
        f"In {significant(100 * found.share)} % of {count(found.n)} answers the first tokens came together "
        f"{significant(found.wait_ms)} ms after the head: the server's kernel seems to wait for a delayed "
        "acknowledgement. TTFT holds that; try TCP_NODELAY in the server or the proxy before it."
    )


def tokens_estimated(scene: Scene) -> str | None:
    """Say that token counts are estimates where the server sent no usage."""
    if scene.token_source != TokenSource.EVENTS:
        return None
    return "The server sent no usage: output tokens are counted as one per token event, an estimate."


def chunks_coalesced(scene: Scene) -> str | None:
    """Say that many chunk gaps are 0 because events came together."""
    if not scene.coalesced > OFTEN_COALESCED:
        return None
    return f"{significant(100 * scene.coalesced)} % of token events shared a read with another: their chunk gaps are 0."
