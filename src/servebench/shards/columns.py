"""Know how finished requests wait in memory between two parts: flat arrays that become Arrow without a Python loop.

A request greenlet calls `add`; the flush thread calls `to_table` on a buffer that nobody fills any more. Per chunk,
`add` copies memory and creates no Python object, and `to_table` runs numpy and Arrow kernels only: whatever holds the
GIL there delays every stream that is open at that moment.
"""

import math
from array import array
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from servebench.core.outcomes import CHUNK_KINDS
from servebench.core.records import RequestRecord
from servebench.shards.arrow import Column, Numbers, TextBuffer, encodable, fixed_column, list_column, word_column
from servebench.shards.chunk_buffer import ChunkBuffer, check_chunks
from servebench.shards.schema import KIND, REQUESTS_SCHEMA, STAMP_TICK_NS, WORD

MAX_ERROR_MESSAGE_BYTES = 500
MAX_ACCEPT_REASON_BYTES = 200
MAX_ROWS = 32_767
"""Rows that one buffer takes: words are int16 codes, and a server may name another model in every row."""

MAX_DELAY_NS = (1 << 31) - STAMP_TICK_NS
"""Largest multiple of the tick that an int32 holds, 2.1 s."""

_NULL = -(1 << 63)
"""What a cell holds for None until numpy turns it into Arrow validity; no stamp, count or seq can be this."""

_STAMPS = (
    "dispatched_ns",
    "connect_start_ns",
    "connect_end_ns",
    "sent_ns",
    "send_end_ns",
    "headers_ns",
    "end_ns",
    "validated_ns",
)
_NUMBERS = (
    "seq",
    "attempt",
    "session",
    "turn",
    "step",
    "measured",
    "prompt_id",
    "planned_input_tokens",
    "max_tokens",
    "intended_ns",
    *_STAMPS,
    "http_status",
    "late",
    "streamed",
    "reconnects",
    "conn_reused",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "output_tokens_counted",
    "accepted",
    "request_bytes",
    "response_bytes",
)
_WORDS = ("phase", "outcome", "error_class", "finish_reason", "target", "model", "token_source", "counted_source")


class PartBuffer:
    """One part's worth of finished requests; at most MAX_ROWS."""

    __slots__ = (
        "_chunks",
        "_messages",
        "_no_head",
        "_numbers",
        "_offsets",
        "_reasons",
        "_request_ids",
        "_retry_after",
        "_vocabulary",
        "_words",
    )

    def __init__(self) -> None:
        self._numbers = array("q")
        self._words = array("h")
        self._vocabulary: tuple[dict[str, int], ...] = tuple({} for _ in _WORDS)
        self._request_ids = TextBuffer()
        self._messages = TextBuffer()
        self._reasons = TextBuffer()
        self._retry_after = array("d")
        self._chunks = ChunkBuffer()
        self._offsets = array("i", [0])
        self._no_head = array("b")

    def __len__(self) -> int:
        return len(self._no_head)

    @property
    def chunk_count(self) -> int:
        """Events of all rows together."""
        return len(self._chunks)

    def add(self, record: RequestRecord) -> None:
        """Append one row; the record's arrays are copied.

        What a column cannot hold becomes null or shorter, because a server's absurd answer must not cost the part:
        integers outside the column's type are null, error messages end after 500 bytes and reasons after 200, lone
        surrogates become "?". Raises ValueError, and adds nothing, for chunk arrays of different lengths or types or a
        row above MAX_ROWS.
        """
        chunks = record.answer.chunks
        if chunks is not None:
            check_chunks(chunks)
        if len(self) >= MAX_ROWS:
            msg = f"a part buffer takes {MAX_ROWS} rows"
            raise ValueError(msg)
        # Nothing raises from here on, so a row is added whole or not at all.
        self._numbers.extend(_number_cells(_numbers_of(record)))
        self._words.extend(map(_code, _words_of(record), self._vocabulary))
        self._request_ids.append(record.request_id)
        self._messages.append(record.answer.error_message, MAX_ERROR_MESSAGE_BYTES)
        self._reasons.append(record.accept_reason, MAX_ACCEPT_REASON_BYTES)
        retry_after_s = record.answer.retry_after_s
        self._retry_after.append(math.nan if retry_after_s is None else retry_after_s)
        self._no_head.append(chunks is None)
        if chunks is not None:
            self._chunks.add(chunks)
        self._offsets.append(len(self._chunks))

    def to_table(self, *, run_id: str, worker: str, epoch_monotonic_ns: int) -> pa.Table:
        """Return the rows in order of `add`, with exactly REQUESTS_SCHEMA.

        Stamps become run clock (minus `epoch_monotonic_ns`; `intended_ns` is that already). `chunk_ns` is rounded to
        the nearest multiple of STAMP_TICK_NS, halves up, and may so lie half a tick past the unrounded `end_ns`.
        `chunk_ns + chunk_delay_ns`, the client's own read stamp, is rounded alike. No other column is rounded.
        The buffer must not be filled any more: Arrow reads its memory.
        """
        retry_after_s = np.asarray(self._retry_after)
        columns = {
            "run_id": self._constant(run_id),
            "worker": self._constant(worker),
            "request_id": self._request_ids.column(),
            "error_message": self._messages.column(),
            "accept_reason": self._reasons.column(),
            "retry_after_s": fixed_column(retry_after_s, pa.float64(), np.isnan(retry_after_s)),
            **self._number_columns(epoch_monotonic_ns),
            **self._word_columns(),
            **self._chunk_columns(epoch_monotonic_ns),
        }
        rows = len(self)
        return pa.Table.from_arrays(
            [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in REQUESTS_SCHEMA],
            schema=REQUESTS_SCHEMA,
        )

    def _constant(self, word: str) -> Column:
        return word_column(np.zeros(len(self), np.int16), [word], WORD)

    def _number_columns(self, epoch_ns: int) -> dict[str, Column]:
        cells = np.asarray(self._numbers).reshape(len(self), len(_NUMBERS))
        columns = {}
        for index, name in enumerate(_NUMBERS):
            shift_ns = epoch_ns if name in _STAMPS else 0
            columns[name] = _number_column(cells[:, index], REQUESTS_SCHEMA.field(name).type, shift_ns)
        return columns

    def _word_columns(self) -> dict[str, Column]:
        codes = np.asarray(self._words).reshape(len(self), len(_WORDS))
        return {
            name: word_column(codes[:, index], tuple(vocabulary), WORD)
            for index, (name, vocabulary) in enumerate(zip(_WORDS, self._vocabulary, strict=True))
        }

    def _chunk_columns(self, epoch_ns: int) -> dict[str, Column]:
        chunks = self._chunks.columns()
        arrived_ns = chunks.ns - epoch_ns
        stamps_ns = _ticks(arrived_ns)
        delays_ns = chunks.delay_ns
        rounded_ns = np.minimum(_ticks(arrived_ns + delays_ns) - stamps_ns, MAX_DELAY_NS)
        values = {
            "chunk_ns": fixed_column(stamps_ns, pa.int64()),
            "chunk_delay_ns": fixed_column(rounded_ns.astype(np.int32), pa.int32(), delays_ns < 0),
            "chunk_kind": word_column(chunks.kind, CHUNK_KINDS, KIND),
            "chunk_tokens": fixed_column(chunks.tokens, pa.int32(), chunks.tokens < 0),
            "chunk_read": fixed_column(chunks.read, pa.int32()),
            "chunk_choice": fixed_column(chunks.choice, pa.int8()),
        }
        no_head = np.asarray(self._no_head).astype(np.bool_)
        return {
            name: list_column(self._offsets, column, REQUESTS_SCHEMA.field(name).type, no_head)
            for name, column in values.items()
        }


def _numbers_of(record: RequestRecord) -> tuple[int | None, ...]:
    """Return the cells of _NUMBERS in that order."""
    ask, stamps, answer = record.ask, record.stamps, record.answer
    return (
        ask.seq,
        record.attempt,
        ask.session,
        ask.turn,
        ask.step,
        ask.measured,
        ask.prompt_id,
        ask.input_tokens,
        ask.max_tokens,
        ask.intended_ns,
        stamps.dispatched_ns,
        stamps.connect_start_ns,
        stamps.connect_end_ns,
        stamps.sent_ns,
        stamps.send_end_ns,
        answer.headers_ns,
        answer.end_ns,
        record.validated_ns,
        answer.http_status,
        record.late,
        answer.streamed,
        record.reconnects,
        record.conn_reused,
        answer.input_tokens,
        answer.output_tokens,
        answer.cached_tokens,
        answer.reasoning_tokens,
        record.output_tokens_counted,
        record.accepted,
        record.request_bytes,
        answer.response_bytes,
    )


def _words_of(record: RequestRecord) -> tuple[str | None, ...]:
    """Return the cells of _WORDS in that order."""
    answer = record.answer
    return (
        record.ask.phase,
        answer.outcome,
        answer.error_class,
        answer.finish_reason,
        record.target,
        answer.model,
        answer.token_source,
        record.counted_source,
    )


def _code(word: str | None, codes: dict[str, int]) -> int:
    """Return the number of a word, a new one where it is new; -1 for None."""
    if word is None:
        return -1
    known = codes.get(word)
    return codes.setdefault(encodable(word), len(codes)) if known is None else known


def _number_cells(values: Iterable[int | None]) -> "array[int]":
    cells = [_NULL if value is None else value for value in values]
    try:
        return array("q", cells)
    except OverflowError:
        return array("q", [cell if -(1 << 63) <= cell < 1 << 63 else _NULL for cell in cells])


def _ticks(stamps_ns: Numbers) -> Numbers:
    """Round to the nearest tick, halves up; a power of two, so that a mask does it."""
    return (stamps_ns + STAMP_TICK_NS // 2) & -STAMP_TICK_NS


def _number_column(values: Numbers, kind: pa.DataType, shift_ns: int) -> Column:
    """Return an integer or boolean column; null where the cell is null or the type cannot hold it."""
    null = values == _NULL
    if pa.types.is_boolean(kind):
        return fixed_column(values, kind, null)
    shifted = np.where(null, 0, values - shift_ns)
    narrow = shifted.astype(np.int32 if kind == pa.int32() else np.int64)
    return fixed_column(narrow, kind, null | (narrow != shifted))
