"""Know how runs, workers and their folders are named, and that no run ever writes into the folder of another."""

import errno
import re
import secrets
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from servebench.core.errors import InputError
from servebench.shards.manifest import MANIFEST_NAME

MAX_SLUG = 48

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[a-z0-9][a-z0-9-]*-[0-9a-f]{4}")
WORKER = re.compile(r"w\d+-[0-9a-f]{8}")

_SUBFOLDERS = ("requests", "health", "clock", "tables")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Where the files of one run are; only the paths, nothing says that they exist."""

    root: Path

    @property
    def run_id(self) -> str:
        """Name of the run, which is the name of its folder."""
        return self.root.name

    @property
    def manifest(self) -> Path:
        """`run.json`."""
        return self.root / MANIFEST_NAME

    @property
    def workload(self) -> Path:
        """The workload file as it was given."""
        return self.root / "workload.yaml"

    @property
    def requests(self) -> Path:
        """Parts with one row per request."""
        return self.root / "requests"

    @property
    def health(self) -> Path:
        """Parts with one row per worker and second."""
        return self.root / "health"

    @property
    def clock(self) -> Path:
        """Parts with one row per answered clock ping; empty where every worker shares the master's clock."""
        return self.root / "clock"

    @property
    def spans(self) -> Path:
        """Parts with one row per step of an answer; only there where a locustfile makes the answers."""
        return self.root / "spans"

    @property
    def tables(self) -> Path:
        """CSV tables of the analysis."""
        return self.root / "tables"

    @property
    def events(self) -> Path:
        """Annotations, one JSON object a line."""
        return self.root / "events.jsonl"

    @property
    def summary(self) -> Path:
        """`summary.json` of the analysis."""
        return self.root / "summary.json"

    @property
    def report(self) -> Path:
        """`report.html` of the analysis."""
        return self.root / "report.html"


def slugify(name: str) -> str:
    """Return 1 to 48 characters of [a-z0-9-] that start and end with a letter or digit; "run" where nothing is left.

    It holds no dot and no slash, so it cannot leave a folder. Different names may give one slug: a run folder is told
    apart by its time and token.
    """
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", ascii_only.lower())[: MAX_SLUG + 1].strip("-")[:MAX_SLUG].rstrip("-") or "run"


def new_run_id(utc: datetime, slug: str, token: str) -> str:
    """Return YYYYMMDDTHHMMSSZ-<slug>-<token>; any name is a slug here, as it goes through `slugify`.

    Raises ValueError where `utc` has no time zone or `token` is not 4 lower-case hex digits.
    """
    if utc.tzinfo is None:
        msg = f"{utc.isoformat()} has no time zone; e.g. datetime.now(UTC)"
        raise ValueError(msg)
    if not re.fullmatch("[0-9a-f]{4}", token):
        msg = f'token "{token}" is not 4 hex digits; e.g. 3f2c'
        raise ValueError(msg)
    return f"{utc.astimezone(UTC):%Y%m%dT%H%M%SZ}-{slugify(slug)}-{token}"


def new_token() -> str:
    """Return 4 random hex digits for `new_run_id`."""
    return secrets.token_hex(2)


def worker_name(index: int, incarnation: str) -> str:
    """Return `w<index>-<8 hex>`; the incarnation is new with every process start, so two never share a file name.

    Raises ValueError for a negative index or an incarnation that does not begin with 8 lower-case hex digits.
    """
    name = f"w{index}-{incarnation[:8]}"
    if not WORKER.fullmatch(name):
        msg = f'worker {index} "{incarnation}" is no index with 8 hex digits; e.g. w0-9f8e7d6c'
        raise ValueError(msg)
    return name


def create_run_folder(out: Path, run_id: str) -> RunFolder:
    """Make the folder of a new run, and `out` where it is missing.

    Raises InputError where the run id is none, the folder exists, or it cannot be made.
    """
    return _make(out, run_id, exclusive=True)


def join_run_folder(out: Path, run_id: str) -> RunFolder:
    """Return the folder of a run that the master made, with its sub-folders; makes them on a host that lacks them.

    Raises InputError where the run id is none or the folder cannot be made.
    """
    return _make(out, run_id, exclusive=False)


def _make(out: Path, run_id: str, *, exclusive: bool) -> RunFolder:
    if not RUN_ID.fullmatch(run_id):
        msg = f'"{run_id}" is no run id; e.g. 20260131T120000Z-chat-3f2c'
        raise InputError(msg)
    folder = RunFolder(root=out / run_id)
    try:
        folder.root.mkdir(parents=True, exist_ok=not exclusive)
        for name in _SUBFOLDERS:
            (folder.root / name).mkdir(exist_ok=not exclusive)
    except OSError as error:
        way_out = "start again for a new run id" if error.errno == errno.EEXIST else "give a writable folder with --out"
        msg = f"cannot make {folder.root}: {error.strerror}; {way_out}"
        raise InputError(msg) from error
    return folder
