"""How runs and workers are named, and where their files may go."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.core.errors import InputError
from servebench.shards.folder import (
    create_run_folder,
    join_run_folder,
    new_run_id,
    new_token,
    slugify,
    worker_name,
)

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
RUN_ID = "20260131T120000Z-chat-3f2c"

# The strings of case X08, as run names that try to leave the folder or to mean something to a shell.
TRICKS = json.loads(
    r"""["../../outside", "/dev/shm/servebench-abs", "a/b", "..", ".", "", " ", "-rf", "con", "nul.txt",
    "tab\tname", "new\nline", "nul\u0000byte", "\u00fcn\u00ef-\u4ee3", "org/model-7b", "C:\\temp\\x", "~root",
    "$(touch pwned)", "`id`"]"""
)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("chat-burst", "chat-burst"),
        ("org/model-7b", "org-model-7b"),
        ("../../outside", "outside"),
        ("ünï-代", "uni"),
        ("-rf", "rf"),
        ("..", "run"),
        ("", "run"),
        ("Llama 3.1 8B", "llama-3-1-8b"),
        ("x" * 300, "x" * 48),
        ("a" * 47 + "--b", "a" * 47),
    ],
)
def test_a_name_becomes_a_slug(name: str, slug: str) -> None:
    assert slugify(name) == slug


@given(st.text(max_size=200))
def test_a_slug_is_short_and_safe_whatever_the_name(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?", slugify(name))
    assert slugify(slugify(name)) == slugify(name)


@pytest.mark.parametrize("name", [*TRICKS, "x" * 5000])
def test_no_run_name_leaves_the_out_folder(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    folder = create_run_folder(out, new_run_id(NOON, name, "3f2c"))
    assert folder.root.parent == out
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == [folder.run_id]


@pytest.mark.parametrize(
    "name", ["../20260131T120000Z-chat-3f2c", "20260131T120000Z-../x-3f2c", "chat", "", f"{RUN_ID}\n"]
)
def test_what_is_no_run_id_makes_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is no run id"):
        create_run_folder(tmp_path / "out", name)
    assert list(tmp_path.iterdir()) == []


def test_a_run_id_holds_the_utc_second_the_slug_and_the_token() -> None:
    berlin = NOON.astimezone(timezone(timedelta(hours=1)))
    assert new_run_id(berlin, "chat", "3f2c") == RUN_ID


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        new_run_id(NOON.replace(tzinfo=None), "chat", "3f2c")


@pytest.mark.parametrize("token", ["", "3F2C", "3f2c1", "../x"])
def test_a_token_is_four_hex_digits(token: str) -> None:
    with pytest.raises(ValueError, match="not 4 hex digits"):
        new_run_id(NOON, "chat", token)


def test_a_new_token_fits_into_a_run_id() -> None:
    assert new_run_id(NOON, "chat", new_token()).startswith("20260131T120000Z-chat-")


def test_the_folder_of_another_run_is_never_used(tmp_path: Path) -> None:
    first = create_run_folder(tmp_path, RUN_ID)
    (first.requests / "part.parquet").write_bytes(b"rows")
    with pytest.raises(InputError, match="File exists; start again"):
        create_run_folder(tmp_path, RUN_ID)
    assert (first.requests / "part.parquet").read_bytes() == b"rows"


def test_a_run_folder_has_its_sub_folders(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, RUN_ID)
    assert sorted(path.name for path in folder.root.iterdir()) == ["clock", "health", "requests", "tables"]
    assert (folder.requests, folder.health, folder.tables) == tuple(
        folder.root / name for name in ("requests", "health", "tables")
    )
    assert folder.manifest == folder.root / "run.json"


def test_a_worker_joins_the_folder_that_is_there_and_makes_it_on_a_host_that_lacks_it(tmp_path: Path) -> None:
    made = create_run_folder(tmp_path / "a", RUN_ID)
    (made.requests / "part.parquet").write_bytes(b"rows")
    assert join_run_folder(tmp_path / "a", RUN_ID) == made
    assert (made.requests / "part.parquet").read_bytes() == b"rows"
    assert join_run_folder(tmp_path / "b", RUN_ID).requests.is_dir()


def test_a_folder_that_cannot_be_made_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="Not a directory; give a writable folder with --out"):
        create_run_folder(tmp_path / "file", RUN_ID)


def test_a_worker_is_named_by_index_and_incarnation() -> None:
    assert worker_name(3, "9f8e7d6c5b4a") == "w3-9f8e7d6c"


@pytest.mark.parametrize(("index", "incarnation"), [(-1, "9f8e7d6c"), (0, "9f8e"), (0, "../../xx")])
def test_a_worker_name_that_is_none_is_refused(index: int, incarnation: str) -> None:
    with pytest.raises(ValueError, match="is no index with 8 hex digits"):
        worker_name(index, incarnation)
