"""The dashboards against Grafana's own TypeScript schema."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tests" / "grafana"
TSC = TOOLS / "node_modules" / ".bin" / "tsc"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not TSC.exists(), reason="Grafana's schema is not installed (make observe-deps)"),
]
OPTIONS = ("--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")

Change = Callable[[dict[str, Any]], None]


def refused(folder: Path, dashboards: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return what the compiler says of each dashboard that it refuses."""
    (folder / "node_modules").symlink_to(TOOLS / "node_modules")
    (folder / "types.ts").write_bytes((TOOLS / "types.ts").read_bytes())
    for name, content in dashboards.items():
        text = "import type { PrometheusDashboard } from './types';\nexport const d: PrometheusDashboard = "
        (folder / f"{name}.ts").write_text(f"{text}{json.dumps(content)};\n", encoding="utf-8")
    done = subprocess.run(
        [str(TSC), *OPTIONS, *(f"{name}.ts" for name in dashboards)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    return {name: done.stdout for name in dashboards if f"{name}.ts(" in done.stdout}


def changed(change: Change) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "dashboards" / "servebench-live.json").read_text(encoding="utf-8"))
    change(content)
    return content


def test_every_dashboard_fits_the_schema_and_a_spoiled_one_does_not(tmp_path: Path) -> None:
    spoiled: dict[str, Change] = {
        "width-as-text": lambda d: d["panels"][1]["gridPos"].update(w="12"),
        "unknown-variable": lambda d: d["templating"]["list"][0].update(type="guess"),
        "annotation-without-query": lambda d: d["annotations"]["list"][0]["target"].pop("expr"),
        "unknown-part": lambda d: d.update(panls=[]),
    }
    paths = sorted((ROOT / "dashboards").glob("*.json"))
    good = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    found = refused(tmp_path, good | {name: changed(change) for name, change in spoiled.items()})
    assert len(good) >= 3
    assert {name: said for name, said in found.items() if name in good} == {}
    assert set(found) == set(spoiled)
