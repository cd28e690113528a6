"""Know the shape in which formulas see requests: flat numpy columns, NaN where something did not happen.

float64 holds integer nanoseconds exactly below 2**53, that is for 104 days of run clock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from servebench.core.outcomes import CHUNK_KINDS, TOKEN_KIND_CODES, ChunkKind, Outcome

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

_NO_CHOICE = (ChunkKind.USAGE, ChunkKind.ERROR, ChunkKind.DONE, ChunkKind.OTHER)
CARRIES_TOKEN: BoolArray = np.array([code in TOKEN_KIND_CODES for code in range(len(CHUNK_KINDS))])
"""Which kinds carry generated text, by code."""
CARRIES_CHOICE: BoolArray = np.array([kind not in _NO_CHOICE for kind in CHUNK_KINDS])
"""Which kinds stand in a `choices` list, by code: those with text, the role prelude and the finish reason."""


class Window(NamedTuple):
    """Half-open stretch [start_ns, end_ns) of the run clock."""

    start_ns: float
    end_ns: float

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


def same_for_all(value: np.generic, size: int) -> npt.NDArray[Any]:
    """Return a column of `size` times one value."""
    return np.broadcast_to(value, size)


def _is_broadcast(column: npt.NDArray[Any]) -> bool:
    return column.strides == (0,)


def distinct(ordered: IntArray) -> IntArray:
    """Return each value of an ascending array once."""
    found: IntArray = ordered[np.append(True, np.diff(ordered) != 0)[: len(ordered)]]
    return found


def row_blocks(offsets: IntArray, events: int) -> Iterator[tuple[int, int]]:
    """Yield requests as [first, last) in order, with about so many events each; `offsets` as in `ChunkColumns`."""
    marks = np.searchsorted(offsets, np.arange(events, int(offsets[-1]), events))
    cuts = np.unique(np.concatenate((np.zeros(1, np.int64), marks, np.array([len(offsets) - 1]))))
    yield from pairwise(cuts.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkColumns:
    """Events of all responses laid end to end; those of request i are [offsets[i], offsets[i + 1]).

    `ns` float64 run clock. `kind` index into CHUNK_KINDS. `tokens` float64, NaN = unknown. A column that is the same
    for all events may be one value that is broadcast (`same_for_all`), which takes no memory and is seen at once.
    """

    offsets: IntArray
    ns: FloatArray
    kind: npt.NDArray[np.int8]
    choice: npt.NDArray[np.int8]
    read: npt.NDArray[np.int32]
    tokens: FloatArray

    def __len__(self) -> int:
        return len(self.ns)

    def request(self) -> IntArray:
        """Return the index of the request that each event belongs to, shape (events,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def rows(self, first: int, last: int) -> "ChunkColumns":
        """Return the events of the requests [first, last); nothing is copied but the offsets."""
        start, stop = self.offsets[first], self.offsets[last]
        own = {f.name: getattr(self, f.name)[start:stop] for f in fields(self) if f.name != "offsets"}
        return ChunkColumns(offsets=self.offsets[first : last + 1] - start, **own)

    def one_choice(self) -> bool:
        """Return whether all events are of one choice."""
        return _is_broadcast(self.choice) or not (self.choice != self.choice[:1]).any()

    def counts_no_tokens(self) -> bool:
        """Return whether no event says how many tokens it carried."""
        return bool(np.isnan(self.tokens[:1] if _is_broadcast(self.tokens) else self.tokens).all())

    def is_token(self) -> BoolArray:
        """Return which events carry generated text, shape (events,)."""
        return CARRIES_TOKEN[self.kind]

    def is_choice(self) -> BoolArray:
        """Return which events stand in a `choices` list, shape (events,)."""
        return CARRIES_CHOICE[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """What the events of each response come to, columns of shape (n,), so that the events need not be kept.

    Times float64 ns, NaN = no such event. `first_choice_ns` and `last_choice_ns` also count role prelude and finish.
    `closing_ns`: the first usage event, else [DONE].
    `first_tokens`: tokens of the first token event, NaN = unknown. `coalesced`: token events that shared a read with
    another. `stalls`: gaps of at least STALL_NS, `stall_ns` their sum. `on_time`: tokens that came no later than a
    reader of READING_TOKENS_PER_S wanted them, out of `tokens`; all 0 where there is no token event.
    """

    first_token_ns: FloatArray
    first_answer_ns: FloatArray
    last_token_ns: FloatArray
    first_choice_ns: FloatArray
    last_choice_ns: FloatArray
    closing_ns: FloatArray
    first_tokens: FloatArray
    token_events: FloatArray
    coalesced: FloatArray
    longest_gap_ns: FloatArray
    stalls: FloatArray
    stall_ns: FloatArray
    on_time: FloatArray
    tokens: FloatArray

    @classmethod
    def none_for(cls, n: int) -> "EventFacts":
        """Return the facts of n requests without any event."""
        counts = {"token_events", "coalesced", "stalls", "stall_ns", "on_time", "tokens"}
        return cls(**{f.name: np.full(n, 0.0 if f.name in counts else np.nan) for f in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestColumns:
    """Requests as columns of shape (n,): times float64 ns of the run clock, token counts float64; NaN = undefined.

    `ok` and `failed` exclude each other; a row with neither was cancelled, shed or skipped. `replaced`: a later attempt
    of the same request followed; `first_sent_ns` is when its first attempt was sent. `unchecked`: something was asked
    of the answer and could not be checked. `good` 1.0 = accepted and within the objectives, 0.0 = not, NaN = no
    objective, neither ok nor failed, or unchecked.
    """

    intended_ns: FloatArray
    dispatched_ns: FloatArray
    connect_start_ns: FloatArray
    connect_end_ns: FloatArray
    sent_ns: FloatArray
    first_sent_ns: FloatArray
    headers_ns: FloatArray
    end_ns: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    cached_tokens: FloatArray
    reasoning_tokens: FloatArray
    accepted: FloatArray
    validated_ns: FloatArray
    good: FloatArray
    ok: BoolArray
    failed: BoolArray
    replaced: BoolArray
    unchecked: BoolArray
    events: EventFacts

    @classmethod
    def blank(cls, n: int) -> "RequestColumns":
        """Return n requests of which nothing is known; `dataclasses.replace` fills in the rest."""
        flags = {name: np.zeros(n, bool) for name in ("ok", "failed", "replaced", "unchecked")}
        values = {f.name: np.full(n, np.nan) for f in fields(cls) if f.name not in flags and f.name != "events"}
        return cls(**values, **flags, events=EventFacts.none_for(n))

    def __len__(self) -> int:
        return len(self.sent_ns)


_Columns = TypeVar("_Columns", EventFacts, RequestColumns)


def _each(columns: _Columns, rows: BoolArray | IntArray) -> dict[str, Any]:
    return {f.name: getattr(columns, f.name)[rows] for f in fields(columns) if f.name != "events"}


def take(c: RequestColumns, rows: BoolArray | IntArray) -> RequestColumns:
    """Return the requests of a mask of shape (n,) or of indices, in that order."""
    return replace(c, **_each(c, rows), events=EventFacts(**_each(c.events, rows)))


def join_facts(parts: Sequence[EventFacts]) -> EventFacts:
    """Return the facts of all parts, one after the other."""
    if not parts:
        return EventFacts.none_for(0)
    return EventFacts(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(EventFacts)})
