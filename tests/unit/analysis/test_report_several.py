"""Several runs on one page: one curve a run, what differs, no verdict; and plotly's script beside the page."""

import json
import re
from html import unescape
from pathlib import Path

from click.testing import CliRunner
from plotly.offline import get_plotlyjs
from tests.builders import MS, RunSpec, S, row, steady, write_part

from servebench.analysis.digest import examine
from servebench.analysis.page.several import labels
from servebench.analysis.report import plot_json, several_page
from servebench.cli.results import report
from servebench.core.errors import InputError
from servebench.shards.manifest import StepRecord, encode_manifest

NASTY = "</td><script>alert('m')</script><img src=x onerror=alert(1)>"


def climb(folder: Path, name: str, ttft_ms: int, **manifest: object) -> Path:
    """Write a run of two levels, 2 and 4 requests a second."""
    steps = [StepRecord(index=k, start_ns=50 * k * S, end_ns=50 * (k + 1) * S, rate_per_s=2 + 2 * k) for k in range(2)]
    at = [k * S // 2 for k in range(100)] + [50 * S + k * S // 4 for k in range(200)]
    rows = [row(k, sent_ns=ns, step=int(ns >= 50 * S), ttft_ns=ttft_ms * MS) for k, ns in enumerate(at)]
    given = {"run_id": f"20260903T121203Z-{name}", "target_url": f"http://{name}:8000"} | manifest
    for made in rows:
        made["run_id"] = given["run_id"]
    write_part(folder / "requests" / "part-w0-000000.parquet", rows, str(given["run_id"]))
    spec = RunSpec(rows=rows, phases=[steady("load", 0, 100, steps=steps)], manifest=given)
    (folder / "run.json").write_bytes(encode_manifest(spec.build_manifest()))
    return folder


def test_each_run_is_one_line_of_every_plot_under_load(tmp_path: Path) -> None:
    runs = [climb(tmp_path / "a", "a100", 100), climb(tmp_path / "b", "b300", 300)]
    page, plots = several_page([(run, examine(run)) for run in runs])
    by_name = {plot.name: plot for plot in plots}
    ttft = {trace.name: list(trace.y) for trace in by_name["ttft-load"].figure.data if trace.line.dash == "solid"}
    assert ttft == {"A a100": [100, 100], "B b300": [300, 300]}
    shown = [trace.name for trace in by_name["ttft-load"].figure.data if trace.showlegend]
    assert shown == ["A a100", "B b300"]
    assert {"throughput", "tokens-concurrency", "ecdf-ttft", "ecdf-chunk_gap"} <= set(by_name)
    assert by_name["ecdf-ttft"].data.rows[1][:2] == ("B b300", "300")
    (numbers,) = [table for table in page.tables if table.name == "numbers"]
    assert ("TTFT p50", "ms", "100", "300") in numbers.rows


def test_what_differs_is_named_and_one_run_each_gives_no_verdict(tmp_path: Path) -> None:
    runs = [climb(tmp_path / "a", "x", 100), climb(tmp_path / "b", "y", 100, schedule_hash="9" * 64)]
    page, _ = several_page([(run, examine(run)) for run in runs])
    (differing,) = [table for table in page.tables if table.name == "differences"]
    assert ("target", "http://x:8000", "http://y:8000") in differing.rows
    assert "no verdict" in page.verdict.headline
    assert any("not the same load: schedule differs" in reason for reason in page.verdict.reasons)


def test_names_stay_apart_when_runs_are_many(tmp_path: Path) -> None:
    digest = examine(climb(tmp_path / "a", "x", 100)).digest
    names = labels([digest] * 30)
    assert names[0] == "A x"
    assert len(set(names)) == 30


def test_the_page_of_several_runs_goes_where_it_is_wanted_with_nothing_from_a_run_as_markup(tmp_path: Path) -> None:
    runs = [climb(tmp_path / "a", "x", 100, declared={"engine": NASTY}), climb(tmp_path / "b", "y", 100)]
    out = tmp_path / "page.html"
    done = CliRunner().invoke(report, [*map(str, runs), "--out", str(out)], standalone_mode=False)
    assert done.return_value == 0
    assert Path(done.stdout.strip()) == out
    text = out.read_text(encoding="utf-8")
    assert "<img" not in text.replace(get_plotlyjs(), "")
    assert "&lt;img src=x" in text
    assert not (runs[0] / "report.html").exists()


def test_with_assets_plotlys_script_stands_beside_the_page(tmp_path: Path) -> None:
    run = climb(tmp_path / "my run", "x", 100)
    done = CliRunner().invoke(report, [str(run), "--assets", str(run / "assets")], standalone_mode=False)
    assert done.return_value == 0
    text = (run / "report.html").read_text(encoding="utf-8")
    match = re.search(r'<script src="(assets/plotly-[0-9.]+\.min\.js)">', text)
    assert match is not None
    assert (run / match[1]).read_text(encoding="utf-8") == get_plotlyjs()
    assert len(text) < 1_000_000
    policy = unescape(text.split('Content-Security-Policy" content="')[1].split('"')[0])
    assert re.search(r"script-src 'sha256-[^']+' 'self';", policy)


def test_an_invalid_run_among_others_decides_the_exit_code(tmp_path: Path) -> None:
    good, bad = climb(tmp_path / "a", "x", 100), climb(tmp_path / "b", "y", 100, planned=5000)
    done = CliRunner().invoke(report, [str(good), str(bad), "--out", str(tmp_path / "p.html")], standalone_mode=False)
    assert done.return_value == 3
    assert f"{bad} is INVALID" in done.stderr


def test_a_page_in_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    run = climb(tmp_path / "a", "x", 100)
    done = CliRunner().invoke(report, [str(run), "--out", str(tmp_path / "no" / "p.html")], standalone_mode=False)
    assert isinstance(done.exception, InputError)


def test_the_plots_of_several_runs_are_plain_json(tmp_path: Path) -> None:
    runs = [climb(tmp_path / "a", "x", 100), climb(tmp_path / "b", "y", 100)]
    _, plots = several_page([(run, examine(run)) for run in runs])
    assert set(json.loads(plot_json(plots))) == {plot.name for plot in plots}
