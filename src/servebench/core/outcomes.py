"""Know the closed sets of words that a request row uses (CONTRACT: outcomes and chunks)."""

from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended; exactly one per row."""

    OK = "ok"
    HTTP_ERROR = "http_error"
    STREAM_ERROR = "stream_error"
    MALFORMED = "malformed"
    TRUNCATED = "truncated"
    CONNECT_ERROR = "connect_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SHED = "shed"
    SKIPPED = "skipped"


class ChunkKind(StrEnum):
    """What one event of the stream carried. Token events are the first four."""

    CONTENT = "content"
    REASONING = "reasoning"
    TOOL = "tool"
    REFUSAL = "refusal"
    ROLE = "role"
    FINISH = "finish"
    USAGE = "usage"
    ERROR = "error"
    DONE = "done"
    OTHER = "other"


CHUNK_KINDS: tuple[ChunkKind, ...] = tuple(ChunkKind)
"""Position = the code stored in `chunk_kind`; append only, the order is part of the schema."""

TOKEN_KIND_CODES: frozenset[int] = frozenset(range(4))
"""Codes of the kinds that carry generated text (content, reasoning, tool, refusal)."""


class TokenSource(StrEnum):
    """Where `output_tokens` comes from; sources are never mixed in one number."""

    USAGE = "usage"
    EVENTS = "events"


class CountedSource(StrEnum):
    """Who counted `output_tokens_counted`: a tokenizer file of the user's, the vocabulary o200k, an estimate."""

    TOKENIZER = "tokenizer"
    O200K = "o200k"
    ESTIMATE = "estimate"


class Status(StrEnum):
    """Whether a run's numbers may be used."""

    VALID = "valid"
    INVALID = "invalid"
    INTERRUPTED = "interrupted"


class ExitCode:
    """Exit codes of every command."""

    OK = 0
    MISSED = 1
    BAD_INPUT = 2
    INVALID = 3
    HARNESS = 4
    INTERRUPTED = 130
