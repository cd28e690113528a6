"""Know what other tools would have printed of a run, and why it is not what we print."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from servebench.analysis.gaps import GapFormula, GapStatistics, gap_statistics
from servebench.analysis.numbers import UNDEFINED, significant
from servebench.analysis.render import align
from servebench.analysis.source import RunData
from servebench.core.errors import InputError
from servebench.metrics import ChunkColumns, RequestColumns, percentile
from servebench.metrics.columns import BoolArray, FloatArray, take
from servebench.metrics.dialects import (
    DIALECT_BY_NAME,
    DIALECTS,
    Dialect,
    GapRule,
    Quantity,
    Totals,
    locust_percentile,
    locust_rounded,
)
from servebench.metrics.events import Gaps, chunk_gaps, gaps_of
from servebench.metrics.formulas import e2e_ns, tpot_ns, ttft_ns

OWN = Dialect(
    name="servebench",
    version="",
    statistics={"mean": None, "p50": 0.5, "p95": 0.95, "p99": 0.99},
    quantities=(
        Quantity(key="ttft", name="ttft", unit="ms", of=ttft_ns),
        Quantity(key="tpot", name="tpot", unit="ms/token", of=tpot_ns),
        Quantity(key="gap", name="chunk_gap", unit="ms", gaps="token"),
        Quantity(key="e2e", name="e2e", unit="ms", of=e2e_ns),
    ),
)
"""Our own latencies in the form of a dialect, for the comparison."""


class Spoken(NamedTuple):
    """One quantity as the tool says it; `statistics` by the tool's names, in `unit`, NaN = undefined.

    A rate has its one value under the name "value".
    """

    quantity: Quantity
    n: int
    statistics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """All that one tool would print. `duration_s` is what it divides totals by, NaN without a request."""

    dialect: Dialect
    ok: int
    failed: int
    duration_s: float
    input_tokens: float
    output_tokens: float
    spoken: tuple[Spoken, ...]

    def value(self, key: str, statistic: str) -> float:
        """Return one number, NaN where the tool has no such quantity or statistic."""
        found = next((item for item in self.spoken if item.quantity.key == key), None)
        return found.statistics.get(statistic, float("nan")) if found else float("nan")


def dialect_named(name: str) -> Dialect:
    """Return a dialect.

    Raises InputError for a name that does not exist.
    """
    if name not in DIALECT_BY_NAME:
        msg = f'no dialect "{name}"; there are {", ".join(DIALECT_BY_NAME)}'
        raise InputError(msg)
    return DIALECT_BY_NAME[name]


def speak(run: RunData, dialect: Dialect, rows: BoolArray | None = None) -> Speech:
    """Return what a tool would have printed of some rows; None = the measured requests."""
    chosen = run.measured if rows is None else rows
    c = take(run.columns, chosen)
    ended = c.ok | c.failed
    times = (float(np.min(c.sent_ns[ended], initial=np.inf)), float(np.max(c.end_ns[ended], initial=-np.inf)))
    duration_s = (times[1] - times[0]) / 1e9 if times[1] > times[0] else float("nan")
    return Speech(
        dialect=dialect,
        ok=int(np.sum(c.ok)),
        failed=int(np.sum(c.failed)),
        duration_s=duration_s,
        input_tokens=_total(c, "input tokens"),
        output_tokens=_total(c, "output tokens"),
        spoken=tuple(
            _say(c, dialect, quantity, duration_s)
            if quantity.gaps is None
            else _of_gaps(run, dialect, quantity, chosen)
            for quantity in dialect.quantities
        ),
    )


def _total(c: RequestColumns, what: Totals) -> float:
    if what == "requests":
        return float(np.sum(c.ok))
    tokens = {"input tokens": c.input_tokens, "output tokens": c.output_tokens}
    columns = list(tokens.values()) if what == "all tokens" else [tokens[what]]
    return float(sum(np.nansum(column[c.ok]) for column in columns))


def _say(c: RequestColumns, dialect: Dialect, quantity: Quantity, duration_s: float) -> Spoken:
    if quantity.total is not None:
        total = _total(c, quantity.total)
        return Spoken(quantity, int(np.sum(c.ok)), {"value": total / duration_s})
    values = quantity.of(c) if quantity.of is not None else np.empty(0)
    return _of_values(dialect, quantity, values[~np.isnan(values)] / 1e6)


def _of_values(dialect: Dialect, quantity: Quantity, ms: FloatArray) -> Spoken:
    mean = float(np.mean(ms)) if len(ms) else float("nan")
    shown = locust_rounded(ms) if dialect.rounded else ms
    rule = locust_percentile if dialect.rounded else percentile
    found = {name: mean if q is None else rule(shown, q) for name, q in dialect.statistics.items()}
    return Spoken(quantity, len(ms), found)


def with_zeros(chunks: ChunkColumns, ok: BoolArray) -> Gaps:
    """Return the gaps between token events, and a zero for each token beyond the first of an event."""
    gaps = chunk_gaps(chunks, ok)
    known = np.where(chunks.is_token() & ok[chunks.request()], np.nan_to_num(chunks.tokens, nan=1.0), 0.0)
    more = np.maximum(known - 1, 0).astype(np.int64)
    return Gaps(
        np.concatenate((gaps.ns, np.zeros(int(more.sum())))),
        np.concatenate((gaps.request, np.repeat(chunks.request(), more))),
        np.concatenate((gaps.at_ns, np.repeat(chunks.ns, more))),
    )


def between_choices(chunks: ChunkColumns, ok: BoolArray) -> Gaps:
    """Return the gaps between events with a choice, those without text included."""
    return gaps_of(chunks, chunks.is_choice() & ok[chunks.request()])


_RULES: dict[GapRule, GapFormula] = {"choice": between_choices, "token": chunk_gaps, "token and zeros": with_zeros}


def _of_gaps(run: RunData, dialect: Dialect, quantity: Quantity, rows: BoolArray) -> Spoken:
    quantiles = [q for q in dialect.statistics.values() if q is not None]
    (found,) = gap_statistics(run, [rows], quantiles, _RULES[quantity.gaps or "token"])
    return Spoken(quantity, found.n, _gap_words(dialect, found))


def _gap_words(dialect: Dialect, found: GapStatistics) -> dict[str, float]:
    values = iter(found.quantiles)
    return {name: (found.mean if q is None else float(next(values))) / 1e6 for name, q in dialect.statistics.items()}


def as_block(speech: Speech) -> str:
    """Return the block that `vllm bench serve` and sglang print."""
    lines = [
        f"{'=' * 12} Serving Benchmark Result {'=' * 12}",
        _entry("Successful requests:", f"{speech.ok}"),
        _entry("Failed requests:", f"{speech.failed}"),
        _entry("Benchmark duration (s):", f"{speech.duration_s:.2f}"),
        _entry("Total input tokens:", f"{speech.input_tokens:.0f}"),
        _entry("Total generated tokens:", f"{speech.output_tokens:.0f}"),
        _entry("Request throughput (req/s):", f"{speech.value('requests', 'value'):.2f}"),
        _entry("Output token throughput (tok/s):", f"{speech.value('output', 'value'):.2f}"),
        _entry("Total Token throughput (tok/s):", f"{speech.value('tokens', 'value'):.2f}"),
    ]
    titles = {
        "ttft": "Time to First Token",
        "tpot": "Time per Output Token (excl. 1st token)",
        "gap": "Inter-token Latency",
        "e2e": "End-to-end Latency",
    }
    for item in speech.spoken:
        if item.quantity.key in titles:
            lines.append(f"{titles[item.quantity.key]:-^50}")
            short = item.quantity.name.removesuffix(" latency")
            lines += [
                _entry(f"{name.capitalize()} {short} (ms):", f"{value:.2f}") for name, value in item.statistics.items()
            ]
    lines += ["=" * 50, *_differences(speech)]
    return "\n".join(lines).replace("nan", UNDEFINED) + "\n"


def _entry(label: str, value: str) -> str:
    return f"{label:<40} {value:<10}".rstrip()


def as_lines(speech: Speech) -> str:
    """Return a table of what the tool would print."""
    names = list(speech.dialect.statistics)
    rows = [["", "unit", "n", *names]]
    for item in speech.spoken:
        values = item.statistics.get("value")
        cells = [significant(item.statistics.get(name)) for name in names] if values is None else [significant(values)]
        rows.append([item.quantity.name, item.quantity.unit, f"{item.n:,}", *cells, *[""] * (len(names) - len(cells))])
    lines = align(rows, 2)
    return "\n".join([*lines, *_differences(speech)]) + "\n"


def _differences(speech: Speech) -> list[str]:
    lines = [f"In the words of {speech.dialect.version}. Other than ours:"]
    lines += [f"  {item.quantity.name}: {item.quantity.because}" for item in speech.spoken if item.quantity.because]
    return lines if len(lines) > 1 else [lines[0].replace(" Other than ours:", " As ours.")]


def side_by_side(run: RunData) -> str:
    """Return every tool's number for each quantity beside ours, with the reason for each difference."""
    speeches = [speak(run, dialect) for dialect in (OWN, *DIALECTS)]
    rows = [["quantity", "tool", "its name", "unit", "mean", "p50", "p99"]]
    for key in ("ttft", "tpot", "gap", "e2e", "requests", "output"):
        rows += [_beside(speech, item) for speech in speeches for item in speech.spoken if item.quantity.key == key]
    reasons = [
        f"  {speech.dialect.name} {item.quantity.name}: {item.quantity.because}"
        for speech in speeches
        for item in speech.spoken
        if item.quantity.because
    ]
    return "\n".join([*align(rows, 4), "", "Why they differ:", *reasons]) + "\n"


def _beside(speech: Speech, item: Spoken) -> list[str]:
    def at(q: float | None) -> str:
        names: Sequence[str] = [name for name, own in speech.dialect.statistics.items() if own == q]
        return significant(item.statistics.get(names[0])) if names else UNDEFINED

    value = item.statistics.get("value")
    numbers = [at(None), at(0.5), at(0.99)] if value is None else [significant(value), "", ""]
    return [item.quantity.key, speech.dialect.name, item.quantity.name, item.quantity.unit, *numbers]


def records(speech: Speech) -> list[dict[str, str | int | float | None]]:
    """Return plain objects: dialect, name, unit, n, and the statistics by the tool's own names; null = undefined."""
    return [
        {
            "dialect": speech.dialect.name,
            "name": item.quantity.name,
            "unit": item.quantity.unit,
            "n": item.n,
            **{name: None if np.isnan(value) else value for name, value in item.statistics.items()},
            "differs": item.quantity.because or None,
        }
        for item in speech.spoken
    ]
