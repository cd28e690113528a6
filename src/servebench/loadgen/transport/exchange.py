"""Know what one request and its answer amount to, once both are over."""

from dataclasses import dataclass

from servebench.core.records import Answer, SendStamps


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A finished request.

    `reconnects` counts repeats on a fresh connection after a kept one proved stale; `stamps` then keep the original
    send, so `connect_start_ns` is later than `sent_ns`. `conn_reused` is said of the connection that carried the
    answer; None when none came up. `request_bytes` is the size of head and body.
    `redirected_to` is the path at the same target that a redirect named; None without one.
    """

    stamps: SendStamps
    answer: Answer
    reconnects: int
    conn_reused: bool | None
    request_bytes: int
    redirected_to: str | None = None
