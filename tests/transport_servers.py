"""Know how transport tests start servers and read what those logged."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CASES = Path(__file__).resolve().parent / "servers" / "cases"


class Replay:
    """A replay server; its log is whole once the `with` block of `replay` is left."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self._log = log

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the log's records of one kind, in order of writing."""
        records = [json.loads(line) for line in self._log.read_text("utf-8").splitlines()]
        return [record for record in records if record["ev"] == kind]


@contextlib.contextmanager
def replay(files: Sequence[Path], folder: Path, *options: str) -> Iterator[Replay]:
    """Run the replay server for these files; its log lies in `folder`."""
    log = folder / "server.jsonl"
    log.touch()
    command = [sys.executable, "-m", "tests.servers.replay", *map(str, files), "--log", str(log), *options]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:  # leaving it closes stdin and waits
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        yield Replay(port, log)


def case(name: str) -> Path:
    """Return the response file of a case."""
    return CASES / f"{name}.http"


def write_case(folder: Path, pieces: Sequence[tuple[bytes, str]], ending: str = "") -> Path:
    """Write a response as (bytes, "DELAY_MS LABEL") pieces and return its file; `ending` is a last line of the plan."""
    path = folder / "made.http"
    path.write_bytes(b"".join(data for data, _ in pieces))
    plan = [f"{len(data)} {step}" for data, step in pieces]
    path.with_suffix(".seg").write_text("\n".join([*plan, ending]) + "\n", "utf-8")
    return path
