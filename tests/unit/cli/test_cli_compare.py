"""The command `compare`: what it prints where, and its exit codes."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from plotly.offline import get_plotlyjs
from tests.builders import MS, RunSpec, events, row, steady, write_run

from servebench.cli.compare import compare


def made(folder: Path, seed: int, ttft_ms: float, *, sent: int = 240, failed: int = 0) -> Path:
    rows = [row(k, sent_ns=k * 100 * MS, ttft_ns=int((ttft_ms + (k * seed) % 7) * MS)) for k in range(sent)]
    for index in range(failed):
        rows[index] |= events() | {"outcome": "timeout", "output_tokens": None}
    planned = {"seed": seed, "planned": 240, "planned_total": 240}
    return write_run(folder, RunSpec(rows=rows, phases=[steady("load", 0, 24)], manifest=planned))


def sides(folder: Path, ttft_ms: float, *, failed: int = 0) -> list[str]:
    base = [str(made(folder / f"a{seed}", seed, 100)) for seed in (1, 2, 3)]
    new = [str(made(folder / f"b{seed}", seed, ttft_ms + seed / 100, failed=failed)) for seed in (1, 2, 3)]
    return [",".join(base), ",".join(new)]


@pytest.mark.parametrize(
    ("options", "code"),
    [([], 0), (["--require", "ttft.p95<-10%"], 0), (["--require", "ttft.p95<-90%"], 1), (["--primary", "nothing"], 2)],
    ids=["better", "boundary held", "boundary broken", "unknown metric"],
)
def test_the_exit_code_tells_whether_the_boundaries_hold(tmp_path: Path, options: list[str], code: int) -> None:
    done = CliRunner().invoke(compare, [*sides(tmp_path, 70), *options], standalone_mode=False)
    assert (done.return_value if done.exception is None else getattr(done.exception, "exit_code", None)) == code


def test_markdown_goes_to_stdout(tmp_path: Path) -> None:
    done = CliRunner().invoke(compare, [*sides(tmp_path, 70), "--format", "md"], standalone_mode=False)
    assert done.stdout.startswith("**✓ B ACCEPTED: TTFT p95 falls by")


def test_an_invalid_run_is_not_compared(tmp_path: Path) -> None:
    base = made(tmp_path / "a", 1, 100)
    broken = made(tmp_path / "b", 1, 100, sent=100)
    done = CliRunner().invoke(compare, [str(base), str(broken)], standalone_mode=False)
    assert done.return_value == 3
    assert "INVALID" in done.stderr
    assert done.stdout == ""


def test_a_page_with_the_changes_their_intervals_and_the_runs_is_written_beside(tmp_path: Path) -> None:
    page = tmp_path / "comparison.html"
    done = CliRunner().invoke(compare, [*sides(tmp_path, 70), "--report", str(page)], standalone_mode=False)
    assert done.return_value == 0
    text = page.read_text(encoding="utf-8").replace(get_plotlyjs(), "")
    assert "B ACCEPTED: TTFT p95 falls by" in text
    match = re.search(r'<script type="application/json" id="plot-data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    plots = json.loads(match[1])
    (better,) = [trace for trace in plots["changes"]["data"] if trace["name"] == "better"]
    row = better["y"].index("TTFT p95")
    assert better["x"][row] == pytest.approx(-28.4, abs=1)
    assert {"throughput", "ttft-load"} <= set(plots)


def test_a_refused_comparison_has_a_page_that_says_why_and_shows_no_change(tmp_path: Path) -> None:
    base, candidate = sides(tmp_path, 70)
    for seed in (1, 2, 3):
        manifest = tmp_path / f"b{seed}" / "run.json"
        manifest.write_text(manifest.read_text().replace("7c1e" * 16, "9" * 64))
    page = tmp_path / "comparison.html"
    done = CliRunner().invoke(compare, [base, candidate, "--report", str(page)], standalone_mode=False)
    assert done.return_value == 2
    text = page.read_text(encoding="utf-8").replace(get_plotlyjs(), "")
    assert "not compared: schedule" in text
    assert 'data-plot="changes"' not in text
