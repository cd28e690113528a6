"""Know whether the server's cache was in the state that the workload claims, by its answers or else by its counters.

What this run itself had sent before may come from the cache whatever the state at its start: the same prompt again, the
history of a conversation, the declared shared prefix, the repeats of a trace (which the plan counted). A cache works in
whole blocks and knows the chat template too, so per prompt `SLACK_TOKENS` more or fewer say nothing.
"""

from typing import NamedTuple

import numpy as np

from servebench.analysis.columns import floats
from servebench.analysis.engine import Telemetry
from servebench.analysis.numbers import plain
from servebench.analysis.source import RunData, workload_of
from servebench.analysis.windows import phase_windows
from servebench.metrics.columns import BoolArray, FloatArray
from servebench.workload.model import Workload
from servebench.workload.phase_names import CACHE_WARMUP

SLACK_TOKENS = 64
"""Blocks hold 16 to 64 tokens; a prompt's template and salt, which all prompts of a run share, are about as long."""
FOREIGN_LIMIT = 0.02
REPEATED_LIMIT = 0.05
LEAST_SHARE = 0.9
"""Of what has to come from a warm cache, or of a shared prefix, at least so much must."""
_NO_EVIDENCE = (
    "the server reports no cached tokens (vLLM tells them with --enable-prompt-tokens-details, SGLang with "
    "--enable-cache-report) and no counters of its prefix cache were read (give its metrics page in "
    "SERVEBENCH_METRICS_URLS)"
)
_WORDS = {"cold": "a cold cache", "warm": "a warm cache", "shared_prefix": "a shared prefix"}


class CacheClaim(NamedTuple):
    """What became of a claim. `state` holds, broken, repeated (by this run itself) or unknown.

    Shares are of the prompt tokens of measured, well answered requests: `cached` came from the cache, `sent_before` is
    the most of them that this run had sent before; NaN = not known. `basis`: answers, engine or none; `n` answers.
    """

    claim: str
    state: str
    basis: str
    n: int
    cached: float
    sent_before: float
    sentence: str | None

    @property
    def marks(self) -> tuple[str, ...]:
        """Return what stands beside the verdict."""
        return () if self.sentence is None else (self.sentence,)

    def record(self) -> dict[str, str | int | float | None]:
        """Return a plain object for JSON."""
        return {**self._asdict(), "cached": plain(self.cached), "sent_before": plain(self.sent_before)}


class _Prompts(NamedTuple):
    """Requests that the claim is held against; tokens by request, `cached` NaN = not told.

    `before` = tokens that this run had sent before, `meant` = those of them that the workload repeats by design, not
    because its prompts ran out, `expected` = tokens that must come from the cache.
    """

    tokens: FloatArray
    cached: FloatArray
    before: FloatArray
    meant: FloatArray
    expected: FloatArray


def cache_claim(run: RunData, telemetry: Telemetry) -> CacheClaim | None:
    """Return what became of the workload's claim; None where it makes none, or nothing was answered."""
    workload = workload_of(run.manifest)
    if workload is None or workload.target.cache == "undeclared":
        return None
    found = _prompts(run, workload)
    total = float(found.tokens.sum())
    if not total:
        return None
    claim = workload.target.cache
    told = ~np.isnan(found.cached)
    before = float(found.before.sum()) / total
    if told.any():
        kept = _Prompts(*(column[told] for column in found))
        cached = float(kept.cached.sum() / kept.tokens.sum())
        state = _state(claim, kept)
        return CacheClaim(claim, state, "answers", int(told.sum()), cached, before, _say(claim, state, cached, kept))
    cached = _engine_share(run, telemetry)
    if np.isnan(cached):
        text = f"{_WORDS[claim]} was claimed and cannot be checked: {_NO_EVIDENCE}"
        return CacheClaim(claim, "unknown", "none", 0, cached, before, text)
    evenly = found._replace(cached=found.tokens * cached)  # the engine tells one share for all
    slack = min(1.0, SLACK_TOKENS * len(found.tokens) / total)
    state = _state_of_share(claim, cached, evenly, slack)
    return CacheClaim(claim, state, "engine", 0, cached, before, _say(claim, state, cached, evenly))


def _state(claim: str, found: _Prompts) -> str:
    total = found.tokens.sum()
    beyond = np.maximum(found.cached - found.before - SLACK_TOKENS, 0).sum() / total
    if claim != "warm" and beyond > FOREIGN_LIMIT:
        return "broken"
    sure = np.maximum(found.expected - SLACK_TOKENS, 0)
    if claim != "cold":
        if not sure.sum():
            return "unknown"
        if np.minimum(found.cached, found.expected).sum() < LEAST_SHARE * sure.sum():
            return "broken"
    more = (found.cached.sum() - found.meant.sum()) / total
    return "repeated" if claim != "warm" and more > REPEATED_LIMIT + _slack(found) else "holds"


def _slack(found: _Prompts) -> float:
    return float(np.minimum(found.tokens, SLACK_TOKENS).sum() / found.tokens.sum())


def _state_of_share(claim: str, cached: float, found: _Prompts, slack: float) -> str:
    """Return the same from one share for all requests, as an engine's counters tell it."""
    total = found.tokens.sum()
    before, meant, expected = (float(part.sum() / total) for part in (found.before, found.meant, found.expected))
    if claim != "warm" and cached > before + slack + FOREIGN_LIMIT:
        return "broken"
    if claim != "cold" and cached < LEAST_SHARE * (expected - slack):
        return "broken"
    return "repeated" if claim != "warm" and cached > meant + slack + REPEATED_LIMIT else "holds"


def _say(claim: str, state: str, cached: float, found: _Prompts) -> str | None:
    """Return what to say with numbers and way out, None where the claim holds."""
    if state == "holds":
        return None
    if state == "unknown":
        return f"{_WORDS[claim]} was claimed and cannot be checked: prompts are shorter than blocks of a prefix cache"
    total = found.tokens.sum()
    before, expected = float(found.before.sum() / total), float(found.expected.sum() / total)
    share = f"{100 * cached:.0f} % of prompt tokens came from the cache"
    if state == "repeated":
        claimed = "cold" if claim == "cold" else f"a shared prefix of {100 * expected:.0f} %"
        return (
            f"claimed {claimed}, and {share}, since this run sends the same again ({100 * before:.0f} %): give as many "
            "prompts as requests, or claim another state"
        )
    if claim == "cold" or cached > before:
        claimed = "cold" if claim == "cold" else f"a shared prefix of {100 * expected:.0f} %"
        return (
            f"claimed {claimed}, but {share} where this run itself had sent at most {100 * before:.0f} % before: "
            "restart the server or flush its cache, and load it from nowhere else"
        )
    return (
        f"claimed {_WORDS[claim]}, but only {share} where {100 * expected:.0f} % had been sent before: switch prefix "
        "caching on (vLLM: --enable-prefix-caching), or give the cache more room or the run fewer prompts"
    )


def _prompts(run: RunData, workload: Workload) -> _Prompts:
    c = run.columns
    mine = run.measured & c.ok & (c.input_tokens > 0)
    meant = _meant(run, workload)
    before = np.maximum(meant, np.where(_repeats(run), c.input_tokens, 0.0))
    tokens, cached = c.input_tokens, _cached(run)
    if workload.target.cache == "warm":
        first = floats(run.table, "turn") == 0
        mine = mine & first & _in_warm_pass(run)
        expected = tokens
    else:
        expected = tokens * workload.prompts.shared_share
        expected[_first_of_all(run)] = 0.0
    meant, before = np.maximum(meant, expected), np.maximum(before, expected)
    return _Prompts(tokens[mine], cached[mine], before[mine], meant[mine], expected[mine])


def _cached(run: RunData) -> FloatArray:
    """Return cached tokens by row. A server that never says 0 leaves zeros out, as vLLM does: null is 0 then."""
    told = run.columns.cached_tokens
    known = told[~np.isnan(told)]
    if len(known) and (known > 0).all():
        return np.where(np.isnan(told), 0.0, told)
    return told


def _first_of_all(run: RunData) -> BoolArray:
    sent = run.columns.sent_ns
    first = np.zeros(len(sent), bool)
    if not np.isnan(sent).all():
        first[int(np.nanargmin(sent))] = True
    return first


def _meant(run: RunData, workload: Workload) -> FloatArray:
    """Return how much of each row's prompt had been sent before by design: repeats of a trace, history of a talk."""
    tokens = np.nan_to_num(run.columns.input_tokens)
    if any(source.kind == "trace" for source in workload.prompts.sources):
        planned = run.manifest.plan_reuse
        share = np.array([planned.get(str(name), 1.0) for name in run.phase])  # nobody counted: anything may repeat
        # Blocks of the plan are of the trace's size, not of the server's.
        return np.minimum(tokens, tokens * (share + FOREIGN_LIMIT))
    talk = workload.prompts.conversation
    if talk is None or talk.history == "none":
        return np.zeros(len(tokens))
    turn, session = floats(run.table, "turn"), floats(run.table, "session")
    follows = (turn > 0) & (np.roll(session, 1) == session)
    said = np.roll(tokens + np.nan_to_num(run.columns.output_tokens), 1)
    return np.where(follows, np.minimum(tokens, said), 0.0)


def _repeats(run: RunData) -> BoolArray:
    """Return which rows send a prompt, at its length, that an earlier row had sent."""
    keys = np.stack([floats(run.table, "prompt_id"), np.nan_to_num(run.columns.input_tokens, nan=-1.0)], axis=1)
    sent = np.nan_to_num(run.columns.sent_ns, nan=np.inf)
    order = np.argsort(sent, kind="stable")
    _, first = np.unique(keys[order], axis=0, return_index=True)
    again = np.ones(len(sent), bool)
    again[order[first]] = False
    return again


def _in_warm_pass(run: RunData) -> BoolArray:
    """Return which rows have a prompt that the warm pass sent and got answered."""
    prompts = floats(run.table, "prompt_id")
    passed = np.equal(run.phase, CACHE_WARMUP) & run.columns.ok
    return np.isin(prompts, prompts[passed])


def _engine_share(run: RunData, telemetry: Telemetry) -> float:
    """Return which share of looked-up prompt tokens the engines found in the measured phases; NaN: unknown."""
    looked = found = 0.0
    for window in phase_windows(run, measured_only=True).values():
        queries, hits = telemetry.growth("prefix_queries", window), telemetry.growth("prefix_hits", window)
        if queries is not None and hits is not None:
            looked, found = looked + queries, found + hits
    return found / looked if looked else float("nan")
