"""Know the lines that the master writes about itself while it runs, and read them leniently."""

from typing import Annotated

import msgspec

Count = int | None
Number = float | None


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Live quantiles of one latency over the last 60 s; None = too little data yet."""

    n: int = 0
    p50: Number = None
    p95: Number = None
    max: Number = None


class ClientState(msgspec.Struct, frozen=True, kw_only=True):
    """How the load generator itself is doing: worst worker, last second; `cpu` is a share of one core."""

    hub_lag_ms_p99: Number = None
    cpu: Number = None
    dispatch_lag_ms_p99: Number = None
    read_delay_ms_p99: Number = None


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """What the engines say of themselves, all together; `kv_usage` is a share of 1, `age_s` that of the oldest page."""

    dialect: str = ""
    running: Number = None
    waiting: Number = None
    kv_usage: Number = None
    age_s: Number = None


class Status(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="status"):
    """One second of a run. None = not known yet, which is never shown as 0."""

    state: str = "waiting"
    run_id: str | None = None
    folder: str | None = None
    t_s: Number = None
    duration_s: Number = None
    phase: str | None = None
    phase_index: Count = None
    phase_count: Count = None
    phase_t_s: Number = None
    phase_duration_s: Number = None
    workers: Count = None
    planned: Count = None
    planned_total: Count = None
    sent: Count = None
    answered: Count = None
    ok: Count = None
    errors: dict[str, int] = {}
    inflight: Count = None
    late: Count = None
    shed: Count = None
    lost: Count = None
    planned_per_s: Number = None
    sent_per_s: Number = None
    answered_per_s: Number = None
    out_tokens_per_s: Number = None
    in_tokens_per_s: Number = None
    ttft_ms: Quantiles = Quantiles()
    tpot_ms: Quantiles = Quantiles()
    chunk_gap_ms: Quantiles = Quantiles()
    client: ClientState = ClientState()
    server: ServerState | None = None

    @property
    def failed(self) -> int:
        """Answers that ended in an error, all classes together."""
        return sum(self.errors.values())


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="event"):
    """Something that happened in a run; `text` is for people, `event` names its kind."""

    text: str = ""
    event: str = ""


_Line = Annotated[Status | Event, msgspec.Meta(description="one line of the progress pipe")]
_DECODER: msgspec.json.Decoder[Status | Event] = msgspec.json.Decoder(_Line)


def parse_line(line: bytes) -> Status | Event | None:
    """Return what a line says; None for one that is neither, so that a display fault never ends a run."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class LineBuffer:
    """Turns reads of a pipe into whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line.strip()]
