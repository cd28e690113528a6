"""Know what is said while a run goes on, as plain lines or not at all."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from servebench.cli.figures import DASH, clock, figure
from servebench.cli.status import ClientState, Status

PLAIN_EVERY_S = 10.0
HUB_LAG_LIMIT_MS = 20.0
CPU_LIMIT = 0.85


class Display(Protocol):
    """Shows a run's progress on stderr."""

    def update(self, status: Status) -> None:
        """Take the newest status."""

    def event(self, text: str) -> None:
        """Show something that happened."""

    def tick(self) -> None:
        """Redraw if it is time; called several times a second."""

    def close(self) -> None:
        """Show the final state once and leave the terminal as it was."""


class NoDisplay:
    """Shows nothing."""

    def update(self, status: Status) -> None:
        """Do nothing."""

    def event(self, text: str) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainDisplay:
    """One line every 10 s and one per event: no escapes, no carriage return. `now` gives local time with its zone."""

    def __init__(self, write: Callable[[str], None], now: Callable[[], datetime]) -> None:
        self._write = write
        self._now = now
        self._shown: datetime | None = None
        self._last: Status | None = None
        self._pending = False

    def update(self, status: Status) -> None:
        """Take the newest status; a line follows when the last one is 10 s old or the state or phase changed."""
        before, self._last = self._last, status
        changed = before is None or (before.state, before.phase) != (status.state, status.phase)
        old = self._shown is None or (self._now() - self._shown).total_seconds() >= PLAIN_EVERY_S
        self._pending = True
        if changed or old:
            self._line()

    def event(self, text: str) -> None:
        """Write the event at once."""
        self._write(f"{clock(self._now())} {text}")

    def tick(self) -> None:
        """Do nothing: lines follow the master's own pace."""

    def close(self) -> None:
        """Write the last status unless its line was written."""
        if self._pending:
            self._line()

    def _line(self) -> None:
        if self._last is not None:
            self._shown, self._pending = self._now(), False
            self._write(plain_line(self._last, self._shown))


def plain_line(status: Status, now: datetime) -> str:
    """Return a status as one line of name-value pairs, `-` for what is not known yet."""
    if status.state in {"waiting", "preparing"}:
        return f"{clock(now)} {status.state} workers {_count(status.workers)}"
    done = percent(status.t_s, status.duration_s)
    # Between the end of the last phase and the last answer there is no phase.
    over = status.t_s is not None and status.duration_s is not None and status.t_s >= status.duration_s
    word = status.phase or ("draining" if over else "running")
    where = f"{word} {done}" if status.state == "running" else status.state
    ttft = status.ttft_ms.p95
    return (
        f"{clock(now)} {where} sent {_count(status.sent)}/{_count(status.planned_total)}"
        f" planned {_count(status.planned)} ok {_count(status.ok)} err {status.failed}"
        f" inflight {_count(status.inflight)} late {_count(status.late)}"
        f" ttft_p95 {'-' if ttft is None else f'{ttft:.0f}ms'} client {client_word(status.client)}"
    )


def percent(part: float | None, whole: float | None) -> str:
    """Return the share done, at most 100 %; a dash where either is unknown."""
    if part is None or not whole:
        return "-"
    return f"{min(100, max(0, int(100 * part / whole)))}%"


def client_word(client: ClientState) -> str:
    """Return `ok`, or what makes the load generator itself doubtful, or a dash before its first report."""
    if client == ClientState():
        return "-"
    troubles = []
    if client.hub_lag_ms_p99 is not None and client.hub_lag_ms_p99 > HUB_LAG_LIMIT_MS:
        troubles.append(f"hub_lag {figure(client.hub_lag_ms_p99)}ms")
    if client.cpu is not None and client.cpu > CPU_LIMIT:
        troubles.append(f"cpu {100 * client.cpu:.0f}%")
    return "+".join(troubles) or "ok"


def _count(value: int | None) -> str:
    return DASH if value is None else str(value)
