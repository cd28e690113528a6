"""Tables against DuckDB over the same Parquet files, and against counts made by hand."""

import json
from pathlib import Path

import pytest
from tests.builders import MS, RunSpec, S, busy_run, events, query, row, small_run, steady, write_run

from servebench.analysis.render import align, as_csv, as_json, as_markdown, as_text, harmless
from servebench.analysis.source import RunData, load_run
from servebench.analysis.tables import percentile_table
from servebench.core.errors import InputError


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return load_run(busy_run(tmp_path_factory.mktemp("busy") / "run"))


TTFT = """
    select {group} as key, count(*), quantile_cont(v, 0.5), quantile_cont(v, 0.95), max(v), avg(v) from (
        select {group}, (list_min(list_transform(
            list_filter(list_zip(chunk_ns, chunk_kind), lambda x: x[2] in ('content', 'reasoning', 'tool', 'refusal')),
            lambda x: x[1])) - sent_ns) / 1e6 as v
        from read_parquet('{folder}/requests/*.parquet') where outcome = 'ok' and measured)
    group by {group}
"""


@pytest.mark.parametrize("group", ["phase", "worker"])
def test_ttft_equals_what_duckdb_computes_from_the_same_files(busy: RunData, group: str) -> None:
    truth = query(TTFT.format(group=group, folder=busy.folder))
    assert len(truth) == 2
    table = percentile_table(busy, (group,))
    for key, n, p50, p95, largest, mean in truth:
        found = table.find("ttft", key)
        assert found is not None
        assert found.n == n
        assert (found.p50, found.p95, found.max, found.mean) == pytest.approx((p50, p95, largest, mean), rel=1e-9)


def test_tpot_equals_what_duckdb_computes_from_the_same_files(busy: RunData) -> None:
    (truth,) = query(f"""
        select count(*), quantile_cont(v, 0.99) from (
            select (list_max(s) - list_min(s)) / 1e6 / (output_tokens - 1) as v from (
                select output_tokens, list_transform(
                    list_filter(list_zip(chunk_ns, chunk_kind), lambda x: x[2] = 'content'), lambda x: x[1]) as s
                from read_parquet('{busy.folder}/requests/*.parquet') where outcome = 'ok' and measured))
        """)
    found = percentile_table(busy).find("tpot", "all")
    assert found is not None
    assert found.n == truth[0]
    assert found.p99 == pytest.approx(truth[1], rel=1e-9)


def test_error_rate_counts_failed_of_ended_requests(busy: RunData) -> None:
    (truth,) = query(f"""
        select 100 * avg(case when outcome = 'ok' then 0 else 1 end), count(*)
        from read_parquet('{busy.folder}/requests/*.parquet') where measured
        """)
    found = percentile_table(busy).find("error_rate", "all")
    assert found is not None
    assert (found.n, found.unit) == (truth[1], "%")
    assert found.mean == pytest.approx(truth[0])


def test_warm_up_is_left_out_and_can_be_shown_apart(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq * S, ttft_ns=5 * S, phase="warmup", measured=False) for seq in range(5)]
    rows += [row(seq, sent_ns=(5 + seq) * S, ttft_ns=100 * MS) for seq in range(5, 25)]
    phases = [steady("warmup", 0, 10, measured=False), steady("load", 10, 30)]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=phases)))
    table = percentile_table(run, all_quantiles=True)
    found = table.find("ttft", "all")
    assert found is not None
    assert (found.n, found.p50) == (20, 100)
    assert found.p99 == pytest.approx(100)
    rate = table.find("request_throughput", "all")
    assert rate is not None
    assert rate.mean == pytest.approx(1.0)
    assert table.find("ttft", "warmup") is None
    apart = percentile_table(run, warmup=True).find("ttft", "warmup")
    assert apart is not None
    assert (apart.n, apart.p50) == (5, 5000)


def test_fast_errors_do_not_improve_a_latency(tmp_path: Path) -> None:
    rows = [
        row(seq, sent_ns=seq * 100 * MS, outcome="http_error", end_ns=seq * 100 * MS + 3 * MS) | events()
        for seq in range(90)
    ]
    rows += [row(90 + k, sent_ns=9 * S + k * S // 9, ttft_ns=S // 2, tokens=16, gap_ns=100 * MS) for k in range(10)]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 13)])))
    table = percentile_table(run)
    e2e, errors = table.find("e2e", "all"), table.find("error_rate", "all")
    rate, tokens = table.find("request_throughput", "all"), table.find("output_token_throughput", "all")
    assert e2e is not None
    assert errors is not None
    assert rate is not None
    assert tokens is not None
    assert e2e.n == 10
    assert e2e.p50 == pytest.approx(2000)
    assert errors.mean == pytest.approx(90)
    assert rate.mean == pytest.approx(10 / 13, rel=1e-5)
    assert tokens.mean == pytest.approx(160 / 13, rel=1e-5)


def test_tokens_count_where_they_arrive_and_requests_where_they_end(tmp_path: Path) -> None:
    """Window [0, 10) s; one request from before, one that ends after, one cancelled at the stop, one sent at 10.0."""
    streams = [
        (-2.0, [-1.0, -0.5, 0.5, 1.0], 1.0, "ok"),
        (2.0, [2.5, 3.0, 3.5], 3.5, "ok"),
        (9.0, [9.5, 9.9, 10.0, 10.4], 10.4, "ok"),
        (9.5, [9.8], 12.0, "cancelled"),
        (10.0, [10.2], 10.3, "ok"),
    ]
    rows = [
        row(
            seq,
            sent_ns=round(sent * S),
            outcome=outcome,
            end_ns=round(end * S),
            phase="load" if 0 <= sent < 10 else "other",
        )
        | events(*((round(t * S), "content") for t in times))
        | {"output_tokens": None, "measured": 0 <= sent < 10}
        for seq, (sent, times, end, outcome) in enumerate(streams)
    ]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)])))
    table = percentile_table(run)
    tokens, answered, latency = (
        table.find(name, "load") for name in ("output_token_throughput", "request_throughput", "e2e")
    )
    assert tokens is not None
    assert answered is not None
    assert latency is not None
    assert tokens.mean == pytest.approx(0.8)
    assert answered.mean == pytest.approx(0.2)
    assert latency.n == 2


def test_quantiles_are_blank_below_ten_samples_above_them(tmp_path: Path) -> None:
    run = load_run(small_run(tmp_path / "run", count=199))
    found = percentile_table(run).find("ttft", "all")
    assert found is not None
    assert found.p90 is not None
    assert found.p95 is None
    lifted = percentile_table(run, all_quantiles=True).find("ttft", "all")
    assert lifted is not None
    assert lifted.p999 is not None


def test_json_names_the_contracts_fields_and_uses_null(tmp_path: Path) -> None:
    records = json.loads(as_json(percentile_table(load_run(small_run(tmp_path / "run", count=20)))))
    fields = ["metric", "unit", "phase", "n", "p50", "p90", "p95", "p99", "p999", "mean", "min", "max"]
    fields += ["p95_lo", "p95_hi", "n_eff"]
    assert all(list(record) == fields for record in records)
    first = records[0]
    assert (first["metric"], first["phase"], first["n"], first["p50"], first["p95"]) == ("ttft", "load", 20, 100, None)


def test_grouping_by_something_else_pools_the_phases(busy: RunData) -> None:
    records = percentile_table(busy, ("worker",)).records()
    assert {record["phase"] for record in records} == {"all"}
    assert {record["worker"] for record in records} == {"w0-aaaaaaaa", "w1-bbbbbbbb"}


def test_an_unknown_column_names_those_that_exist(busy: RunData) -> None:
    with pytest.raises(InputError, match="worker"):
        percentile_table(busy, ("wrker",))


def test_text_shows_three_digits_a_dash_for_undefined_and_the_reason(tmp_path: Path) -> None:
    text = as_text(percentile_table(load_run(small_run(tmp_path / "run", count=20))))
    line = next(line for line in text.splitlines() if line.startswith("ttft ") and " all " in line)
    assert line.split() == ["ttft", "ms", "all", "20", "100", "100", "–", "–", "–", "100"]  # noqa: RUF001 - the dash shown
    assert "too few samples" in text


def test_markdown_has_one_row_for_each_of_the_table(busy: RunData) -> None:
    table = percentile_table(busy)
    assert len(as_markdown(table, every=True).splitlines()) == 2 + len(table.rows)
    main = as_markdown(table).splitlines()
    assert {line.split(" ")[1] for line in main[2:]} >= {"ttft", "tpot", "chunk_gap", "e2e", "error_rate", "goodput"}
    assert not any("prefill_speed" in line or "retry_waste" in line for line in main)


def test_csv_keeps_undefined_empty(tmp_path: Path) -> None:
    lines = as_csv(percentile_table(load_run(small_run(tmp_path / "run", count=20)))).split("\r\n")
    assert lines[0] == "metric,unit,phase,n,p50,p90,p95,p99,p999,mean,min,max,p95_lo,p95_hi,n_eff"
    assert lines[1].startswith("ttft,ms,load,20,100.0,,,,,")


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-2+3", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", " =1+1", "\N{FULLWIDTH EQUALS SIGN}1+1"]
)
def test_a_text_cell_that_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert harmless(text) == "'" + text


@pytest.mark.parametrize("text", ['a,b"c', "line1\nline2", "tiny-1b", ""])
def test_a_harmless_text_cell_stays_as_it_is(text: str) -> None:
    assert harmless(text) == text


def test_wide_and_combining_characters_keep_columns_aligned() -> None:
    lines = align([["測試", "1"], ["e\N{COMBINING ACUTE ACCENT}", "22"], ["abcd", "3"]], 1)
    assert lines == ["測試   1", "e\N{COMBINING ACUTE ACCENT}     22", "abcd   3"]


def test_a_request_that_was_sent_again_has_a_time_with_its_retries_and_one_without(tmp_path: Path) -> None:
    failed = row(1, sent_ns=2 * S, outcome="http_error", end_ns=3 * S)
    never = row(1, sent_ns=None, attempt=1, outcome="connect_error")
    answered = row(1, sent_ns=6 * S, attempt=2, ttft_ns=500 * MS, tokens=1)
    plain = row(0, sent_ns=1 * S, ttft_ns=250 * MS, tokens=1)
    rows = [answered, plain, never, failed]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)])))
    table = percentile_table(run)
    found = {name: table.find(name, "all") for name in ("e2e", "e2e_with_retries", "retry_waste")}
    assert {name: (row.n, row.min, row.max) for name, row in found.items() if row is not None} == {
        "e2e": (2, 250.0, 500.0),
        "e2e_with_retries": (2, 250.0, 4500.0),
        "retry_waste": (1, 1000.0, 1000.0),
    }


def test_a_phase_name_is_no_markup_and_no_control_character(tmp_path: Path) -> None:
    name = "a|b\x1b[2J<img src=x>"
    rows = [row(k, sent_ns=k * S, phase=name) for k in range(5)]
    table = percentile_table(load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady(name, 0, 5)]))))
    for text in (as_text(table), as_markdown(table)):
        assert "\x1b" not in text
    assert "<img" not in as_markdown(table)
    lines = [line for line in as_markdown(table).splitlines() if "&lt;img" in line]
    assert lines
    assert all(line.replace("\\|", "").count("|") == as_markdown(table).splitlines()[0].count("|") for line in lines)
