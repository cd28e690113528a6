"""The dashboards against Grafana's own types: its server cannot be had from Debian, PyPI or npm, its schema can."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.compose, pytest.mark.timeout(300)]

DASHBOARDS = sorted((Path(__file__).parents[2] / "dashboards").glob("*.json"))
FLAGS = ("--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")
# What belongs to a data source (a query's and an annotation's own fields) Grafana's type of a dashboard leaves open.
TYPES = """
import type { AnnotationQuery, Dashboard, DataQuery, Panel, RowPanel } from '@grafana/schema';
type Query = DataQuery & { expr: string; legendFormat?: string; instant?: boolean; format?: string };
type Notes = { target: { expr: string }; step?: string; titleFormat?: string; textFormat?: string };
type Shown = Omit<Dashboard, 'panels' | 'annotations'> & {
  panels: ((Omit<Panel, 'targets'> & { targets?: Query[] }) | RowPanel)[];
  annotations: { list: (AnnotationQuery & Notes)[] };
};
"""


@pytest.fixture(scope="module")
def tsc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with TypeScript and @grafana/schema."""
    if shutil.which("npm") is None:
        pytest.skip("no npm here, which brings Grafana's schema")
    folder = tmp_path_factory.mktemp("schema")
    command = ["npm", "install", "--no-audit", "--no-fund", "@grafana/schema@12", "typescript@5"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=240)
    if done.returncode:
        pytest.skip(f"npm has no @grafana/schema for us: {done.stderr.strip().splitlines()[-1]}")
    return folder


def check(folder: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    """Compile a dashboard as a value of Grafana's type."""
    source = folder / f"{name}.ts"
    source.write_text(f"{TYPES}\nexport const shown: Shown = {text};\n", encoding="utf-8")
    command = ["node_modules/.bin/tsc", *FLAGS, source.name]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_one_by_grafanas_own_types(tsc: Path, path: Path) -> None:
    done = check(tsc, path.stem, path.read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stdout


def test_the_check_sees_a_width_in_words(tsc: Path) -> None:
    text = DASHBOARDS[0].read_text(encoding="utf-8")
    spoiled = text.replace('"w": 12', '"w": "12"', 1)
    assert spoiled != text
    assert "is not assignable to type 'number'" in check(tsc, "spoiled", spoiled).stdout
