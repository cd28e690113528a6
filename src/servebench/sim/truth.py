"""Know what was really sent and when: the simulator's truth log, one JSON line per request.

Times are CLOCK_MONOTONIC nanoseconds, which is Python's `time.monotonic_ns()` on Linux, so every process of this
machine can compare its own with them. A send time is taken just before the write: a client can never have seen the
bytes earlier.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from servebench.core.errors import ShardError


class TruthRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the server knows of one request. None = did not happen, or not known.

    `request_id` is the X-Request-Id as received. `t_first_byte_ns`, `t_received_ns`: first and last byte of the
    request. `t_head_ns`: response head. `t_role_ns`: role event. `t_send_ns`: each token event. `t_done_ns`: the event
    that ends a complete answer, None when it was cut or aborted. `aborted`: the client left, or the server was stopped,
    before that.
    """

    seq: int
    request_id: str | None
    path: str
    stream: bool | None
    status: int | None
    t_first_byte_ns: int
    t_received_ns: int
    t_head_ns: int | None
    t_role_ns: int | None
    t_send_ns: list[int]
    t_done_ns: int | None
    prompt_tokens: int | None
    completion_tokens: int
    cached_tokens: int | None
    finish_reason: str | None
    fault: str | None
    aborted: bool


@dataclass(slots=True, kw_only=True)
class TruthDraft:
    """A record in the making, filled by whoever answers the request."""

    seq: int
    request_id: str | None
    path: str
    t_first_byte_ns: int
    t_received_ns: int
    stream: bool | None = None
    status: int | None = None
    t_head_ns: int | None = None
    t_role_ns: int | None = None
    t_send_ns: array[int] = field(default_factory=lambda: array("q"))
    t_done_ns: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int = 0
    cached_tokens: int | None = None
    finish_reason: str | None = None
    fault: str | None = None
    aborted: bool = False

    def record(self) -> TruthRecord:
        """Return the finished record."""
        values = {name: getattr(self, name) for name in TruthRecord.__struct_fields__}
        return TruthRecord(**{**values, "t_send_ns": self.t_send_ns.tolist()})


class TruthLog:
    """Collects records in memory; `flush` appends them to the file."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []

    def add(self, draft: TruthDraft) -> None:
        """Keep the record of an ended request."""
        self._lines.append(self._encoder.encode(draft.record()) + b"\n")

    def flush(self) -> None:
        """Write what was collected; after it a reader sees whole lines."""
        if self._lines:
            self._file.write(b"".join(self._lines))
            self._file.flush()
            self._lines.clear()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()


def read_truth(path: Path) -> list[TruthRecord]:
    """Return all records of a truth log, in the order in which the requests ended.

    Raises ShardError for a line that is no record; a last line without line end (still being written) is left out.
    """
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    try:
        return msgspec.json.Decoder(TruthRecord).decode_lines(whole)
    except msgspec.DecodeError as error:
        raise ShardError(f"{path}: not a truth log: {error}") from error
