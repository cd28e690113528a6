"""Runs whose events are too many to be kept give the same numbers as those whose events are."""

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from tests.builders import MS, RunSpec, S, busy_run, events, query, row, steady, write_run

from servebench.analysis.chunks import by_size
from servebench.analysis.dialects import dialect_named, speak
from servebench.analysis.pool import helpers
from servebench.analysis.rates import rate_over
from servebench.analysis.source import RunData, load_run
from servebench.analysis.tables import percentile_table
from servebench.analysis.timeline import MAX_BINS, timeline
from servebench.analysis.windows import phase_windows
from servebench.core.errors import InputError, ShardError

GAPS = """
    with events as (
        select seq, {group} as key, unnest(chunk_ns) as ns, unnest(chunk_kind) as kind
        from read_parquet('{folder}/requests/*.parquet') where outcome = 'ok' and measured),
    gaps as (
        select key, (ns - lag(ns) over (partition by seq order by ns)) / 1e6 as v from events where kind = 'content')
    select key, count(v), quantile_cont(v, 0.5), quantile_cont(v, 0.99), max(v), avg(v) from gaps
    where v is not null group by key order by key
"""


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return load_run(busy_run(tmp_path_factory.mktemp("busy") / "run"))


def read_again(run: RunData) -> RunData:
    return replace(run, chunks=replace(run.chunks, kept=()))


@pytest.mark.parametrize("group", ["phase", "worker"])
def test_gaps_that_are_read_again_equal_those_that_were_kept_and_duckdbs(busy: RunData, group: str) -> None:
    table = percentile_table(read_again(busy), (group,))
    assert table == percentile_table(busy, (group,))
    for key, n, p50, p99, largest, mean in query(GAPS.format(group=group, folder=busy.folder)):
        found = table.find("chunk_gap", key)
        assert found is not None
        assert found.n == n
        assert (found.p50, found.p99, found.max, found.mean) == pytest.approx((p50, p99, largest, mean), rel=1e-9)


def test_the_division_into_parts_changes_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    rows = [
        row(k, sent_ns=k * 50 * MS, ttft_ns=int(rng.integers(50, 900)) * MS, gap_ns=int(rng.integers(1, 40)) * MS)
        for k in range(300)
    ]
    tables = []
    for parts in (1, 2, 7):
        spec = RunSpec(rows=rows, phases=[steady("load", 0, 20)], parts=parts)
        tables.append(percentile_table(load_run(write_run(tmp_path / f"run{parts}", spec))))
    assert tables[0] == tables[1] == tables[2]


def test_the_division_into_blocks_changes_nothing(busy: RunData, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("source", "chunks"):
        monkeypatch.setattr(f"servebench.analysis.{module}.BLOCK_EVENTS", 7)
    cut = load_run(busy.folder)
    assert percentile_table(read_again(cut)) == percentile_table(busy)
    assert cut.flow.per_second.tolist() == busy.flow.per_second.tolist()
    assert cut.flow.tokens.tolist() == busy.flow.tokens.tolist()
    assert cut.flow.longest_gap_ns.tolist() == busy.flow.longest_gap_ns.tolist()


def test_a_small_run_is_merged_and_reported_without_pandas(tmp_path: Path) -> None:
    folder = busy_run(tmp_path / "run")
    script = (
        "import sys; from pathlib import Path; from servebench.analysis.digest import examine;"
        "from servebench.analysis.merge import write_outputs; from servebench.analysis.report import write_report;"
        "folder = Path(sys.argv[1]); found = examine(folder); write_outputs(folder, found.digest);"
        "write_report(folder, found); sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(folder)], check=False, timeout=100).returncode == 0


def test_a_stamp_of_another_clock_makes_no_series_of_decades(tmp_path: Path) -> None:
    epoch = 1_788_437_523 * S
    strange = row(1, sent_ns=S) | events((epoch, "content"), (epoch + S, "content")) | {"end_ns": epoch + S}
    folder = write_run(tmp_path / "run", RunSpec(rows=[row(0, sent_ns=0), strange], phases=[steady("load", 0, 20)]))
    run = load_run(folder)
    assert run.flow.per_second.tolist() == [4.0]
    assert run.flow.longest_gap_ns.tolist() == [10.0 * MS]
    assert len(timeline(run).start_s) <= MAX_BINS + 2
    assert rate_over("output_token_throughput", run, list(phase_windows(run).values())) == pytest.approx(4 / 20)


def test_a_part_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    run = read_again(load_run(busy_run(tmp_path / "run")))
    part = run.chunks.places[0].path
    part.write_bytes(run.chunks.places[1].path.read_bytes())
    with pytest.raises(ShardError, match="changed while the run was read"):
        percentile_table(run)


def test_output_tokens_count_where_they_arrive(busy: RunData) -> None:
    for name, window in phase_windows(busy).items():
        (truth,) = query(f"""
            with events as (
                select seq, output_tokens, unnest(chunk_ns) as ns, unnest(chunk_kind) as kind
                from read_parquet('{busy.folder}/requests/*.parquet')),
            shares as (
                select ns, coalesce(output_tokens, count(*) over (partition by seq))
                    / count(*) over (partition by seq) as tokens
                from events where kind = 'content')
            select sum(tokens) from shares where ns >= {window.start_ns} and ns < {window.end_ns}
            """)
        assert rate_over("output_token_throughput", busy, [window]) * window.seconds == pytest.approx(truth[0]), name


def test_an_answer_in_one_piece_brings_its_tokens_at_its_end(tmp_path: Path) -> None:
    rows = [row(0, sent_ns=0) | events() | {"end_ns": 5 * S, "output_tokens": 40, "chunk_tokens": []}]
    phases = [steady("early", 0, 4), steady("late", 4, 10)]
    run = load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=phases)))
    early, late = phase_windows(run).values()
    assert rate_over("output_token_throughput", run, [early]) == 0
    assert rate_over("output_token_throughput", run, [late]) == pytest.approx(40 / 6)


def test_processes_that_share_the_reading_change_no_number(busy: RunData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servebench.analysis.chunks.BATCH_BYTES", 1)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        shared = load_run(busy.folder, executor)
        table = percentile_table(read_again(shared), ("worker",))
        speech = speak(read_again(shared), dialect_named("vllm"))
    assert table == percentile_table(busy, ("worker",))
    assert speech == speak(busy, dialect_named("vllm"))
    assert shared.shards == busy.shards
    assert shared.flow.per_second.tolist() == pytest.approx(busy.flow.per_second.tolist())
    assert shared.flow.longest_gap_ns.tolist() == busy.flow.longest_gap_ns.tolist()


def test_parts_are_read_in_batches_of_about_one_size() -> None:
    sizes = [3_000_000, 3_000_000, 3_000_000, 9_000_000, 1]
    assert by_size("abcde", sizes) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert by_size("", []) == []


def test_small_runs_need_no_helpers_and_a_strange_address_is_told(busy: RunData) -> None:
    with helpers(busy.folder) as executor:
        assert executor is None
    with pytest.raises(InputError, match="dask://"), helpers(busy.folder, "spark://x"):
        pass
