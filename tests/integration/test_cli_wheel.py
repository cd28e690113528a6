"""The built wheel, installed by itself, run in an empty folder: what a user of a release has."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
MISSING = [name for name in ("README.md", "LICENSE", "NOTICE") if not (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("build")
    for name in ("src", "README.md", "LICENSE", "NOTICE", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder / "dist"),
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone; its dependencies are those of this interpreter, its own sources are out of reach."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    query = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = subprocess.run([python, "-c", query], capture_output=True, text=True, check=True).stdout.strip()
    # A path in a .pth file is added as it is: the .pth of an editable install over there is not read.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def _environment() -> dict[str, str]:
    hidden = ("SERVEBENCH_", "LOCUST_", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


def test_the_wheel_holds_the_package_its_data_and_their_licences(wheel: Path) -> None:
    assert MISSING == []
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name.startswith("locust_servebench-")
    assert {name.partition("/")[0] for name in names if not name.startswith("locust_servebench-")} == {"servebench"}
    for part in (
        "servebench/py.typed",
        "servebench/loadgen/locustfile.py",
        "servebench/workload/data/workloads/demo.yaml",
        "servebench/workload/data/azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    ):
        assert part in names
    licences = [name.rpartition("/licenses/")[2] for name in names if "/licenses/" in name]
    assert {"LICENSE", "NOTICE", "src/servebench/workload/data/LICENSES/CC-BY-4.0.txt"} <= set(licences)


def test_the_demo_runs_from_the_wheel_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    where = [str(installed / "bin" / "python"), "-c", "import servebench; print(servebench.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, check=True, env=_environment(), cwd=tmp_path)
    assert Path(found.stdout.strip()).is_relative_to(installed)

    done = subprocess.run(
        [installed / "bin" / "servebench", "demo"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
        env=_environment(),
        stdin=subprocess.DEVNULL,
    )
    # 3 = the machine was too busy for the numbers to be used, which the verdict says.
    assert done.returncode in {0, 1, 3}, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    (run,) = (tmp_path / "runs").iterdir()
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["planned"] == manifest["rows"] > 400
    assert manifest["lost"] == []
    assert (
        done.returncode == (0 if manifest["verdict"]["valid"] else 3) or manifest["verdict"]["objectives"] == "missed"
    )
    for name in ("report.html", "summary.json", "workload.yaml", "tables/curve.csv", "log/master.log", "log/sim.log"):
        assert (run / name).stat().st_size > 0, name
    assert done.stdout.splitlines()[-1].startswith("Next     servebench table runs/")

    table = subprocess.run(
        [installed / "bin" / "servebench", "table", str(run), "--by", "phase", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
        env=_environment(),
    )
    assert table.returncode in {0, 3}, table.stderr
    phases = {row["phase"] for row in json.loads(table.stdout) if row["metric"] == "ttft"}
    assert phases == {"replay", "steps", "burst", "all"}
