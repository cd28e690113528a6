"""Know the shape in which formulas see requests: flat numpy columns, NaN where something did not happen.

float64 holds integer nanoseconds exactly below 2**53, that is for 104 days of run clock.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.outcomes import CHUNK_KINDS, TOKEN_KIND_CODES, Outcome

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FAILED_OUTCOMES: frozenset[Outcome] = frozenset(
    {
        Outcome.HTTP_ERROR,
        Outcome.STREAM_ERROR,
        Outcome.MALFORMED,
        Outcome.TRUNCATED,
        Outcome.CONNECT_ERROR,
        Outcome.TIMEOUT,
    }
)
"""Outcomes that count as errors; cancelled, shed and skipped are neither success nor error."""


class Window(NamedTuple):
    """Half-open stretch [start_ns, end_ns) of the run clock."""

    start_ns: float
    end_ns: float

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkColumns:
    """Events of all responses laid end to end; those of request i are [offsets[i], offsets[i + 1]).

    `ns` float64 run clock. `kind` index into CHUNK_KINDS. `tokens` float64, NaN = unknown.
    """

    offsets: IntArray
    ns: FloatArray
    kind: npt.NDArray[np.int8]
    choice: npt.NDArray[np.int8]
    read: npt.NDArray[np.int32]
    tokens: FloatArray

    @classmethod
    def none_for(cls, requests: int) -> "ChunkColumns":
        """Return columns in which none of the requests has an event."""
        return cls(
            offsets=np.zeros(requests + 1, np.int64),
            ns=np.empty(0),
            kind=np.empty(0, np.int8),
            choice=np.empty(0, np.int8),
            read=np.empty(0, np.int32),
            tokens=np.empty(0),
        )

    def request(self) -> IntArray:
        """Return the index of the request that each event belongs to, shape (events,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def is_token(self) -> BoolArray:
        """Return which events carry generated text, shape (events,)."""
        carries = np.array([code in TOKEN_KIND_CODES for code in range(len(CHUNK_KINDS))])
        return carries[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestColumns:
    """Requests as columns of shape (n,): times float64 ns of the run clock, token counts float64; NaN = undefined.

    `ok` and `failed` exclude each other; a row with neither was cancelled, shed or skipped.
    """

    intended_ns: FloatArray
    dispatched_ns: FloatArray
    sent_ns: FloatArray
    end_ns: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    ok: BoolArray
    failed: BoolArray
    chunks: ChunkColumns

    def __len__(self) -> int:
        return len(self.sent_ns)


def take(c: RequestColumns, rows: BoolArray) -> RequestColumns:
    """Return the requests of a mask of shape (n,), with their events."""
    events = rows[c.chunks.request()]
    lengths = np.diff(c.chunks.offsets)[rows]
    return RequestColumns(
        intended_ns=c.intended_ns[rows],
        dispatched_ns=c.dispatched_ns[rows],
        sent_ns=c.sent_ns[rows],
        end_ns=c.end_ns[rows],
        input_tokens=c.input_tokens[rows],
        output_tokens=c.output_tokens[rows],
        ok=c.ok[rows],
        failed=c.failed[rows],
        chunks=ChunkColumns(
            offsets=np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))),
            ns=c.chunks.ns[events],
            kind=c.chunks.kind[events],
            choice=c.chunks.choice[events],
            read=c.chunks.read[events],
            tokens=c.chunks.tokens[events],
        ),
    )
