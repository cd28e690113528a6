"""Know how well the client itself is: hub lag, CPU, memory and garbage collection, one row a second."""

import gc
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gevent
import numpy as np
import psutil

from servebench.core.errors import HarnessError
from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.loadgen.hub_ticker import KEPT_TICKS, HubTicker
from servebench.loadgen.messages import Health
from servebench.loadgen.part_writer import PartWriter
from servebench.metrics.quantiles import percentile
from servebench.shards.health_schema import HealthRow, health_table, is_spoiled
from servebench.shards.parts import PartIdentity, WrittenPart, write_table_part

ROWS_PER_PART = 30
IDLE_SPAN_TICKS = 100
MIN_IDLE_TICKS = 10
"""Fewer ticks than these say nothing about a 99th percentile; the idle level is then unknown."""

MIN_SPAN_NS = 100 * NS_PER_MS
"""A shorter rest of a second is left out: a few ms of work would read as a busy CPU."""


class HealthGauges(NamedTuple):
    """What the load generator says of the last second: `inflight` is now, the rest since the previous call.

    None where nothing was measured in that second.
    """

    inflight: int
    sent: int
    reads: int
    read_delay_p99_ns: int | None
    dispatch_lag_p99_ns: int | None
    dispatch_lag_max_ns: int | None


class GcPauses:
    """Garbage collections between `start` and `stop`; the interpreter calls it, on whatever greenlet ran."""

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._pauses_ns: list[int] = []

    def start(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Leave the interpreter's list of callbacks."""
        gc.callbacks.remove(self._note)

    def take(self) -> list[int]:
        """Return the lengths in ns of the collections since the last call."""
        pauses, self._pauses_ns = self._pauses_ns, []
        return pauses

    def _note(self, phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "start":
            self._began_ns = time.monotonic_ns()
        elif self._began_ns is not None:
            self._pauses_ns.append(time.monotonic_ns() - self._began_ns)
            self._began_ns = None


class HealthMonitor:
    """The `health` rows of one worker in one run.

    The idle level is that of the ticks that `ticker` has seen before `start` and those before 0 of the run clock.
    `last` is the newest row, None in the first second. The worker polls `failure` as it does the recorder's.
    """

    def __init__(
        self,
        folder: Path,
        identity: PartIdentity,
        gauges: Callable[[], HealthGauges],
        ticker: HubTicker | None = None,
    ) -> None:
        self.last: HealthRow | None = None
        self._folder = folder
        self._identity = identity
        self._gauges = gauges
        self._own_ticker = ticker is None
        self._ticker = ticker or HubTicker()
        self._gc = GcPauses()
        self._process = psutil.Process()
        self._writer = PartWriter()
        self._rows: list[HealthRow] = []
        self._number = 0
        self._idle_lags = array("q")
        self._idle_ns: int | None = None
        self._since_ns = 0
        self._cpu_ns = 0
        self._greenlet: gevent.Greenlet[[], None] | None = None

    @property
    def parts(self) -> tuple[WrittenPart, ...]:
        """Parts that have their name, in order."""
        return tuple(self._writer.parts)

    @property
    def failure(self) -> HarnessError | None:
        """First failed write, overflow of the queue or error of the gauges."""
        return self._writer.failure

    def start(self) -> None:
        """Begin with the first second; once."""
        self._note_idle(self._ticker.take())
        self._ticker.start()
        self._gc.start()
        self._since_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> tuple[WrittenPart, ...]:
        """Add the unfinished second, write what is left and return all parts; blocks the calling greenlet only."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None
            if time.monotonic_ns() - self._since_ns >= MIN_SPAN_NS:
                self._try_second()
            self._flush()
            self._gc.stop()
            if self._own_ticker:
                self._ticker.stop()
            self._writer.close()
        return tuple(self._writer.parts)

    def _run(self) -> None:
        due_ns = self._since_ns
        while self.failure is None:
            due_ns += NS_PER_S
            # After a long stall the missed seconds are one long row, not an empty one each.
            while due_ns - time.monotonic_ns() < MIN_SPAN_NS:
                due_ns += NS_PER_S
            gevent.sleep(max(0, due_ns - time.monotonic_ns()) / NS_PER_S)
            self._try_second()
            if len(self._rows) >= ROWS_PER_PART:
                self._flush()

    def _try_second(self) -> None:
        try:
            self.last = self._second()
        except Exception as error:  # noqa: BLE001 the top of a greenlet: a run without health rows must not go on
            self._writer.fail(HarnessError(f"cannot measure the client's health: {type(error).__name__}: {error}"))
        else:
            self._rows.append(self.last)

    def _second(self) -> HealthRow:
        now_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        t_ns, span_ns = now_ns - self._identity.epoch_monotonic_ns, now_ns - self._since_ns
        cpu_share = (cpu_ns - self._cpu_ns) / max(span_ns, 1)
        self._since_ns, self._cpu_ns = now_ns, cpu_ns
        lags, pauses_ns = self._ticker.take(), self._gc.take()
        if t_ns <= 0:
            self._note_idle(lags)
        p99_ns, idle_ns = _quantile(lags, 0.99), self._idle_ns
        return HealthRow(
            t_ns=t_ns,
            span_ns=span_ns,
            hub_lag_p50_ns=_quantile(lags, 0.5),
            hub_lag_p99_ns=p99_ns,
            hub_lag_max_ns=max(lags, default=None),
            hub_lag_idle_ns=idle_ns,
            cpu_share=cpu_share,
            rss_bytes=self._process.memory_info().rss,
            gc_pauses=len(pauses_ns),
            gc_pause_max_ns=max(pauses_ns, default=None),
            **self._gauges()._asdict(),
            spoiled=is_spoiled(p99_ns, idle_ns, cpu_share),
        )

    def _note_idle(self, lags: "array[int]") -> None:
        self._idle_lags.extend(lags)
        del self._idle_lags[:-KEPT_TICKS]
        self._idle_ns = idle_level_ns(self._idle_lags)

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer.full:
            self._writer.fail(HarnessError(f"{self._folder} is slower than one part in {ROWS_PER_PART} s"))
            return
        rows, number = self._rows, self._number
        self._rows, self._number = [], number + 1
        self._writer.submit(lambda: _write(self._folder, number, rows, self._identity))


def told_health(row: HealthRow | None) -> Health:
    """Return what the master is told of a worker's newest second; nothing is known before the first."""
    if row is None:
        return Health()
    return Health(
        hub_lag_p99_ns=row.hub_lag_p99_ns,
        cpu_share=row.cpu_share,
        dispatch_lag_p99_ns=row.dispatch_lag_p99_ns,
        read_delay_p99_ns=row.read_delay_p99_ns,
    )


def idle_level_ns(lags: "array[int]") -> int | None:
    """Return the p99 of the calmest second of latenesses of ticks, None where they are less than a tenth of one.

    Just before a run its worker loads prompts and plans, which stalls its own hub for 100 ms and more. With that in the
    idle level, stalls as long would pass for normal in the run.
    """
    if len(lags) < MIN_IDLE_TICKS:
        return None
    span = min(len(lags), IDLE_SPAN_TICKS)
    spans = np.asarray(lags, np.float64)[len(lags) % span :].reshape(-1, span)
    return round(min(percentile(second, 0.99) for second in spans))


def _write(folder: Path, number: int, rows: list[HealthRow], identity: PartIdentity) -> WrittenPart:
    table = health_table(rows, run_id=identity.run_id, worker=identity.worker)
    return write_table_part(folder, number, table, identity)


def _quantile(lags: "array[int]", q: float) -> int | None:
    return round(percentile(np.asarray(lags, np.float64), q)) if len(lags) else None
