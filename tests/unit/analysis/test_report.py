"""The report as a file: what is in it, and what cannot get in."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs
from tests.builders import RunSpec, S, busy_run, events, row, small_run, steady, write_run

from servebench.analysis.digest import examine
from servebench.analysis.page import build_page
from servebench.analysis.page.conditions import without_secrets
from servebench.analysis.report import write_report

NASTY = "</td><script>alert('m')</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(path: Path) -> Elements:
    found = Elements()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def test_without_plotlys_own_script_the_file_is_small(tmp_path: Path) -> None:
    path = write_report(busy_run(tmp_path / "run"))
    assert path.stat().st_size - len(get_plotlyjs().encode()) < 1_500_000
    assert path.read_text(encoding="utf-8").count(get_plotlyjs()) == 1


def test_nothing_from_the_server_becomes_markup(tmp_path: Path) -> None:
    rows = [row(seq, sent_ns=seq * S, model=NASTY) for seq in range(20)]
    rows.append(row(20, sent_ns=20 * S, outcome="http_error", error_message=NASTY, error_class=NASTY) | events())
    spec = RunSpec(rows=rows, phases=[steady("load", 0, 21)], manifest={"name": NASTY, "stop_cause": NASTY})
    folder = write_run(tmp_path / "run", spec)
    found = parsed(write_report(folder))
    assert "img" not in found.tags
    assert found.tags.count("script") == 3
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert any(NASTY in text for text in found.text)


def test_plot_data_cannot_end_its_script_element(tmp_path: Path) -> None:
    phase = steady("</script><b>", 0, 20)
    rows = [row(seq, sent_ns=seq * S, phase="</script><b>") for seq in range(20)]
    text = write_report(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[phase]))).read_text(encoding="utf-8")
    match = re.search(r'<script type="application/json" id="plot-data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    assert not re.search("[<>&]", match[1])
    plots = json.loads(match[1])
    assert {"rates", "latency", "throughput", "ecdf-ttft"} <= set(plots)


def test_the_policy_allows_no_connection_and_no_other_script(tmp_path: Path) -> None:
    found = parsed(write_report(busy_run(tmp_path / "run")))
    policy = next(value for name, value in found.attributes if name == "content" and value and "script-src" in value)
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2
    assert "connect-src" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]


@pytest.mark.parametrize("outcome", ["http_error", "shed", "cancelled"])
def test_a_run_without_one_answer_has_a_report(tmp_path: Path, outcome: str) -> None:
    sent = None if outcome == "shed" else S
    rows = [row(seq, sent_ns=sent, outcome=outcome, intended_ns=seq * S) | events() for seq in range(5)]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 5)]))
    text = " ".join(parsed(write_report(folder)).text)
    assert "INVALID: do not use these numbers" in text


def test_a_run_without_rows_has_a_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", RunSpec(rows=[], phases=[steady("load", 0, 5)]))
    (folder / "requests").mkdir()
    assert "INVALID" in " ".join(parsed(write_report(folder)).text)


def test_the_command_shows_no_password_and_no_key() -> None:
    assert without_secrets("https://user:secret@host:1/v1?key=abc") == "https://host:1/v1"
    assert without_secrets("--rate") == "--rate"
    assert without_secrets("what?") == "what?"


def test_the_percentile_table_says_what_a_quantile_needs_and_nothing_twice(tmp_path: Path) -> None:
    text = " ".join(parsed(write_report(small_run(tmp_path / "run", count=20))).text)
    assert "p95 needs 200, p99 needs 1,000, p999 needs 10,000" in text
    table = build_page(examine(tmp_path / "run").digest, ()).tables[0]
    assert [row[2] for row in table.rows if row[0] == "TTFT"] == ["load"]
    busy = build_page(examine(busy_run(tmp_path / "busy")).digest, ()).tables[0]
    assert [row[2] for row in busy.rows if row[0] == "TTFT"] == ["ramp", "burst", "all"]
