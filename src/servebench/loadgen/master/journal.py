"""Know `events.jsonl`: what happened in a run beside requests, one JSON object a line."""

import datetime
from pathlib import Path
from typing import Any

import msgspec


class Journal:
    """Appends events; a line is whole or absent. Called by the master's greenlets, a few times a minute."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def add(
        self,
        kind: str,
        text: str,
        *,
        t_ns: int | None,
        worker: str | None = None,
        phase: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Write one event; `t_ns` is on the run clock, None before the run is armed."""
        line = {
            "t_ns": t_ns,
            "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "kind": kind,
            "worker": worker,
            "phase": phase,
            "text": text,
            "data": data,
        }
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """End the file."""
        self._file.close()
