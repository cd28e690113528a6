"""Know who counted the tokens of a run's answers, and how far two counts of the same text lie apart."""

from typing import NamedTuple

import numpy as np

from servebench.analysis.columns import floats, words
from servebench.analysis.numbers import count, plain, significant
from servebench.analysis.source import RunData
from servebench.core.outcomes import TokenSource
from servebench.metrics import percentile
from servebench.metrics.columns import BoolArray, FloatArray

SOURCES = {
    TokenSource.USAGE.value: "server usage",
    TokenSource.EVENTS.value: "one per event, an estimate",
}
_COUNTERS = {
    "tokenizer": "the tokenizer's count",
    "o200k": "a count by o200k",
    "estimate": "an estimate by characters",
    "asked": "what was asked for",
}


class Ratio(NamedTuple):
    """One count over another, by answer: of `n` with both, the median, and p5 and p95 as the spread.

    `side` is input or output, `told` who counted the numerator (usage, events), `counted` who counted the denominator:
    tokenizer, o200k, estimate, or asked, the length that a prompt was made for.
    """

    side: str
    told: str
    counted: str
    n: int
    median: float
    p5: float
    p95: float

    @property
    def sentence(self) -> str:
        """Return the ratio in words."""
        told = "server usage" if self.told == TokenSource.USAGE else "one token per event"
        spread = f"{significant(self.p5)} to {significant(self.p95)}"
        return (
            f"{self.side.capitalize()} tokens: {told} is {significant(self.median)} times {_COUNTERS[self.counted]} "
            f"(median of {count(self.n)}, p5 to p95 {spread})."
        )

    def record(self) -> dict[str, str | int | float | None]:
        """Return a plain object for JSON."""
        numbers = {"median": plain(self.median), "p5": plain(self.p5), "p95": plain(self.p95)}
        return {"side": self.side, "told": self.told, "counted": self.counted, "n": self.n, **numbers}


class TokenCounts(NamedTuple):
    """How measured ok answers were counted: `sources` by number, `uncounted` by nobody, `whole` came in one piece."""

    answers: int
    sources: tuple[tuple[str, int], ...]
    uncounted: int
    whole: int
    ratios: tuple[Ratio, ...]

    @property
    def main(self) -> str | None:
        """The source of most counts, None where nothing was counted."""
        return max(self.sources, key=lambda item: item[1])[0] if self.sources else None

    @property
    def unknown(self) -> bool:
        """Whether there are answers and no count of any, so that nothing per token is defined."""
        return self.answers > 0 and self.uncounted == self.answers

    @property
    def all_whole(self) -> bool:
        """Whether every answer came in one piece, so that no token has a time."""
        return self.answers > 0 and self.whole == self.answers

    @property
    def words(self) -> str:
        """Return who counted, with numbers where several did; "unknown" where nobody could."""
        found = [(SOURCES[source], n) for source, n in self.sources]
        found += [("not counted", self.uncounted)] if self.uncounted and found else []
        if len(found) < 2:
            return found[0][0] if found else "unknown"
        return ", ".join(f"{word} for {count(n)}" for word, n in found)

    @property
    def reason(self) -> str | None:
        """Return why metrics of tokens or of their times are undefined; None where they are not."""
        if self.all_whole and self.unknown:
            return "Answers came in one piece and without a token count: TTFT, TPOT, gaps and tok/s are undefined."
        if self.all_whole:
            return "Answers came in one piece: TTFT, TPOT and gaps are undefined."
        return "No answer has a token count: TPOT and tok/s are undefined." if self.unknown else None

    def record(self) -> dict[str, object]:
        """Return a plain object for JSON."""
        return {
            "answers": self.answers,
            **{f"by_{source}": n for source, n in self.sources},
            "uncounted": self.uncounted,
            "in_one_piece": self.whole,
            "ratios": [ratio.record() for ratio in self.ratios],
        }


def token_counts(run: RunData) -> TokenCounts:
    """Return who counted the measured ok answers of a run, and the ratios of two counts."""
    ok = run.measured & run.columns.ok
    told, counted = words(run.table, "token_source")[ok], words(run.table, "counted_source")[ok]
    output, by_us = run.columns.output_tokens[ok], floats(run.table, "output_tokens_counted")[ok]
    asked, prompt = floats(run.table, "planned_input_tokens")[ok], run.columns.input_tokens[ok]
    found = tuple((source.value, int(np.sum(told == source.value))) for source in TokenSource)
    ratios = [
        _ratio("output", source, who, output / np.where(by_us > 0, by_us, np.nan), (told == source) & (counted == who))
        for source, _ in found
        for who in ("tokenizer", "o200k", "estimate")
    ]
    everywhere = np.ones(len(prompt), dtype=np.bool_)
    ratios.append(_ratio("input", "usage", "asked", prompt / np.where(asked > 0, asked, np.nan), everywhere))
    return TokenCounts(
        answers=int(np.sum(ok)),
        sources=tuple((source, n) for source, n in found if n),
        uncounted=int(np.sum(_uncounted(run)[ok])),
        whole=int(np.sum(floats(run.table, "streamed")[ok] == 0)),
        ratios=tuple(ratio for ratio in ratios if ratio is not None),
    )


def nothing_counted(run: RunData) -> bool:
    """Return whether a run has ok answers, and neither a token count nor a token event of any of them."""
    ok = run.columns.ok
    return bool(ok.any() and _uncounted(run)[ok].all())


def no_prompt_counted(run: RunData) -> bool:
    """Return whether a run has ok answers, and for none of them a count of the prompt's tokens."""
    ok = run.columns.ok
    return bool(ok.any() and np.isnan(run.columns.input_tokens[ok]).all())


def _uncounted(run: RunData) -> BoolArray:
    return np.isnan(run.columns.output_tokens) & np.isnan(run.columns.events.first_token_ns)


def _ratio(side: str, told: str, counted: str, values: FloatArray, rows: BoolArray) -> Ratio | None:
    kept = values[rows & ~np.isnan(values)]
    if not len(kept):
        return None
    median, p5, p95 = (percentile(kept, q) for q in (0.5, 0.05, 0.95))
    return Ratio(side, told, counted, len(kept), median, p5, p95)
