"""Know everything that is said about a run, computed once for merge, summary and report."""

from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from servebench.analysis.acceptance import Acceptance, acceptance
from servebench.analysis.accounting import Accounting, RowKeys, account
from servebench.analysis.cache_claim import CacheClaim, cache_claim
from servebench.analysis.columns import word_codes
from servebench.analysis.counts import (
    Counts,
    OutcomeCount,
    PhaseCounts,
    count_measured,
    count_outcomes,
    count_phases,
)
from servebench.analysis.curve import CurvePoint, curve
from servebench.analysis.engine_side import ServerSide, server_side
from servebench.analysis.findings import Findings, find
from servebench.analysis.health import Health, spoiled_seconds
from servebench.analysis.held_back import held_back
from servebench.analysis.leaving import Leaving, leaving
from servebench.analysis.objectives import Result, assess, overall
from servebench.analysis.plausible import contradictions
from servebench.analysis.seals import MERGED, check_seals
from servebench.analysis.source import RunData, declared_objectives, load_run
from servebench.analysis.standouts import Scene, stand_out
from servebench.analysis.tables import TURNS, Table, has_later_turns, in_order, percentile_table
from servebench.analysis.token_counts import TokenCounts, token_counts
from servebench.analysis.verdict import Facts, PhaseFacts, judge, lag_limit_ns
from servebench.metrics import METRIC_BY_NAME, formulas
from servebench.shards.conversations import read_conversations
from servebench.shards.manifest import Manifest

MOST_FINDINGS = 2
"""Findings that the short summary repeats."""
MOST_STANDOUTS = 5
"""Sentences that the short summary has room for."""


class Client(NamedTuple):
    """How clean the client itself was in measured time; `known` false = no health rows were recorded."""

    clean_s: float
    seconds: float
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The manifest as merge completes it, and all that was computed. Latency and counts are of measured requests."""

    manifest: Manifest
    accounting: Accounting
    counts: Counts
    phases: tuple[PhaseCounts, ...]
    outcomes: tuple[OutcomeCount, ...]
    objectives: tuple[Result, ...]
    table: Table
    curve: tuple[CurvePoint, ...]
    client: Client
    tokens: TokenCounts
    token_source: str | None
    model: str | None
    findings: Findings
    acceptance: Acceptance
    leaving: Leaving
    cache: CacheClaim | None
    turns: Table | None
    """First and later turns apart; None where there are no conversations."""
    server: ServerSide
    standouts: tuple[str, ...]


class Examined(NamedTuple):
    """A run folder as read, and what came of it. Nothing is written."""

    run: RunData
    digest: Digest

    @property
    def health(self) -> Health:
        """What the client said of itself."""
        return self.run.health


def examine(folder: Path, executor: Executor | None = None) -> Examined:
    """Read a run folder and compute everything; an executor shares the reading.

    Raises ShardError where the folder is no run folder.
    """
    run = load_run(folder, executor)
    return Examined(run, digest(run))


def digest(run: RunData) -> Digest:
    """Return all that is said about a run; the same rows and manifest give the same digest."""
    keys = RowKeys(run.seq, run.attempt, run.columns.intended_ns, run.phase)
    books = account(run.manifest, keys, read_conversations(run.folder))
    phases = count_phases(run, books)
    counts = count_measured(run, phases)
    results, findings, server, accepted = _objectives(run), find(run), server_side(run), acceptance(run)
    claim, left = cache_claim(run, server.telemetry), leaving(run, server.telemetry)
    facts = Facts(
        engine=run.manifest.engine,
        stop_cause=run.manifest.stop_cause,
        accounting=books,
        part_faults=run.faults,
        seals=check_seals(run.manifest, run.shards),
        ok=counts.ok,
        impossible=formulas.impossible_spans(run.columns, run.measured),
        objectives=overall(results),
        marks=(*findings.marks, *accepted.marks, *(claim.marks if claim is not None else ())),
        phases=tuple(_phase_facts(run, run.health, phase) for phase in phases if phase.measured),
        contradictions=contradictions(run),
    )
    table, points = percentile_table(run), curve(run)
    tokens = token_counts(run)
    source = _most(run, "token_source")
    client = _client(run.health, phases)
    scene = Scene(
        table=table,
        curve=points,
        outcomes=count_outcomes(run),
        token_source=source,
        coalesced=formulas.coalesced_share(run.columns, run.measured).value,
        held_back=held_back(run.columns, run.measured),
    )
    return Digest(
        manifest=_completed(run, books, facts),
        accounting=books,
        counts=counts,
        phases=phases,
        outcomes=scene.outcomes,
        objectives=results,
        table=table,
        curve=points,
        client=client,
        tokens=tokens,
        token_source=source,
        model=_most(run, "model"),
        findings=findings,
        cache=claim,
        turns=percentile_table(run, (TURNS,)) if has_later_turns(run) else None,
        server=server,
        acceptance=accepted,
        leaving=left,
        standouts=(
            *accepted.sentences,
            *left.sentences,
            *findings.sentences[:MOST_FINDINGS],
            *server.sentences,
            *stand_out(scene),
        )[:MOST_STANDOUTS],
    )


def _completed(run: RunData, books: Accounting, facts: Facts) -> Manifest:
    return msgspec.structs.replace(
        run.manifest,
        state=MERGED,
        planned=books.planned,
        rows=books.rows,
        lost=[(item.first, item.last) for item in books.lost],
        lost_detail=list(books.lost),
        shards=list(facts.seals.shards),
        verdict=judge(facts),
    )


def _objectives(run: RunData) -> tuple[Result, ...]:
    wanted = declared_objectives(run.manifest)
    order = np.argsort(run.columns.sent_ns, kind="stable")
    samples = {
        o.metric: in_order(run, METRIC_BY_NAME[o.metric], run.measured & ~run.spoiled, order)
        for o in wanted
        if o.metric in formulas.REQUEST_FORMULAS
    }
    c = run.columns
    series = {"error_rate": np.where(c.ok | c.failed, c.failed, np.nan), "accepted_share": c.accepted}
    series["good_share"] = c.good
    shares = {name: flags[order][(run.measured & ~np.isnan(flags))[order]] for name, flags in series.items()}
    return assess(wanted, samples, shares)


def _phase_facts(run: RunData, health: Health, phase: PhaseCounts) -> PhaseFacts:
    lag = formulas.dispatch_lag_ns(run.columns)[run.phase == phase.name]
    limit = lag_limit_ns(phase.window.seconds, phase.planned)
    return PhaseFacts(
        name=phase.name,
        planned=phase.planned,
        lost=phase.lost,
        dispatched=int(np.sum(~np.isnan(lag))),
        lagging=int(np.sum(lag > limit)),
        lag_limit_ns=limit,
        seconds=phase.window.seconds,
        spoiled_seconds=spoiled_seconds(health, phase.window),
    )


def _client(health: Health, phases: tuple[PhaseCounts, ...]) -> Client:
    windows = [phase.window for phase in phases if phase.measured]
    seconds = sum(window.seconds for window in windows)
    spoiled = sum(spoiled_seconds(health, window) for window in windows)
    return Client(max(0.0, seconds - spoiled), seconds, len(health.t_ns) > 0)


def _most(run: RunData, name: str) -> str | None:
    """Return the most frequent word of a column, None where it is always null."""
    codes, known = word_codes(run.table, name)
    found = dict(zip(known, np.bincount(codes[codes >= 0], minlength=len(known)).tolist(), strict=True))
    return min(found, key=lambda word: (-found[word], word)) if any(found.values()) else None
