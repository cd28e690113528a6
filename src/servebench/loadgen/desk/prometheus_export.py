"""Know what the master tells Prometheus: counters that only grow while the process lives, whatever runs come and go.

For watching, never of record. The page is built when it is asked for, from the sketches that the workers have sent.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from servebench.core.errors import InputError
from servebench.core.units import NS_PER_S
from servebench.loadgen.messages import Health, Totals
from servebench.loadgen.progress import LiveView, sum_totals
from servebench.loadgen.sketch import Sketch, middles_ns
from servebench.metrics.exported import BUCKETS_S, EXPORTED_BY_NAME, LATENCIES, PREFIX, latency_name

log = logging.getLogger(__name__)

OFF = "off"
DEFAULT = "127.0.0.1:9646"


class Meters(Collector):
    """The exported state. Runs fold into `_past` when the next one begins, so no counter ever falls."""

    def __init__(self) -> None:
        self._past = Totals()
        self._past_latency: dict[str, Sketch] = {name: Sketch() for name in LATENCIES}
        self._view: LiveView | None = None
        self._name_of: Callable[[str], str] = str
        self._line: Mapping[str, Any] = {}
        self._lost = 0

    def begin(self, view: LiveView, name_of: Callable[[str], str] = str) -> None:
        """Follow a new run. `name_of` gives the name of a worker's files and log lines for Locust's id of it."""
        self._name_of = name_of
        if self._view is not None:
            self._past = sum_totals([self._past, self._view.totals()])
            for name in LATENCIES:
                self._past_latency[name].merge(self._view.whole[name].counts)
        self._view, self._line = view, {}

    def take(self, line: Mapping[str, Any]) -> None:
        """Take the newest status line."""
        self._line = line

    def event(self, kind: str) -> None:
        """Count what is counted of the events."""
        self._lost += kind == "lost"

    def collect(self) -> Iterator[Metric]:
        """Yield every family; what is unknown has no sample."""
        totals = sum_totals([self._past, *([self._view.totals()] if self._view is not None else [])])
        yield from self._run()
        yield from _counts(totals)
        yield _counter("workers_lost", [((), self._lost)])
        for name in LATENCIES:
            yield histogram(name, self._latency(name))
        if self._view is not None:
            yield from _client({self._name_of(known): health for known, health in self._view.healths().items()})
        yield from _engine(self._line.get("server") or {})

    def _run(self) -> Iterator[Metric]:
        line = self._line
        state = str(line.get("state") or "ready")
        if line.get("run_id"):
            yield _gauge("run_info", [((str(line["run_id"]), state, str(line.get("phase") or "")), 1)])
        yield _gauge("run_running", [((), int(state == "running"))])
        yield _gauge("workers", [((), line.get("workers"))])
        yield _gauge("offered_requests_per_second", [((), line.get("planned_per_s"))])
        yield _gauge("requests_in_flight", [((), line.get("inflight"))])

    def _latency(self, name: str) -> Sketch:
        both = Sketch(self._past_latency[name].counts)
        if self._view is not None:
            both.merge(self._view.whole[name].counts)
        return both


def serve(meters: Meters, place: str) -> None:
    """Serve the page at HOST:PORT from greenlets of this process; "off" = nowhere.

    A port that is taken costs the page, not the run. Raises InputError for a place that is none.
    """
    if place.lower() == OFF:
        return
    host, _, port = place.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65_536:
        msg = f'SERVEBENCH_METRICS_LISTEN "{place}" is no HOST:PORT; e.g. {DEFAULT}, or off'
        raise InputError(msg)
    registry = CollectorRegistry()
    registry.register(meters)
    try:
        start_http_server(int(port), addr=host.strip("[]") or "0.0.0.0", registry=registry)  # noqa: S104 - as asked
    except OSError as error:
        log.warning("no metrics for Prometheus at %s: %s", place, error.strerror or error)
    else:
        log.info("metrics for Prometheus: http://%s/metrics", place)


def histogram(metric: str, sketch: Sketch) -> HistogramMetricFamily:
    """Return the family of a latency; a count moves to a limit with its whole bucket, which is 1 % wide."""
    told = EXPORTED_BY_NAME[latency_name(metric)]
    numbers, counts = sketch.columns()
    middles_s = middles_ns(numbers) / NS_PER_S
    per_limit = np.bincount(np.searchsorted(BUCKETS_S, middles_s), weights=counts, minlength=len(BUCKETS_S) + 1)
    limits = [*map(repr, BUCKETS_S), "+Inf"]
    buckets = [(limit, float(seen)) for limit, seen in zip(limits, np.cumsum(per_limit), strict=True)]
    total_s = float(np.dot(middles_s, counts))
    return HistogramMetricFamily(f"{PREFIX}_{told.name}", told.help, buckets=buckets, sum_value=total_s)


def _counts(totals: Totals) -> Iterator[Metric]:
    yield _counter("requests_dispatched", [((), totals.dispatched)])
    yield _counter("requests_late", [((), totals.late)])
    yield _counter("requests", [((name,), count) for name, count in sorted(totals.outcomes.items())])
    yield _counter("errors", [((name,), count) for name, count in sorted(totals.error_classes.items())])
    yield _counter("output_tokens", [((), totals.output_tokens)])
    yield _counter("input_tokens", [((), totals.input_tokens)])
    yield _counter("cached_tokens", [((), totals.cached_tokens)])


def _client(healths: Mapping[str, Health]) -> Iterator[Metric]:
    for name, field, scale in (
        ("client_hub_lag_seconds", "hub_lag_p99_ns", NS_PER_S),
        ("client_cpu_ratio", "cpu_share", 1),
        ("client_dispatch_lag_seconds", "dispatch_lag_p99_ns", NS_PER_S),
        ("client_read_delay_seconds", "read_delay_p99_ns", NS_PER_S),
    ):
        known = [(worker, getattr(health, field)) for worker, health in sorted(healths.items())]
        yield _gauge(name, [((worker,), None if value is None else value / scale) for worker, value in known])


def _engine(server: Mapping[str, Any]) -> Iterator[Metric]:
    queue_ms = server.get("queue_ms")
    values = {
        "engine_running": server.get("running"),
        "engine_waiting": server.get("waiting"),
        "engine_kv_cache_usage_ratio": server.get("kv_usage"),
        "engine_prefix_hit_ratio": server.get("prefix_hit_share"),
        "engine_preemptions_per_second": server.get("preemptions_per_s"),
        "engine_queue_seconds": None if queue_ms is None else queue_ms / 1e3,
    }
    for name, value in values.items():
        yield _gauge(name, [((), value)])


_Samples = Iterable[tuple[tuple[str, ...], float | None]]


def _gauge(name: str, samples: _Samples) -> GaugeMetricFamily:
    told = EXPORTED_BY_NAME[name]
    family = GaugeMetricFamily(f"{PREFIX}_{name}", told.help, labels=told.labels)
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
    return family


def _counter(name: str, samples: _Samples) -> CounterMetricFamily:
    told = EXPORTED_BY_NAME[name]
    family = CounterMetricFamily(f"{PREFIX}_{name}", told.help, labels=told.labels)
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
    return family
