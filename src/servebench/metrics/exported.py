"""Know what the master exports to Prometheus: names in base units, HELP from the registry, limits of buckets."""

from typing import Literal, NamedTuple

from servebench.metrics.registry import METRIC_BY_NAME

Kind = Literal["counter", "gauge", "histogram"]
PREFIX = "servebench"

BUCKETS_S: tuple[float, ...] = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0),
)
"""Upper limits; half an octave apart at most, so that a quantile out of them is within the factor 1.5 at worst."""


class Exported(NamedTuple):
    """One metric family. `name` comes without the prefix and, for counters, without `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name in queries."""
        return f"{PREFIX}_{self.name}{'_total' if self.kind == 'counter' else ''}"


def latency_name(metric: str) -> str:
    """Return the exported name of a latency of the registry."""
    return f"{metric}_seconds"


def _latency(metric: str) -> Exported:
    told = METRIC_BY_NAME[metric]
    text = f"{told.title}: from {told.start_event} to {told.stop_event}. {told.formula}."
    return Exported(latency_name(metric), "histogram", text)


LATENCIES: tuple[str, ...] = ("ttft", "tpot", "chunk_gap", "e2e")
"""Metrics of the registry that workers send live."""

EXPORTED: tuple[Exported, ...] = (
    Exported("run_info", "gauge", "The newest run; 1.", ("run_id", "state", "phase")),
    Exported("run_running", "gauge", "1 while a run sends, else 0."),
    Exported("workers", "gauge", "Workers that share the load."),
    Exported("workers_lost", "counter", "Workers that fell silent during a run."),
    Exported("offered_requests_per_second", "gauge", "Rate that the plan or the operator wants now."),
    Exported("requests_dispatched", "counter", "Requests that the dispatchers handed over."),
    Exported("requests_late", "counter", "Requests dispatched more than max(1 ms, 1 % of the mean gap) late."),
    Exported("requests", "counter", "Requests that ended, by outcome.", ("outcome",)),
    Exported("errors", "counter", "Requests that ended otherwise than ok, by error class.", ("error_class",)),
    Exported("requests_in_flight", "gauge", "Requests that were dispatched and have not ended."),
    Exported("output_tokens", "counter", "Generated tokens of the requests that ended, by server usage or events."),
    Exported("input_tokens", "counter", "Prompt tokens of the requests that ended, by server usage."),
    Exported("cached_tokens", "counter", "Prompt tokens that the server took from a prefix cache, by its usage."),
    *(_latency(metric) for metric in LATENCIES),
    Exported("client_hub_lag_seconds", "gauge", "p99 lateness of a 10 ms ticker in the last second.", ("worker",)),
    Exported("client_cpu_ratio", "gauge", "CPU of a worker in the last second; 1 = one core.", ("worker",)),
    Exported("client_dispatch_lag_seconds", "gauge", "p99 of dispatched - intended in the last second.", ("worker",)),
    Exported("client_read_delay_seconds", "gauge", "p99 of kernel stamp to read in the last second.", ("worker",)),
    Exported("engine_running", "gauge", "Requests that the engines work on, by their own metrics."),
    Exported("engine_waiting", "gauge", "Requests in the engines' queues, by their own metrics."),
    Exported("engine_kv_cache_usage_ratio", "gauge", "Share of the KV cache in use, of the fullest replica."),
    Exported("engine_prefix_hit_ratio", "gauge", "Prompt tokens found in the engines' prefix cache, last 10 s."),
    Exported("engine_preemptions_per_second", "gauge", "Requests that lost their KV blocks, last 10 s."),
    Exported("engine_queue_seconds", "gauge", "Mean time in the engines' queues of what left them in the last 10 s."),
)

EXPORTED_BY_NAME: dict[str, Exported] = {one.name: one for one in EXPORTED}
