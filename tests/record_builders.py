"""Know how to make request records, and what row each must become, worked out without the product."""

from array import array
from collections.abc import Sequence
from typing import Any

from servebench.core.outcomes import Outcome, TokenSource
from servebench.core.records import Answer, Ask, Chunks, RequestRecord, SendStamps
from servebench.shards.parts import PartIdentity

RUN_ID = "20260131T120000Z-chat-3f2c"
WORKER = "w0-9f8e7d6c"
EPOCH_NS = 5_000_000_000_000

# The order of kinds is part of the schema, so it is written out here a second time.
KINDS = ("content", "reasoning", "tool", "refusal", "role", "finish", "usage", "error", "done", "other")

INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63) + 1, 2**63)


def identity(run_id: str = RUN_ID, worker: str = WORKER) -> PartIdentity:
    return PartIdentity(
        run_id=run_id,
        worker=worker,
        epoch_monotonic_ns=EPOCH_NS,
        epoch_unix_ns=1_769_860_800_000_000_000,
        boot_id="b-1",
    )


def chunks(ns: Sequence[int], **given: Sequence[int]) -> Chunks:
    """Return chunk arrays; columns that are not given hold a content event with one token per read."""
    count = len(ns)
    return Chunks(
        ns=array("q", ns),
        delay_ns=array("i", given.get("delay_ns", [0] * count)),
        kind=array("b", given.get("kind", [0] * count)),
        tokens=array("i", given.get("tokens", [1] * count)),
        read=array("i", given.get("read", range(count))),
        choice=array("b", given.get("choice", [0] * count)),
    )


def ask(seq: int = 0, **given: object) -> Ask:
    fields: dict[str, Any] = {
        "seq": seq,
        "phase": "steady",
        "step": None,
        "measured": True,
        "intended_ns": 1_000 * seq,
        "prompt_id": 3,
        "input_tokens": None,
        "max_tokens": 64,
        "session": seq,
        "turn": 0,
    }
    return Ask(**(fields | given))


def answer(**given: object) -> Answer:
    fields: dict[str, Any] = {
        "outcome": Outcome.OK,
        "http_status": 200,
        "headers_ns": EPOCH_NS + 400,
        "end_ns": EPOCH_NS + 9_000,
        "finish_reason": "stop",
        "streamed": True,
        "model": "tiny",
        "input_tokens": 20,
        "output_tokens": 2,
        "token_source": TokenSource.USAGE,
        "response_bytes": 700,
        "chunks": chunks([EPOCH_NS + 1_000, EPOCH_NS + 9_000]),
    }
    return Answer(**(fields | given))


def record(seq: int = 0, **given: object) -> RequestRecord:
    fields: dict[str, Any] = {
        "ask": ask(seq),
        "attempt": 0,
        "request_id": f"3f2c0000-{seq}-0",
        "stamps": SendStamps(dispatched_ns=EPOCH_NS + 100, sent_ns=EPOCH_NS + 200, send_end_ns=EPOCH_NS + 300),
        "answer": answer(),
        "late": False,
        "target": "http://127.0.0.1:8000",
        "reconnects": 0,
        "conn_reused": True,
        "request_bytes": 500,
    }
    return RequestRecord(**(fields | given))


def ticks(ns: int) -> int:
    """Return the nearest multiple of 1,024, halves up."""
    return (ns + 512) // 1024 * 1024


def expected_row(record: RequestRecord, *, run_id: str = RUN_ID, worker: str = WORKER) -> dict[str, Any]:
    """Return the row that a record must become, in plain Python."""
    asked, stamps, given = record.ask, record.stamps, record.answer
    return {
        "run_id": run_id,
        "worker": worker,
        "seq": asked.seq,
        "attempt": record.attempt,
        "request_id": record.request_id,
        "session": asked.session,
        "turn": asked.turn,
        "phase": asked.phase,
        "step": asked.step,
        "measured": asked.measured,
        "prompt_id": asked.prompt_id,
        "planned_input_tokens": asked.input_tokens,
        "max_tokens": asked.max_tokens,
        "intended_ns": asked.intended_ns,
        "dispatched_ns": _run_clock(stamps.dispatched_ns),
        "connect_start_ns": _run_clock(stamps.connect_start_ns),
        "connect_end_ns": _run_clock(stamps.connect_end_ns),
        "sent_ns": _run_clock(stamps.sent_ns),
        "send_end_ns": _run_clock(stamps.send_end_ns),
        "headers_ns": _run_clock(given.headers_ns),
        "end_ns": _run_clock(given.end_ns),
        "outcome": given.outcome.value,
        "error_class": given.error_class,
        "error_message": _at_most_500_bytes(given.error_message),
        "http_status": given.http_status,
        "finish_reason": _utf8(given.finish_reason),
        "late": record.late,
        "streamed": given.streamed,
        "reconnects": record.reconnects,
        "conn_reused": record.conn_reused,
        "target": record.target,
        "model": _utf8(given.model),
        "input_tokens": _int32(given.input_tokens),
        "output_tokens": _int32(given.output_tokens),
        "cached_tokens": _int32(given.cached_tokens),
        "reasoning_tokens": _int32(given.reasoning_tokens),
        "token_source": None if given.token_source is None else given.token_source.value,
        "output_tokens_counted": _int32(record.output_tokens_counted),
        "counted_source": None if record.counted_source is None else record.counted_source.value,
        "request_bytes": record.request_bytes,
        "response_bytes": given.response_bytes,
        "retry_after_s": given.retry_after_s,
        "accepted": record.accepted,
        "accept_reason": _utf8(record.accept_reason),
        "validated_ns": _run_clock(record.validated_ns),
        **_expected_chunks(given.chunks),
    }


def _expected_chunks(events: Chunks | None) -> dict[str, list[Any] | None]:
    if events is None:
        return dict.fromkeys(("chunk_ns", "chunk_delay_ns", "chunk_kind", "chunk_tokens", "chunk_read", "chunk_choice"))
    stamps = [ns - EPOCH_NS for ns in events.ns]
    return {
        "chunk_ns": [ticks(ns) for ns in stamps],
        "chunk_delay_ns": [
            None if delay < 0 else min(ticks(ns + delay) - ticks(ns), 2**31 - 1024)
            for ns, delay in zip(stamps, events.delay_ns, strict=True)
        ],
        "chunk_kind": [KINDS[code] for code in events.kind],
        "chunk_tokens": [None if count < 0 else count for count in events.tokens],
        "chunk_read": list(events.read),
        "chunk_choice": list(events.choice),
    }


def _run_clock(ns: int | None) -> int | None:
    return None if ns is None else ns - EPOCH_NS


def _int32(value: int | None) -> int | None:
    return value if value is not None and value in INT32 else None


def _utf8(text: str | None) -> str | None:
    return None if text is None else "".join("?" if "\ud800" <= char <= "\udfff" else char for char in text)


def _at_most_500_bytes(text: str | None) -> str | None:
    kept = _utf8(text)
    while kept is not None and len(kept.encode()) > 500:
        kept = kept[:-1]
    return kept
