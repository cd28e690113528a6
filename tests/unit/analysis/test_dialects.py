"""One request whose events are known, in the words of each tool; the expected numbers are worked out by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.builders import MS, RunSpec, S, busy_run, events, query, row, steady, write_run

from servebench.analysis.dialects import as_block, as_lines, dialect_named, records, side_by_side, speak
from servebench.analysis.source import RunData, load_run
from servebench.core.errors import InputError
from servebench.metrics.dialects import DIALECTS, locust_percentile, locust_rounded

EVENTS = (
    (100 * MS, "role"),
    (150 * MS, "reasoning"),
    (250 * MS, "content"),
    (290 * MS, "content"),
    (390 * MS, "finish"),
    (400 * MS, "usage"),
    (410 * MS, "done"),
)


@pytest.fixture
def one(tmp_path: Path) -> RunData:
    made = row(0, sent_ns=0, output_tokens=5, end_ns=410 * MS, headers_ns=90 * MS) | events(*EVENTS)
    made |= {"connect_start_ns": -10 * MS, "connect_end_ns": 0}
    made["chunk_tokens"] = [None, 2, 2, 1, None, None, None]
    return load_run(write_run(tmp_path / "run", RunSpec(rows=[made], phases=[steady("load", 0, 1)], parts=1)))


@pytest.mark.parametrize(
    ("tool", "key", "ms"),
    [
        ("vllm", "ttft", 100),
        ("vllm", "tpot", 290 / 4),
        ("vllm", "gap", 290 / 4),
        ("vllm", "e2e", 390),
        ("sglang", "ttft", 150),
        ("sglang", "tpot", 260 / 4),
        ("sglang", "gap", 140 / 2),
        ("sglang", "e2e", 410),
        ("guidellm", "ttft", 150),
        ("guidellm", "tpot", 290 / 5),
        ("guidellm", "gap", 140 / 4),
        ("aiperf", "tpot", 140 / 3),
        ("aiperf", "gap", 140 / 2),
        ("aiperf", "e2e", 290),
        ("genai-bench", "ttft", 160),
        ("genai-bench", "tpot", 250 / 4),
        ("genai-bench", "e2e", 410),
        ("inference-perf", "ttft", 250),
        ("inference-perf", "tpot", 40 / 4),
        ("inference-perf", "gap", 140 / 4),
        ("fireworks", "tpot", 260 / 5),
        ("locust", "ttft", 90),
        ("locust", "e2e", 410),
    ],
)
def test_each_tool_starts_and_stops_its_clocks_where_it_does(one: RunData, tool: str, key: str, ms: float) -> None:
    dialect = dialect_named(tool)
    mean = next(name for name, q in dialect.statistics.items() if q is None)
    assert speak(one, dialect).value(key, mean) == pytest.approx(ms)


@pytest.mark.parametrize(
    ("last", "ms"), [((400 * MS, "usage"), 410), ((405 * MS, "done"), 415), ((390 * MS, "finish"), 420)]
)
def test_genai_bench_reads_no_further_than_usage_or_done(tmp_path: Path, last: tuple[int, str], ms: float) -> None:
    made = row(0, sent_ns=0, end_ns=410 * MS) | events((150 * MS, "content"), (250 * MS, "content"), last)
    made |= {"connect_start_ns": -10 * MS, "connect_end_ns": 0}
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=[made], phases=[steady("load", 0, 1)], parts=1)))
    assert speak(run, dialect_named("genai-bench")).value("e2e", "mean") == pytest.approx(ms)


def test_totals_are_divided_by_first_sending_to_last_end(one: RunData) -> None:
    speech = speak(one, dialect_named("vllm"))
    assert speech.duration_s == pytest.approx(0.41)
    assert speech.value("output", "value") == pytest.approx(5 / 0.41)
    assert speech.value("tokens", "value") == pytest.approx(25 / 0.41)


def test_vllm_percentiles_equal_duckdbs_over_the_same_files(tmp_path: Path) -> None:
    folder = busy_run(tmp_path / "run")
    (truth,) = query(f"""
        select quantile_cont(v, 0.5), quantile_cont(v, 0.99), avg(v) from (
            select (list_max(s) - list_min(s)) / 1e6 / (output_tokens - 1) as v from (
                select output_tokens, list_transform(
                    list_filter(list_zip(chunk_ns, chunk_kind), lambda x: x[2] = 'content'), lambda x: x[1]) as s
                from read_parquet('{folder}/requests/*.parquet') where outcome = 'ok' and measured))
        """)
    speech = speak(load_run(folder), dialect_named("vllm"))
    found = [speech.value("tpot", name) for name in ("median", "p99", "mean")]
    assert found == pytest.approx(list(truth), rel=1e-9)


def test_locusts_rounding_can_put_a_percentile_above_the_maximum() -> None:
    times = np.array([585.0, 604, 625, 671, 5872, 6651])
    assert locust_rounded(times).tolist() == [580, 600, 620, 670, 5900, 6700]
    assert locust_percentile(locust_rounded(times), 0.99) == 6700
    assert locust_percentile(locust_rounded(times), 0.5) == 670
    assert np.isnan(locust_percentile(np.empty(0), 0.5))


def test_the_block_is_the_one_that_everybody_knows(one: RunData) -> None:
    text = as_block(speak(one, dialect_named("vllm")))
    assert "============ Serving Benchmark Result ============" in text
    assert "Mean TTFT (ms):                          100.00" in text
    assert "P99 ITL (ms):" in text
    assert "a role-only one too" in text


def test_side_by_side_names_every_tool_and_why_it_differs(one: RunData) -> None:
    text = side_by_side(one)
    for dialect in DIALECTS:
        assert dialect.name in text
        assert all(quantity.because in text for quantity in dialect.quantities)


@pytest.mark.parametrize("tool", [dialect.name for dialect in DIALECTS])
def test_a_run_without_an_answer_has_undefined_numbers_and_no_nan(tmp_path: Path, tool: str) -> None:
    rows = [row(0, sent_ns=0, outcome="connect_error", end_ns=S) | events()]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 1)])))
    speech = speak(run, dialect_named(tool))
    assert "nan" not in as_block(speech) + as_lines(speech)
    assert "NaN" not in json.dumps(records(speech))


def test_an_unknown_tool_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="inference-perf"):
        dialect_named("ab")
