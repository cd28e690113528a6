"""Know how dashboards are written down as Grafana's JSON model (`dashboards/*.json`)."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from servebench.metrics.boards import BOARDS, Board, Panel, selected
from servebench.metrics.exported import EXPORTED_BY_NAME

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_HEIGHT = 8
_TILE_HEIGHT = 4


def dashboard(board: Board) -> dict[str, Any]:
    """Return a dashboard as Grafana's JSON model."""
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["servebench"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "refresh": board.refresh,
        "time": {"from": board.window, "to": "now"},
        "templating": {"list": list(_variables())},
        "annotations": {"list": [_phases()]},
        "panels": list(_panels(board)),
    }


def write_dashboards(folder: Path) -> None:
    """Write one file a dashboard."""
    for board in BOARDS:
        text = json.dumps(dashboard(board), indent=1, ensure_ascii=False)
        (folder / f"{board.uid}.json").write_text(text + "\n", encoding="utf-8")


def _variables() -> Iterator[Mapping[str, Any]]:
    yield {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"}
    up = EXPORTED_BY_NAME["run_running"].full_name
    for name, query in (
        ("job", f"label_values({up}, job)"),
        ("instance", f'label_values({up}{{job=~"$job"}}, instance)'),
    ):
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": query,
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": False,
            "current": {"text": "All", "value": "$__all"},
        }


def _phases() -> Mapping[str, Any]:
    """Return the annotation that marks where a phase begins: it is there now and was not a minute ago."""
    now = f"count by (run_id, phase) ({selected('run_info')})"
    return {
        "name": "phases",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "#0072b2",
        "target": {"refId": "Anno", "expr": f"{now} unless {now.removesuffix(')')} offset 1m)"},
        "step": "10s",
        "titleFormat": "{{phase}}",
        "textFormat": "{{run_id}}",
    }


def _panels(board: Board) -> Iterator[Mapping[str, Any]]:
    number, top = 1, 0
    for title, panels in board.rows:
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": _place(0, top, _COLUMNS, 1)}
        number, top = number + 1, top + 1
        tiles = all(panel.kind == "stat" for panel in panels)
        width, height = (_COLUMNS // len(panels), _TILE_HEIGHT) if tiles else (_COLUMNS // 2, _HEIGHT)
        across = _COLUMNS // width
        for index, panel in enumerate(panels):
            place = _place(index % across * width, top + index // across * height, width, height)
            yield _panel(panel, number, place)
            number += 1
        top += -(-len(panels) // across) * height


def _panel(panel: Panel, number: int, place: Mapping[str, int]) -> Mapping[str, Any]:
    custom = {"spanNulls": False, "stacking": {"mode": "normal" if panel.stacked else "none"}, "fillOpacity": 8}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "noValue": panel.no_data}
    if panel.kind == "timeseries":
        defaults["custom"] = custom
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "format": "heatmap" if panel.kind == "heatmap" else "time_series",
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def _options(panel: Panel) -> Mapping[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"}
    if panel.kind == "heatmap":
        return {"calculate": False, "yAxis": {"unit": panel.unit}}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


if __name__ == "__main__":
    write_dashboards(Path(sys.argv[1]))
