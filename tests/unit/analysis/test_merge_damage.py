"""Run folders that people and machines have spoiled: named, with the right exit code, and never half-written."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.builders import small_run, write_part

from servebench.analysis.merge import merge
from servebench.cli.finish import Wanted, show_results
from servebench.core.errors import ServebenchError
from servebench.shards.manifest import Manifest, Verdict


def edited(**fields: Any) -> Callable[[Path], None]:  # noqa: ANN401 - any field of the manifest
    def edit(run: Path) -> None:
        manifest = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(manifest | fields))

    return edit


def written(data: bytes) -> Callable[[Path], object]:
    return lambda run: (run / "run.json").write_bytes(data)


def instead_of(name: str, *, folder: bool) -> Callable[[Path], None]:
    """Put a folder in the place of a file, or a file in that of a folder."""

    def put(run: Path) -> None:
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).unlink(missing_ok=True)
        (run / name).mkdir() if folder else (run / name).write_text("x")

    return put


REFUSED: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "no manifest": (lambda run: (run / "run.json").unlink(), 2, "is no run folder: run.json: No such file"),
    "a cut manifest": (written(b'{"run_id": "x", '), 2, "is no servebench manifest: Input data was truncated"),
    "an empty manifest": (written(b""), 2, "is no servebench manifest"),
    "a manifest of bytes": (written(b"\xff\xfe\x00"), 2, "is no servebench manifest"),
    "a manifest of another version": (edited(schema_version="2.0"), 2, "has schema version 2.0; this servebench reads"),
    "a version that is none": (edited(schema_version="new"), 2, 'has schema version "new", which is none'),
    "less than nothing planned": (edited(planned=-1), 2, "Expected `int` >= 0 - at `$.planned`"),
    "more planned than fits": (edited(planned=10**12), 2, "Expected `int` <= 2147483648 - at `$.planned`"),
    "a phase without a name": (edited(phases=[{"shape": "steady"}]), 2, "missing required field `name`"),
    "no folder of parts": (lambda run: shutil.rmtree(run / "requests"), 2, "requests holds no parts: No such file"),
    "a file for the parts": (instead_of("requests", folder=False), 2, "requests holds no parts: Not a directory"),
    "a folder for the summary": (instead_of("summary.json", folder=True), 4, "move away the folder of that name"),
    "a file for the tables": (instead_of("tables", folder=False), 4, "tables: File exists"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_cannot_be_merged_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    spoil, code, said = REFUSED[name]
    run = small_run(tmp_path / "run")
    spoil(run)
    with pytest.raises(ServebenchError) as error:
        show_results(run, Wanted(report=False, compact=True))
    assert error.value.exit_code == code
    assert said in str(error.value)
    assert not list(run.rglob("*.tmp")), "nothing half-written is left"


STRANGER = "requests/part-w7-00000000-000000.parquet"
BESIDE = ("health", "clock", "engine", "hardware")


def linked(target: str) -> Callable[[Path], object]:
    return lambda run: (run / STRANGER).symlink_to(target)


def dropped(path: str, data: bytes) -> Callable[[Path], object]:
    def drop(run: Path) -> None:
        (run / path).parent.mkdir(exist_ok=True)
        (run / path).write_bytes(data)

    return drop


NAMED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to nowhere": (linked("/nowhere"), f"{STRANGER} unreadable: No such file"),
    "a link to itself": (linked(Path(STRANGER).name), f"{STRANGER} unreadable: Too many levels of symbolic links"),
    "a pipe": (lambda run: os.mkfifo(run / STRANGER), f"{STRANGER} unreadable: a pipe, socket or device"),
    "a folder": (lambda run: (run / STRANGER).mkdir(), f"{STRANGER} unreadable: Is a directory"),
    "nothing in it": (dropped(STRANGER, b""), f"{STRANGER} unreadable: "),
    "an odd name": (dropped("requests/a\nb.parquet", b"PAR1"), "requests/a\nb.parquet unreadable: "),
    **{
        f"damage in {kind}": (dropped(f"{kind}/part-w0-00000000-000000.parquet", b"PAR1"), f"{kind}/part-w0-00000000-")
        for kind in BESIDE
    },
}


@pytest.mark.parametrize("name", NAMED)
def test_a_file_that_is_no_part_is_named_and_the_others_are_used(tmp_path: Path, name: str) -> None:
    spoil, said = NAMED[name]
    run = small_run(tmp_path / "run")
    spoil(run)
    merged = verdict_of(merge(run))
    assert merged.valid
    assert [reason for reason in merged.reasons if said in reason]
    first = {path: path.read_bytes() for path in (run / "tables").iterdir()}
    assert verdict_of(merge(run)) == merged
    assert {path: path.read_bytes() for path in (run / "tables").iterdir()} == first


def verdict_of(manifest: Manifest) -> Verdict:
    assert manifest.verdict is not None
    return manifest.verdict


def first_part(run: Path) -> Path:
    return min((run / "requests").glob("*.parquet"))


def test_a_part_reached_through_a_link_is_used(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    part = first_part(run)
    part.rename(tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    assert merge(run).rows == 20


def test_a_part_that_changed_since_the_first_merge_makes_the_run_invalid_each_time(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    sealed = merge(run).shards
    part = first_part(run)
    before = part.read_bytes()
    rows = pq.read_table(part).to_pylist()
    for row in rows:
        row["end_ns"] -= 1
    write_part(part, rows)
    for _ in range(2):
        merged = merge(run)
        assert not verdict_of(merged).valid
        said = f"requests/{part.name} has other bytes than when the run was merged first"
        assert any(said in reason for reason in verdict_of(merged).reasons)
        assert merged.shards == sealed, "the checksum of the right file stays on record"
    part.write_bytes(before)
    assert verdict_of(merge(run)).valid


def test_a_part_that_is_gone_since_the_first_merge_is_named_each_time(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    sealed = merge(run).shards
    part = first_part(run)
    before = part.read_bytes()
    part.unlink()
    for _ in range(2):
        merged = merge(run)
        assert any(f"requests/{part.name} is gone or damaged" in reason for reason in verdict_of(merged).reasons)
        assert merged.shards == sealed
        assert merged.lost
    part.write_bytes(before)
    merged = merge(run)
    assert verdict_of(merged).reasons == []
    assert merged.lost == []


def test_a_part_that_comes_later_is_taken_in_without_a_word(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    part = first_part(run)
    late = part.read_bytes()
    part.unlink()
    assert merge(run).rows == 10
    part.write_bytes(late)
    merged = merge(run)
    assert merged.rows == 20
    assert verdict_of(merged).reasons == []
