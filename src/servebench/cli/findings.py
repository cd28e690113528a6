"""Know what `check` says of what it found: a line a question, pure text, and what to put into a workload."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from servebench.cli.recognise import Model
from servebench.core.outcomes import CHUNK_KINDS, TOKEN_KIND_CODES, ChunkKind, Outcome, TokenSource
from servebench.core.records import Answer, Chunks

State = Literal["ok", "info", "note", "failed"]
GLYPHS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "ok"),
    "info": ("i", "i "),
    "note": ("~", "~ "),
    "failed": ("✗", "x "),
}
CLOCK_NOTE_S = 1.5
"""A Date header has steps of one second and may be cached for one: less says nothing."""
_CACHED_HINT = {
    "vLLM": "vLLM: start with --enable-prompt-tokens-details",
    "SGLang": "SGLang: start with --enable-cache-report",
}
_METRICS_HINT = {
    "llama.cpp": "llama.cpp: start with --metrics",
    "SGLang": "SGLang: start with --enable-metrics",
    "LiteLLM": "LiteLLM: litellm_settings: {callbacks: [prometheus]}, and pip install prometheus-client",
    "MLServer": "MLServer shows them at port 8082: SERVEBENCH_METRICS_URLS=http://HOST:8082",
    "Triton": "Triton shows them at port 8002: SERVEBENCH_METRICS_URLS=http://HOST:8002",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the table; `more` are lines below it."""

    state: State
    title: str
    text: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What the metric page held; `dialect` None = a page that we do not know."""

    place: str
    dialect: str | None
    numbers: int
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that was seen. None = was not asked, or was not said."""

    place: str
    http_version: str | None
    connect_ms: float | None
    server: str | None
    models: tuple[Model, ...]
    model: str | None
    endpoint: str
    answer: Answer
    reused: bool | None
    metrics: Metrics | None
    clock_offset_s: float | None
    text_input: str | None
    """Input of the model that takes the text, where it is not the one that the dialect mostly has."""


def findings(facts: Facts) -> list[Finding]:
    """Return the lines of the table, in the order of a request's life."""
    lines = [_reachable(facts), _models(facts)]
    answer = facts.answer
    if answer.outcome is not Outcome.OK:
        text = f"{answer.outcome.value}{f' {answer.http_status}' if answer.http_status not in {None, 200} else ''}"
        said = plain(answer.error_message or answer.error_class or "")
        lines.append(Finding(state="failed", title="answers", text=f"{text}: {said}" if said else text))
    else:
        lines += _stream(facts)
    lines += [_metrics(facts), _clock(facts)]
    return lines


def table(lines: Sequence[Finding], *, unicode: bool) -> list[str]:
    """Return the lines as text, two columns."""
    width = max(len(line.title) for line in lines)
    out: list[str] = []
    for line in lines:
        glyph = GLYPHS[line.state][0 if unicode else 1]
        out.append(f"{glyph} {line.title:<{width}}  {line.text}")
        out += [f"{'':<{len(glyph) + width + 3}}{more}" for more in line.more]
    return out


def summary(lines: Sequence[Finding]) -> str:
    """Return how many of the lines are what."""
    counts = {state: sum(line.state == state for line in lines) for state in GLYPHS}
    return f"{counts['ok']} ok, {counts['note']} to note, {counts['failed']} failed."


def target_block(facts: Facts) -> str:
    """Return the lines of a workload file that ask this service, as YAML; a line break between two."""
    model = f", model: {_scalar(facts.model)}" if facts.model is not None else ""
    named = facts.text_input
    params = "" if named is None else f"\nrequests: {{params: {{input_name: {_scalar(named)}}}}}"
    return f"target: {{endpoint: {facts.endpoint}{model}}}{params}"


def plain(text: str) -> str:
    """Return what a server said without what would steer a terminal."""
    return "".join(character if character.isprintable() else " " for character in text).strip()[:300]


def _reachable(facts: Facts) -> Finding:
    parts = [facts.place, facts.http_version or ""]
    if facts.connect_ms is not None:
        parts.append(f"connected in {facts.connect_ms:.2g} ms")
    if facts.server is not None:
        parts.append(facts.server)
    return Finding(state="ok", title="reachable", text=", ".join(part for part in parts if part))


def _models(facts: Facts) -> Finding:
    if not facts.models:
        named = f"; asked for {plain(facts.model)}" if facts.model else "; name one with --model if the server wants it"
        return Finding(state="note", title="models", text=f"no list of models{named}")
    shown = [
        plain(model.name) + (f" ({model.context:,} tokens)" if model.context else "") for model in facts.models[:6]
    ]
    if len(facts.models) > 6:
        shown.append(f"and {len(facts.models) - 6} more")
    return Finding(state="ok", title="models", text=", ".join(shown))


def _stream(facts: Facts) -> list[Finding]:
    answer, chunks = facts.answer, facts.answer.chunks
    if not answer.streamed or chunks is None:
        text = "the answer came in one piece, so times of tokens cannot be measured"
        return [Finding(state="failed", title="streams", text=text), _usage(facts, chunks)]
    kinds = [CHUNK_KINDS[code] for code in chunks.kind]
    events = [index for index, code in enumerate(chunks.kind) if code in TOKEN_KIND_CODES]
    lines = [_events(answer, kinds, len(events))]
    if kinds[:1] == [ChunkKind.ROLE]:
        lines.append(Finding(state="info", title="first chunk", text="role only, no text: it is not the first token"))
    reads = len({chunks.read[index] for index in events})
    if len(events) >= 4 and reads <= len(events) // 4:
        text = f"{len(events)} token events came in {reads} reads: something between buffers them"
        lines.append(Finding(state="note", title="buffering", text=text))
    lines += [_per_chunk(answer, chunks, events), _cached(facts), _usage(facts, chunks)]
    return lines


def _events(answer: Answer, kinds: Sequence[ChunkKind], events: int) -> Finding:
    tokens = "an unknown number of" if answer.token_source is not TokenSource.USAGE else f"{answer.output_tokens:,}"
    if not events:
        text = f"{len(kinds)} events and none with text: is it the right endpoint?"
        return Finding(state="failed", title="streams", text=text)
    return Finding(state="ok", title="streams", text=f"{events} token events for {tokens} tokens")


def _per_chunk(answer: Answer, chunks: Chunks, events: Sequence[int]) -> Finding:
    said = [chunks.tokens[index] for index in events if chunks.tokens[index] >= 0]
    title = "tokens per chunk"
    if said and len(said) == len(events):
        state: State = "ok" if max(said) == 1 else "note"
        return Finding(state=state, title=title, text=f"least {min(said)}, most {max(said)}, by the server's own count")
    if answer.token_source is not TokenSource.USAGE or not answer.output_tokens or not events:
        return Finding(state="note", title=title, text="unknown: the server counts no tokens")
    mean = answer.output_tokens / len(events)
    state = "ok" if 0.8 <= mean <= 1.2 else "note"
    more = () if state == "ok" else ("a chunk is not a token here: read TPOT, not the gap between chunks",)
    return Finding(state=state, title=title, text=f"{mean:.2f} on average", more=more)


def _cached(facts: Facts) -> Finding:
    if facts.answer.cached_tokens is not None:
        return Finding(state="ok", title="cached tokens", text=f"reported ({facts.answer.cached_tokens:,})")
    hint = _CACHED_HINT.get(facts.server or "")
    text = "not reported, so a cache claim cannot be checked"
    return Finding(state="note", title="cached tokens", text=text, more=(hint,) if hint else ())


def _usage(facts: Facts, chunks: Chunks | None) -> Finding:
    answer = facts.answer
    said = answer.token_source is TokenSource.USAGE
    kinds = {CHUNK_KINDS[code] for code in chunks.kind} if chunks is not None else set()
    parts = ["usage reported" if said else "no usage: output tokens will be counted by events, an estimate"]
    if facts.endpoint.startswith("openai"):
        parts.append("[DONE] seen" if ChunkKind.DONE in kinds else "no [DONE]")
    if facts.reused is not None:
        parts.append("connection kept alive" if facts.reused else "connection closed after the answer")
    state: State = "ok" if said and facts.reused is not False else "note"
    return Finding(state=state, title="usage, end", text="; ".join(parts))


def _metrics(facts: Facts) -> Finding:
    metrics = facts.metrics
    if metrics is None:
        hint = _METRICS_HINT.get(facts.server or "")
        text = "none found at /metrics: the server's queue and cache stay unknown"
        return Finding(state="note", title="metrics", text=text, more=(hint,) if hint else ())
    if metrics.dialect is None:
        text = f"{metrics.place}, {metrics.numbers} numbers of a server that we do not know"
        return Finding(state="note", title="metrics", text=text)
    text = f"{metrics.place}, dialect {metrics.dialect}, {metrics.numbers} numbers"
    more = tuple(f"without {part}" for part in metrics.missing.split("; ") if part)
    return Finding(state="ok", title="metrics", text=text, more=more)


def _clock(facts: Facts) -> Finding:
    offset = facts.clock_offset_s
    if offset is None:
        return Finding(state="info", title="clock", text="the server sends no Date")
    text = f"server date differs by {abs(offset):.1f} s (header has 1 s steps)"
    return Finding(state="note" if abs(offset) > CLOCK_NOTE_S else "ok", title="clock", text=text)


def _scalar(word: str) -> str:
    """Return a word as a YAML flow scalar: plain where that is safe, else quoted as JSON, which YAML reads alike."""
    looks_plain = re.fullmatch(r"[A-Za-z][\w./-]*(?::[\w.-]+)*", word)
    reserved = word.lower() in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
    return word if looks_plain and not reserved else json.dumps(word, ensure_ascii=False)
