"""Know what a worker says about itself once a second: totals, and sketches of what has just ended."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from servebench.core.outcomes import CHUNK_KINDS, TOKEN_KIND_CODES, Outcome
from servebench.core.records import Chunks, RequestRecord
from servebench.loadgen.messages import Totals
from servebench.loadgen.sketch import Sketch
from servebench.metrics.columns import FAILED_OUTCOMES
from servebench.workload.model import Objective, limit_key

_IS_TOKEN = np.isin(np.arange(len(CHUNK_KINDS), dtype=np.int8), sorted(TOKEN_KIND_CODES))
"""By code of the kind: a look-up takes a tenth of what a search does."""


class LiveCounters:
    """Counts of one run on one worker. Every call comes from a request greenlet or the status greenlet; none blocks.

    `objectives`: measured answers above their limits are counted, of those metrics that are known here.
    """

    def __init__(self, objectives: Sequence[Objective] = ()) -> None:
        self.measured_failed = 0
        self.beyond: Counter[str] = Counter()
        self._limits = [(o.metric, o.limit, limit_key(o)) for o in objectives if o.quantile is not None]
        self.dispatched = 0
        self.sent = 0
        self.late = 0
        self.first_measured_ns: int | None = None
        self.last_end_monotonic_ns: int | None = None
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.cacheable_tokens = 0
        self.outcomes: Counter[str] = Counter()
        self.error_classes: Counter[str] = Counter()
        self.ttft, self.tpot, self.chunk_gap, self.e2e = Sketch(), Sketch(), Sketch(), Sketch()
        self.dispatch_lag = Sketch()

    def began(self, *, late: bool, measured: bool, now_ns: int) -> None:
        """Note that a request was handed over at a time of the run clock."""
        self.dispatched += 1
        self.late += late
        if measured and self.first_measured_ns is None:
            self.first_measured_ns = now_ns

    def ended(self, record: RequestRecord) -> None:
        """Note how a request ended; costs some 30 us with 256 chunks, since the gaps are counted once a second."""
        answer = record.answer
        self.last_end_monotonic_ns = max(answer.end_ns, self.last_end_monotonic_ns or answer.end_ns)
        self.outcomes[answer.outcome.value] += 1
        if answer.error_class is not None:
            self.error_classes[answer.error_class] += 1
        self.sent += record.stamps.sent_ns is not None
        self.input_tokens += answer.input_tokens or 0
        self.output_tokens += answer.output_tokens or 0
        if answer.cached_tokens is not None:
            self.cached_tokens += answer.cached_tokens
            self.cacheable_tokens += answer.input_tokens or 0
        self.measured_failed += record.ask.measured and answer.outcome in FAILED_OUTCOMES
        if answer.outcome is Outcome.OK and record.stamps.sent_ns is not None:
            e2e_ns = answer.end_ns - record.stamps.sent_ns
            self.e2e.add(e2e_ns)
            self._judge("e2e", e2e_ns, record)
        if answer.outcome is Outcome.OK and answer.chunks is not None and record.stamps.sent_ns is not None:
            self._time(answer.chunks, record.stamps.sent_ns, record)

    def _judge(self, metric: str, value_ns: float, record: RequestRecord) -> None:
        for name, limit, key in self._limits:
            if name == metric and record.ask.measured and value_ns > limit:
                self.beyond[key] += 1

    def _time(self, chunks: Chunks, sent_ns: int, record: RequestRecord) -> None:
        output_tokens = record.answer.output_tokens
        ns = np.frombuffer(chunks.ns, dtype=np.int64)[_IS_TOKEN[np.frombuffer(chunks.kind, dtype=np.int8)]]
        if not len(ns):
            return
        self.ttft.add(int(ns[0]) - sent_ns)
        self._judge("ttft", int(ns[0]) - sent_ns, record)
        # With several choices a live gap may span two of them; the recorded metric never does.
        self.chunk_gap.add_all(np.diff(ns))
        span = int(ns[-1] - ns[0])
        if output_tokens is not None and output_tokens >= 2 and span > 0:
            self.tpot.add(span / (output_tokens - 1))
            self._judge("tpot", span / (output_tokens - 1), record)

    def totals(self, inflight: int) -> Totals:
        """Return the counts since the run began."""
        return Totals(
            dispatched=self.dispatched,
            sent=self.sent,
            late=self.late,
            inflight=inflight,
            outcomes=dict(self.outcomes),
            error_classes=dict(self.error_classes),
            output_tokens=self.output_tokens,
            input_tokens=self.input_tokens,
            cached_tokens=self.cached_tokens,
            cacheable_tokens=self.cacheable_tokens,
            measured_failed=self.measured_failed,
            beyond=dict(self.beyond),
        )
