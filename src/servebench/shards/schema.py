"""Know every column of `requests`: name, Arrow type, unit and meaning; everything else derives from this list.

Time columns are int64 ns of the run clock (0 = planned start). null means "did not happen" or "not known".
"""

from typing import NamedTuple

import pyarrow as pa

from servebench.core.errors import ShardError

SCHEMA_VERSION = "1.0"
"""MAJOR.MINOR: a new nullable column raises MINOR; a rename or new meaning raises MAJOR, which older readers refuse."""

STAMP_TICK_NS = 1024
"""Arrival and read stamps of chunks are rounded to this tick: 2.9 bytes a chunk on disk, 4.2 with exact delays."""

WORD = pa.dictionary(pa.int16(), pa.utf8())
KIND = pa.dictionary(pa.int8(), pa.utf8())


class Column(NamedTuple):
    """One column: its Arrow type, its unit ("" = none) and what it means, null included."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str


COLUMNS: tuple[Column, ...] = (
    Column("run_id", WORD, "", "run that the row belongs to"),
    Column("worker", WORD, "", "worker incarnation that sent it"),
    Column("seq", pa.int64(), "", "number of the planned request; (seq, attempt) is the key of a row"),
    Column("attempt", pa.int32(), "", "0 = first try; each opt-in retry is a row of its own"),
    Column("request_id", pa.utf8(), "", "value of the X-Request-Id header that was sent"),
    Column("session", pa.int64(), "", "conversation; equal to seq for single-turn load"),
    Column("turn", pa.int32(), "", "turn in the conversation, from 0"),
    Column("phase", WORD, "", "phase of the intended time"),
    Column("step", pa.int32(), "", "index of the load level within the phase; null where the phase has no levels"),
    Column("measured", pa.bool_(), "", "false in warm-up phases, which results leave out"),
    Column("prompt_id", pa.int64(), "", "row of the prompt set"),
    Column(
        "planned_input_tokens",
        pa.int32(),
        "tokens",
        "prompt length asked for; null = as long as the prompt is",
    ),
    Column("max_tokens", pa.int32(), "tokens", "limit on the answer that was sent; null = the server's default"),
    Column("intended_ns", pa.int64(), "ns", "when the schedule wanted it sent; null for closed load"),
    Column("dispatched_ns", pa.int64(), "ns", "when the dispatcher handed it over"),
    Column("connect_start_ns", pa.int64(), "ns", "start of connecting; null when a pooled connection was used"),
    Column("connect_end_ns", pa.int64(), "ns", "connection (and TLS) ready; null when a pooled connection was used"),
    Column("sent_ns", pa.int64(), "ns", "just before the first byte was sent; null = never sent"),
    Column("send_end_ns", pa.int64(), "ns", "last byte handed to the kernel"),
    Column("headers_ns", pa.int64(), "ns", "read that completed the final response head"),
    Column("end_ns", pa.int64(), "ns", "read that held the terminal event, else the end of the body or giving up"),
    Column(
        "outcome",
        WORD,
        "",
        "how it ended: ok, http_error, stream_error, malformed, …",
    ),
    Column("error_class", WORD, "", "finer word for the failure; null when ok"),
    Column("error_message", pa.utf8(), "", "at most 500 bytes of what the server or the system said"),
    Column("http_status", pa.int32(), "", "status of the final response"),
    Column("finish_reason", WORD, "", "finish reason of choice 0"),
    Column("late", pa.bool_(), "", "dispatch lag above max(1 ms, 1 % of the mean gap)"),
    Column("streamed", pa.bool_(), "", "false when the answer came as one body; null without a response head"),
    Column("reconnects", pa.int32(), "", "fresh connections after a stale pooled one gave no byte"),
    Column("conn_reused", pa.bool_(), "", "sent on a pooled connection"),
    Column("target", WORD, "", "address it was sent to, without secrets"),
    Column("model", WORD, "", "model named in the answer"),
    Column("input_tokens", pa.int32(), "tokens", "prompt tokens by server usage"),
    Column("output_tokens", pa.int32(), "tokens", "answer tokens, counted as token_source says"),
    Column("cached_tokens", pa.int32(), "tokens", "prompt tokens served from a prefix cache, by server usage"),
    Column("reasoning_tokens", pa.int32(), "tokens", "answer tokens spent on reasoning, by server usage"),
    Column("token_source", WORD, "", "usage (the server said so) or events (one per token event, an estimate)"),
    Column("output_tokens_counted", pa.int32(), "tokens", "answer tokens by the client's own count"),
    Column("counted_source", WORD, "", "tokenizer, o200k or estimate"),
    Column("request_bytes", pa.int64(), "bytes", "head and body sent"),
    Column("response_bytes", pa.int64(), "bytes", "head and body received"),
    Column("retry_after_s", pa.float64(), "s", "Retry-After of the response"),
    Column("accepted", pa.bool_(), "", "the answer passed the acceptance checks; null = not checked"),
    Column("accept_reason", pa.utf8(), "", "why it was not accepted, or why it could not be checked"),
    Column(
        "validated_ns",
        pa.int64(),
        "ns",
        "end_ns plus the time that the acceptance checks took, without the wait for them; null = not checked",
    ),
    Column("chunk_ns", pa.list_(pa.int64()), "ns", "per event: stamp of the completing read, ticks of 1024 ns"),
    Column(
        "chunk_delay_ns",
        pa.list_(pa.int32()),
        "ns",
        "per event: how late the client read it, ticks of 1024 ns; null = no kernel stamp",
    ),
    Column(
        "chunk_kind",
        pa.list_(KIND),
        "",
        "per event: content, reasoning, tool, role, finish, usage, …",
    ),
    Column("chunk_tokens", pa.list_(pa.int32()), "tokens", "per event: tokens it carried; null element = unknown"),
    Column("chunk_read", pa.list_(pa.int32()), "", "per event: number of the read, from 0"),
    Column("chunk_choice", pa.list_(pa.int8()), "", "per event: index of the choice"),
)

COLUMN_NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)

REQUESTS_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(column.name, column.type, metadata={"unit": column.unit, "description": column.meaning})
        for column in COLUMNS
    ]
)


def version_numbers(version: str) -> tuple[int, int]:
    """Return MAJOR and MINOR. Raises ShardError where the text is no version."""
    major, dot, minor = version.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        msg = f'has schema version "{version}", which is none; e.g. {SCHEMA_VERSION}'
        raise ShardError(msg)
    return int(major), int(minor)
