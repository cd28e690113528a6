"""Know what the master tells the command that started it: one JSON object a line, through an inherited pipe."""

import os
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from servebench.core.units import NS_PER_MS
from servebench.loadgen.messages import Health, Status, Totals
from servebench.loadgen.sketch import Rolling, Sketch
from servebench.metrics.columns import FAILED_OUTCOMES

LATENCY_WINDOW_S = 60
RATE_WINDOW_S = 10
DOT_S = 10
"""A point of load against latency is over so many seconds."""
MAX_PHASES = 12
"""Phases whose latencies are told apart live; older ones are in the tables of record."""
HOPELESS_N = 20
"""A run of which so many requests failed, and none went well, tells no more by going on."""
WAITING_BYTES = 1 << 16
LATENCIES = ("ttft", "tpot", "chunk_gap", "e2e")
"""Metrics that workers send as sketches, by their names in the registry."""


class ProgressPipe:
    """Writes whole lines to the pipe; a reader that is gone or slow never holds up the run.

    What a full pipe does not take waits for the next line, up to WAITING_BYTES; lines beyond that are dropped whole.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._waiting = bytearray()
        if descriptor is not None:
            os.set_blocking(descriptor, False)

    def send(self, line: Mapping[str, Any]) -> None:
        """Write one line, or drop it when the reader is too far behind or gone."""
        if self._descriptor is None:
            return
        data = msgspec.json.encode(line) + b"\n"
        if len(self._waiting) + len(data) <= WAITING_BYTES:
            self._waiting += data
        try:
            del self._waiting[: os.write(self._descriptor, self._waiting)]
        except BlockingIOError:
            pass  # it takes none now
        except OSError:
            self._waiting.clear()

    def event(self, event: str, text: str) -> None:
        """Tell of something that happened."""
        self.send({"kind": "event", "event": event, "text": text})


class LiveView:
    """The run as its workers tell it: sums of their totals, sketches of the last minute."""

    def __init__(self) -> None:
        self._totals: dict[str, Totals] = {}
        self._health: dict[str, Health] = {}
        self._second: dict[str, Sketch] = {name: Sketch() for name in LATENCIES}
        self.whole: dict[str, Sketch] = {name: Sketch() for name in LATENCIES}
        """Everything since the run began."""
        self.phases: dict[str, dict[str, Sketch]] = {}
        """The same by the phase in which the answers came, newest last, MAX_PHASES at most."""
        self._minute = {name: Rolling(LATENCY_WINDOW_S) for name in LATENCIES}
        self._dot = Rolling(DOT_S)
        self._ticks = 0
        self._history: deque[tuple[float, Totals]] = deque(maxlen=RATE_WINDOW_S + 1)

    def take(self, status: Status) -> None:
        """Add a worker's status."""
        self._totals[status.worker_id] = status.totals
        self._health[status.worker_id] = status.health
        for name in LATENCIES:
            self._second[name].merge(getattr(status, name))

    @property
    def first_tokens(self) -> int:
        """How many answers had a first token since the run began."""
        return len(self.whole["ttft"]) + len(self._second["ttft"])

    def lost(self, worker_id: str) -> None:
        """Forget what a worker has in flight and how it is; what it has sent stays counted."""
        totals = self._totals.get(worker_id)
        if totals is not None:
            self._totals[worker_id] = msgspec.structs.replace(totals, sent=totals.sent + totals.inflight, inflight=0)
            self._health.pop(worker_id, None)

    def healths(self) -> dict[str, Health]:
        """Return the newest health of each worker."""
        return dict(self._health)

    def totals(self) -> Totals:
        """Return the sums over all workers."""
        return sum_totals(self._totals.values())

    def tick(self, t_s: float, phase: str | None = None) -> dict[str, Any]:
        """Close the current second, which `phase` went on in, and return the figures of a status line."""
        total = self.totals()
        self._history.append((t_s, total))
        self._close_second(phase)
        first_s, first = self._history[0]
        span_s = t_s - first_s
        answered = sum(total.outcomes.values())

        def rate(now: int, before: int) -> float | None:
            return (now - before) / span_s if span_s > 0 else None

        return {
            "sent": total.sent + total.inflight,
            "answered": answered,
            "ok": total.outcomes.get("ok", 0),
            "errors": {name: n for name, n in total.error_classes.items() if n},
            "inflight": total.inflight,
            "late": total.late,
            "shed": total.outcomes.get("shed", 0),
            "sent_per_s": rate(total.dispatched, first.dispatched),
            "answered_per_s": rate(answered, sum(first.outcomes.values())),
            "out_tokens_per_s": rate(total.output_tokens, first.output_tokens),
            "in_tokens_per_s": rate(total.input_tokens, first.input_tokens),
            "cached_share": share(
                total.cached_tokens - first.cached_tokens, total.cacheable_tokens - first.cacheable_tokens
            ),
            "outcomes": total.outcomes,
            **{f"{name}_ms": _quantiles(self._minute[name].sketch()) for name in LATENCIES},
            "dot": self._dot_of(phase, rate(total.dispatched, first.dispatched)),
            "client": worst_health(self._health.values()),
        }

    def _close_second(self, phase: str | None) -> None:
        by_phase = self._phase_sketches(phase) if phase is not None else {}
        for name, sketch in self._second.items():
            counts = sketch.take()
            self.whole[name].merge(counts)
            self._minute[name].push(counts)
            if name in by_phase:
                by_phase[name].merge(counts)
            if name == "ttft":
                self._dot.push(counts)

    def _phase_sketches(self, phase: str) -> dict[str, Sketch]:
        if phase not in self.phases:
            self.phases[phase] = {name: Sketch() for name in LATENCIES}
            for old in list(self.phases)[:-MAX_PHASES]:
                del self.phases[old]
        return self.phases[phase]

    def _dot_of(self, phase: str | None, sent_per_s: float | None) -> dict[str, Any] | None:
        """Return load and TTFT of the last 10 s every 10 s, None in between and where no answer came."""
        self._ticks += 1
        sketch = self._dot.sketch()
        if self._ticks % DOT_S or not len(sketch):
            return None
        told = _quantiles(sketch)
        return {"phase": phase, "sent_per_s": sent_per_s, "n": told["n"], "p50": told["p50"], "p95": told["p95"]}


def _quantiles(sketch: Sketch) -> dict[str, Any]:
    return {"n": len(sketch), **{label: _ms(sketch.quantile_ns(q)) for label, q in _QUANTILES}}


_QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))


def share(part: int, whole: int) -> float | None:
    """Return a share of 1; None of nothing."""
    return part / whole if whole else None


_COUNTS = (
    "dispatched",
    "sent",
    "late",
    "inflight",
    "output_tokens",
    "input_tokens",
    "cached_tokens",
    "cacheable_tokens",
    "measured_failed",
)


def sum_totals(totals: Iterable[Totals]) -> Totals:
    """Return the sum of several workers' counts."""
    sums: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    classes: dict[str, int] = {}
    beyond: dict[str, int] = {}
    for one in totals:
        for name in _COUNTS:
            sums[name] = sums.get(name, 0) + getattr(one, name)
        for mine, theirs in ((outcomes, one.outcomes), (classes, one.error_classes), (beyond, one.beyond)):
            for word, count in theirs.items():
                mine[word] = mine.get(word, 0) + count
    return Totals(**sums, outcomes=outcomes, error_classes=classes, beyond=beyond)


def unstreamed(total: Totals, first_tokens: int) -> str | None:
    """Return why a run that asks for streams should not go on: of many good answers not one had a first token."""
    answered = total.outcomes.get("ok", 0)
    if first_tokens or answered < HOPELESS_N:
        return None
    return f"the first {answered} answers came in one piece, not as streams, so TTFT cannot be measured"


def hopeless(total: Totals) -> str | None:
    """Return why a run should not go on, None where it may: requests failed and not one was answered well."""
    failed = {name: n for name, n in total.outcomes.items() if name in FAILED_OUTCOMES}
    if total.outcomes.get("ok") or sum(failed.values()) < HOPELESS_N:
        return None
    kinds = sorted(total.error_classes.items(), key=lambda item: -item[1])[:3]
    said = ", ".join(f"{name} {n}" for name, n in kinds if n)
    return f"the first {sum(failed.values())} requests all failed ({said})"


def worst_health(healths: Iterable[Health]) -> dict[str, float | None]:
    """Return the worst figure of any worker: a client is as clean as its dirtiest part."""

    def worst(name: str) -> float | None:
        values = [value for health in healths_list if (value := getattr(health, name)) is not None]
        return max(values) if values else None

    healths_list = list(healths)
    return {
        "hub_lag_ms_p99": _ms(worst("hub_lag_p99_ns")),
        "cpu": worst("cpu_share"),
        "dispatch_lag_ms_p99": _ms(worst("dispatch_lag_p99_ns")),
        "read_delay_ms_p99": _ms(worst("read_delay_p99_ns")),
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_PER_MS
