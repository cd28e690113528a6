"""The generated dashboards: up to date, every query about a family that is exported, every panel with its words."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from servebench.metrics.boards import BOARDS
from servebench.metrics.exported import EXPORTED
from servebench.metrics.grafana import dashboard, write_dashboards
from servebench.metrics.registry import METRIC_BY_NAME

FOLDER = Path(__file__).parents[3] / "dashboards"
FAMILIES = {one.full_name for one in EXPORTED} | {
    f"{one.full_name}_bucket" for one in EXPORTED if one.kind == "histogram"
}


def panels(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["panels"]
    return found


def test_the_files_are_what_the_code_gives(tmp_path: Path) -> None:
    write_dashboards(tmp_path)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == sorted(path.name for path in FOLDER.glob("*.json"))
    for name in written:
        assert (FOLDER / name).read_bytes() == (tmp_path / name).read_bytes(), f"{name}: run make gen"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_query_asks_for_an_exported_family(path: Path) -> None:
    exprs = [target["expr"] for panel in panels(path) for target in panel.get("targets", [])]
    assert len(exprs) > 5
    for expr in exprs:
        named = re.findall(r"servebench_\w+", expr)
        assert named
        assert set(named) <= FAMILIES, expr


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_panels_do_not_overlap_and_say_what_they_show(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(path):
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["fieldConfig"]["defaults"]["noValue"].startswith("no data")


def test_a_latency_panel_speaks_the_words_of_the_registry() -> None:
    live = next(board for board in BOARDS if board.uid == "servebench-live")
    told = {panel["title"]: panel.get("description", "") for panel in dashboard(live)["panels"]}
    for name in ("ttft", "tpot", "chunk_gap", "e2e"):
        metric = METRIC_BY_NAME[name]
        assert metric.start_event in told[metric.title]
        assert metric.stop_event in told[metric.title]
