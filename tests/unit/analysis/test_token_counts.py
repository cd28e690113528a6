"""Who counted the tokens of a run, what two counts of one answer say, and runs without any count."""

import json
from pathlib import Path

import numpy as np
from tests.builders import RunSpec, S, row, steady, write_run

from servebench.analysis.digest import Digest, examine
from servebench.analysis.merge import summary_json
from servebench.analysis.page.conditions import conditions
from servebench.analysis.page.tiles import tiles
from servebench.analysis.tables import POOLED
from servebench.analysis.text import summary_lines
from servebench.analysis.token_counts import Ratio


def found_of(folder: Path, rows: list[dict[str, object]]) -> Digest:
    return examine(write_run(folder / "run", RunSpec(rows=rows, phases=[steady("load", 0, 20)]))).digest


def said(found: Digest) -> str:
    return " ".join(" ".join(summary_lines(found, "a")).split())


def test_two_counts_of_one_answer_are_compared_by_their_median_and_spread(tmp_path: Path) -> None:
    by_tokenizer = [4, 5, 8, 2, 4]
    rows = [
        row(k, sent_ns=k * S, tokens=4, output_tokens_counted=n, counted_source="tokenizer", planned_input_tokens=16)
        for k, n in enumerate(by_tokenizer)
    ]
    found = found_of(tmp_path, rows)
    ratios = [4 / n for n in by_tokenizer]
    output, prompt = found.tokens.ratios
    assert (output.side, output.told, output.counted, output.n) == ("output", "usage", "tokenizer", 5)
    assert [output.median, output.p5, output.p95] == [float(np.quantile(ratios, q)) for q in (0.5, 0.05, 0.95)]
    assert prompt == Ratio("input", "usage", "asked", 5, 1.25, 1.25, 1.25)
    assert "tok/s (server usage). Output tokens: server usage is 1.00 times the tokenizer's count" in said(found)
    assert dict(conditions(found))["output tokens by"] == "server usage"
    assert json.loads(summary_json(found))["token_counts"]["ratios"][1]["median"] == 1.25


def test_several_sources_are_told_with_their_numbers(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S) for k in range(3)]
    rows.append(row(3, sent_ns=3 * S, token_source="events", output_tokens_counted=8, counted_source="o200k", tokens=4))
    rows.append(row(4, sent_ns=4 * S, outcome="http_error"))
    found = found_of(tmp_path, rows)
    assert found.tokens.sources == (("usage", 3), ("events", 1))
    assert "(server usage for 3, one per event, an estimate for 1)" in said(found)
    assert "one token per event is 0.500 times a count by o200k" in said(found)


def test_answers_in_one_piece_without_counts_have_requests_per_second_and_no_tokens(tmp_path: Path) -> None:
    nothing = {"output_tokens": None, "token_source": None, "streamed": False, "finish_reason": None}
    chunks = ("chunk_ns", "chunk_delay_ns", "chunk_kind", "chunk_tokens", "chunk_read", "chunk_choice")
    rows = [row(k, sent_ns=k * S) | nothing | {name: [] for name in chunks} for k in range(20)]
    found = found_of(tmp_path, rows)
    text = said(found)
    assert "Answered 1.00 req/s. Answers came in one piece and without a token count: TTFT, TPOT, gaps" in text
    assert "0 tok/s" not in text
    for name in ("output_token_throughput", "total_token_throughput", "ttft"):
        line = found.table.find(name, POOLED)
        assert line is None or (line.mean, line.p50) == (None, None)
    assert [(tile.title, tile.value, tile.unit) for tile in tiles(found)[:3]] == [
        ("request p50", "130", "ms"),
        ("TTFT p50", "–", "ms"),  # noqa: RUF001 - the dash shown
        ("Answers", "1.00", "req/s"),
    ]
    assert found.phases[0].record()["output_tokens_per_s"] is None


def test_a_run_without_an_answer_has_no_words_about_counts(tmp_path: Path) -> None:
    found = found_of(tmp_path, [row(k, sent_ns=k * S, outcome="http_error") for k in range(3)])
    assert (found.tokens.answers, found.tokens.ratios, found.tokens.reason) == (0, (), None)
