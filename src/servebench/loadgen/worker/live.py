"""Know what a worker says about itself once a second: totals, and sketches of what has just ended."""

from collections import Counter
from collections.abc import Sequence

from servebench.core.outcomes import Outcome
from servebench.core.records import RequestRecord
from servebench.loadgen.messages import Totals
from servebench.loadgen.sketch import Sketch
from servebench.loadgen.worker.live_times import Ended, LiveTimes
from servebench.metrics.columns import FAILED_OUTCOMES
from servebench.workload.model import Objective


class LiveCounters:
    """Counts of one run on one worker. Every call comes from a request greenlet or the status greenlet; none blocks.

    `objectives`: measured answers above their limits are counted, of those metrics that are known here.
    """

    def __init__(self, objectives: Sequence[Objective] = ()) -> None:
        self.measured_failed = 0
        self.times = LiveTimes(objectives)
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
        self.dispatch_lag = Sketch()

    def began(self, *, late: bool, measured: bool, now_ns: int) -> None:
        """Note that a request was handed over at a time of the run clock."""
        self.dispatched += 1
        self.late += late
        if measured and self.first_measured_ns is None:
            self.first_measured_ns = now_ns

    def ended(self, record: RequestRecord) -> None:
        """Note how a request ended."""
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
            self.times.add(
                Ended(record.stamps.sent_ns, answer.end_ns, answer.chunks, answer.output_tokens, record.ask.measured)
            )

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
            beyond=dict(self.times.beyond),
        )
