"""Know how the rows of runs are held against what the server counted in the meantime."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from tests.engines.engines import Engine
from tests.engines.serving import Serving


def rows(run: Path, columns: str) -> list[tuple[Any, ...]]:
    """Return columns of all requests of a run."""
    return duckdb.connect().execute(f"select {columns} from '{run}/requests/**/*.parquet' order by seq").fetchall()


def difference(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float:
    """Return by how much a counter grew."""
    assert name in after, f"{name} is not among the server's metrics"
    return after[name] - before.get(name, 0.0)


def histogram(before: Mapping[str, float], after: Mapping[str, float], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return upper bounds and cumulated counts of what a histogram took in between."""
    start = f"{name}_bucket{{le="
    bounds = np.array(sorted(float(key[len(start) : -1]) for key in after if key.startswith(start)))
    counts = np.array([difference(before, after, f"{start}{bound}}}") for bound in bounds])
    return bounds, counts


def settled(one: Serving) -> dict[str, float]:
    """Return the server's numbers once they no longer change: some count a request after its answer has ended."""
    names = one.engine.counters.names
    page = one.samples()
    while True:
        time.sleep(0.5)
        again = one.samples()
        if all(again.get(name) == page.get(name) for name in names):
            return again
        page = again


def counters_agree(
    kind: Engine,
    before: Mapping[str, float],
    after: Mapping[str, float],
    runs: list[Path],
    answers: list[tuple[Any, ...]],
) -> dict[str, object]:
    """Assert that the server counted what the rows say; return what was seen.

    An answer is outcome, streamed, input_tokens, output_tokens and token_source.
    """
    told: dict[str, object] = {"requests": len(answers)}
    if kind.counters.answered:
        assert difference(before, after, kind.counters.answered) == len(answers)
        told["counted as answered"] = len(answers)
    if kind.counters.output_tokens:
        told |= _tokens_agree(kind, before, after, answers)
    if len(runs) == 1:
        for name, column in (("ttft", "ttft"), ("e2e", "e2e")):
            told.update(_times_agree(before, after, runs[0], getattr(kind.counters, name), column))
    return told


TOKENS = "('content', 'reasoning', 'tool', 'refusal')"
FIRST_TOKEN = f"list_min([pair[1] for pair in list_zip(chunk_ns, chunk_kind) if pair[2] in {TOKENS}])"
COLUMNS = {"ttft": f"({FIRST_TOKEN} - sent_ns) / 1e9", "e2e": "(end_ns - sent_ns) / 1e9"}


def _times_agree(
    before: Mapping[str, float], after: Mapping[str, float], run: Path, name: str, column: str
) -> dict[str, str]:
    """Assert that the client's median and p90 lie in the server's buckets, the network's share added.

    The network's share is what the client's mean has more than the server's: connecting, both kernels, the server's own
    HTTP. It must not be negative, since nothing reaches a client before the server has sent it. Returns what was seen.
    """
    if not name:
        return {}
    seconds = np.array([row[0] for row in rows(run, COLUMNS[column])])
    bounds, counts = histogram(before, after, name)
    assert counts[-1] == len(seconds)
    server_mean = difference(before, after, f"{name}_sum") / len(seconds)
    share = float(seconds.mean()) - server_mean
    assert share > -0.001, f"{column}: client {seconds.mean():.4f} s, server {server_mean:.4f} s"
    for q in (0.5, 0.9):
        value = float(np.quantile(seconds, q, method="inverted_cdf"))
        index = int(np.searchsorted(counts, np.ceil(q * len(seconds))))
        low, high = (bounds[index - 1] if index else 0.0), bounds[index]
        assert low <= value <= high + 3 * share + 0.001, f"{column} p{q:.0%}: {value} not in {low}..{high} + {share}"
    return {f"{column} client / server mean ms": f"{seconds.mean() * 1e3:.1f} / {server_mean * 1e3:.1f}"}


def _tokens_agree(
    kind: Engine, before: Mapping[str, float], after: Mapping[str, float], answers: list[tuple[Any, ...]]
) -> dict[str, object]:
    """Assert that both sides counted the same tokens; return them."""
    assert {row[4] for row in answers} == {"usage"}
    given_out = sum(row[3] for row in answers)
    assert given_out == difference(before, after, kind.counters.output_tokens)
    taken_in = sum(difference(before, after, name) for name in kind.counters.input_tokens)
    assert sum(row[2] for row in answers) == taken_in
    return {"tokens in": taken_in, "tokens out": given_out}
