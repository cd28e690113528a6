"""Know the run folders as a page lists them: newest first, what became of each, which of its files may be fetched."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from servebench.shards.folder import RUN_ID
from servebench.shards.manifest import MANIFEST_NAME

MAX_RUNS = 200
FILES = frozenset({"report.html", "summary.json", "run.json", "events.jsonl", "workload.yaml"})


class _Verdict(msgspec.Struct):
    status: str | None = None
    objectives: str | None = None


class _Manifest(msgspec.Struct):
    name: str = ""
    state: str = ""
    created_utc: str = ""
    target_url: str = ""
    rows: int | None = None
    verdict: _Verdict | None = None


class RunLine(NamedTuple):
    """One run of the list. `verdict` "" = none yet."""

    run_id: str
    name: str
    created_utc: str
    target: str
    state: str
    verdict: str
    rows: int | None
    files: tuple[str, ...]


def list_runs(out: Path) -> list[RunLine]:
    """Return the newest runs of a folder; one whose manifest cannot be read is listed with what its name says."""
    if not out.is_dir():
        return []
    names = sorted((path.name for path in out.iterdir() if RUN_ID.fullmatch(path.name)), reverse=True)
    return [_line(out / name) for name in names[:MAX_RUNS]]


def file_of(out: Path, run_id: str, name: str) -> Path | None:
    """Return the file of a run that may be shown, None for anything else."""
    if not RUN_ID.fullmatch(run_id) or name not in FILES:
        return None
    path = out / run_id / name
    return path if path.is_file() else None


def _line(folder: Path) -> RunLine:
    try:
        manifest = msgspec.json.decode((folder / MANIFEST_NAME).read_bytes(), type=_Manifest)
    except (OSError, msgspec.MsgspecError):
        manifest = _Manifest(state="unreadable")
    verdict = manifest.verdict
    words = [] if verdict is None else [verdict.status or "", f"objectives {verdict.objectives or 'none'}"]
    return RunLine(
        run_id=folder.name,
        name=manifest.name,
        created_utc=manifest.created_utc,
        target=manifest.target_url,
        state=manifest.state,
        verdict=", ".join(words),
        rows=manifest.rows,
        files=tuple(sorted(name for name in FILES if (folder / name).is_file())),
    )
