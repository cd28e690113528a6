"""Know the live sketches of latencies: answers are kept as they end, and counted some dozens at a time.

Counted one by one, an answer costs some ten small numpy calls; 64 together cost a fifth of a millisecond. All of a
second at once would hold up the hub: 2 ms at 1,000 requests/s.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servebench.core.outcomes import CHUNK_KINDS, TOKEN_KIND_CODES
from servebench.core.records import Chunks
from servebench.loadgen.sketch import Sketch
from servebench.workload.model import Objective, limit_key

_IS_TOKEN = np.isin(np.arange(len(CHUNK_KINDS), dtype=np.int8), sorted(TOKEN_KIND_CODES))
"""By code of the kind: a look-up takes a tenth of what a search does."""


MOST_FRESH = 64


class Ended(NamedTuple):
    """An ok answer, monotonic ns; `chunks` None = it had no events, `output_tokens` None = unknown."""

    sent_ns: int
    end_ns: int
    chunks: Chunks | None
    output_tokens: int | None
    measured: bool


class LiveTimes:
    """Sketches of what has ended, and how many measured values lie above the limits of objectives.

    `beyond` and `take` are up to date when asked. Every call comes from the hub's thread; none blocks.
    """

    def __init__(self, objectives: Sequence[Objective] = ()) -> None:
        self._limits = [(o.metric, o.limit, limit_key(o)) for o in objectives if o.quantile is not None]
        self._fresh: list[Ended] = []
        self._beyond: Counter[str] = Counter()
        self._sketches = {name: Sketch() for name in ("ttft", "tpot", "chunk_gap", "e2e")}

    def add(self, ended: Ended) -> None:
        """Take an answer; its arrays must not change any more."""
        self._fresh.append(ended)
        if len(self._fresh) >= MOST_FRESH:
            self._settle()

    @property
    def beyond(self) -> Counter[str]:
        """Number of measured values above the limit of each objective, since the run began."""
        self._settle()
        return self._beyond

    def take(self) -> dict[str, dict[int, int]]:
        """Return the counts of each sketch by its name, and start again from nothing."""
        self._settle()
        return {name: sketch.take() for name, sketch in self._sketches.items()}

    def _settle(self) -> None:
        fresh, self._fresh = self._fresh, []
        if not fresh:
            return
        self._count("e2e", np.array([e.end_ns - e.sent_ns for e in fresh]), _measured(fresh))
        told = [ended for ended in fresh if ended.chunks is not None]
        if told:
            self._count_tokens(told)

    def _count_tokens(self, told: Sequence[Ended]) -> None:
        columns = [ended.chunks for ended in told if ended.chunks is not None]
        kinds = np.frombuffer(b"".join([chunks.kind for chunks in columns]), np.int8)
        owner = np.repeat(np.arange(len(told)), [len(chunks) for chunks in columns])[_IS_TOKEN[kinds]]
        ns = np.frombuffer(b"".join([chunks.ns for chunks in columns]), np.int64)[_IS_TOKEN[kinds]]
        if not len(ns):
            return
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        first_ns, last_ns = ns[begins], ns[np.append(begins[1:], len(ns)) - 1]
        speakers = [told[at] for at in owner[begins].tolist()]
        # With several choices a live gap may span two of them; the recorded metric never does.
        self._sketches["chunk_gap"].add_all(np.diff(ns)[owner[1:] == owner[:-1]])
        self._count("ttft", first_ns - np.array([ended.sent_ns for ended in speakers]), _measured(speakers))
        output_tokens = np.array([ended.output_tokens or 0 for ended in speakers])
        even = (output_tokens >= 2) & (last_ns > first_ns)
        tpot_ns = (last_ns - first_ns)[even] / (output_tokens[even] - 1)
        self._count("tpot", tpot_ns, _measured(speakers)[even])

    def _count(self, name: str, values_ns: NDArray[np.number], measured: NDArray[np.bool_]) -> None:
        self._sketches[name].add_all(values_ns)
        for metric, limit, key in self._limits:
            above = int(np.count_nonzero(values_ns[measured] > limit)) if metric == name else 0
            if above:
                self._beyond[key] += above


def _measured(answers: Sequence[Ended]) -> NDArray[np.bool_]:
    return np.array([ended.measured for ended in answers], np.bool_)
