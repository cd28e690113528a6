"""The notebook in docs runs from top to bottom on the run that lies beside it, and holds what its asserts hold."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
pytestmark = pytest.mark.integration


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Jupyter's own
def test_the_notebook_runs_on_the_packaged_run() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    notebook = nbformat.read(FOLDER / "analysis.ipynb", as_version=4)
    client.NotebookClient(notebook, timeout=90, resources={"metadata": {"path": str(FOLDER)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs or "import" in cell.source or "assert" in cell.source for cell in cells)
    card = "".join(cells[0].outputs[0]["data"]["text/html"])
    assert "VALID" in card
    assert "run.plot()" in card


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads((FOLDER / "analysis.ipynb").read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")


def test_the_packaged_run_is_small() -> None:
    size = sum(path.stat().st_size for path in (FOLDER / "example-run").rglob("*") if path.is_file())
    assert size < 400_000
