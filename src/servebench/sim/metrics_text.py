"""Know the engine's own metrics under vLLM's names, and the Prometheus text that shows them.

The text is written by hand because prometheus_client belongs to the load generator alone. Times are kept in ns and
shown in seconds.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from servebench.core.units import NS_PER_S

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_REQUEST_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000)


class Histogram:
    """Counts of integer observations per classic bucket; `scale` divides them where they are shown."""

    __slots__ = ("_bounds", "_counts", "_scale", "_total")

    def __init__(self, bounds: Sequence[float], scale: int = 1) -> None:
        self._bounds = tuple(round(bound * scale) for bound in bounds)
        self._counts = array("q", bytes(8 * (len(bounds) + 1)))
        self._scale = scale
        self._total = 0

    def observe(self, value: int) -> None:
        """Add one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the sample lines: cumulative buckets, sum and count."""
        out, count = [], 0
        limits = [repr(float(bound / self._scale)) for bound in self._bounds] + ["+Inf"]
        for limit, here in zip(limits, self._counts, strict=True):
            count += here
            out.append(f'{name}_bucket{{{labels},le="{limit}"}} {float(count)}')
        out.append(f"{name}_sum{{{labels}}} {self._total / self._scale}")
        out.append(f"{name}_count{{{labels}}} {float(count)}")
        return out


class SimMetrics:
    """What the server counts while it runs."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.late_steps = 0
        self.ended = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.faults: dict[str, int] = {}
        self.time_to_first_token = Histogram(_TTFT_S, NS_PER_S)
        self.inter_token = Histogram(_TOKEN_S, NS_PER_S)
        self.per_output_token = Histogram(_TOKEN_S, NS_PER_S)
        self.request = Histogram(_REQUEST_S, NS_PER_S)
        self.queue = Histogram(_REQUEST_S, NS_PER_S)
        self.request_prompt_tokens = Histogram(_LENGTHS)
        self.request_generation_tokens = Histogram(_LENGTHS)


class EngineState(NamedTuple):
    """The engine's gauges and counters at one moment."""

    running: int
    waiting: int
    kv_cache_usage: float
    prefix_queries: int
    prefix_hits: int
    preemptions: int


def render_metrics(metrics: SimMetrics, state: EngineState, model: str) -> bytes:
    """Return the whole text, in Prometheus text format 0.0.4."""
    labels = f'engine="0",model_name="{_escape(model)}"'
    simple = (
        ("num_requests_running", "gauge", "Requests that hold KV blocks.", state.running),
        ("num_requests_waiting", "gauge", "Requests in the queue.", state.waiting),
        ("kv_cache_usage_perc", "gauge", "Share of KV blocks in use; 1 = all.", state.kv_cache_usage),
        ("prefix_cache_queries_total", "counter", "Prompt tokens looked up in the cache.", state.prefix_queries),
        ("prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.", state.prefix_hits),
        ("num_preemptions_total", "counter", "Requests that lost their blocks and start again.", state.preemptions),
        ("prompt_tokens_total", "counter", "Prompt tokens of admitted requests.", metrics.prompt_tokens),
        ("prompt_tokens_cached_total", "counter", "Prompt tokens not computed again.", metrics.cached_tokens),
        ("generation_tokens_total", "counter", "Generated tokens.", metrics.generation_tokens),
    )
    lines: list[str] = []
    for name, kind, text, value in simple:
        lines += _head(f"vllm:{name}", kind, text)
        lines.append(f"vllm:{name}{{{labels}}} {float(value)}")
    lines += _head("vllm:request_success_total", "counter", "Ended requests by reason.")
    for reason, count in metrics.ended.items():
        lines.append(f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {float(count)}')
    for name, text, histogram in _histograms(metrics):
        lines += _head(f"vllm:{name}", "histogram", text)
        lines += histogram.lines(f"vllm:{name}", labels)
    lines += _head("servebench_sim_faults_total", "counter", "Requests spoiled on purpose.")
    for kind, count in sorted(metrics.faults.items()):
        lines.append(f'servebench_sim_faults_total{{kind="{kind}"}} {float(count)}')
    lines += _head("servebench_sim_late_steps_total", "counter", "Steps the simulator itself was too slow for.")
    lines.append(f"servebench_sim_late_steps_total {float(metrics.late_steps)}")
    return ("\n".join(lines) + "\n").encode()


def _histograms(metrics: SimMetrics) -> tuple[tuple[str, str, Histogram], ...]:
    return (
        ("time_to_first_token_seconds", "Request received to first token.", metrics.time_to_first_token),
        ("inter_token_latency_seconds", "Between tokens of one request.", metrics.inter_token),
        ("request_time_per_output_token_seconds", "Mean of a request after its first.", metrics.per_output_token),
        ("e2e_request_latency_seconds", "Request received to last token.", metrics.request),
        ("request_queue_time_seconds", "Request received to first scheduled.", metrics.queue),
        ("request_prompt_tokens", "Prompt tokens of a finished request.", metrics.request_prompt_tokens),
        ("request_generation_tokens", "Generated tokens of a finished request.", metrics.request_generation_tokens),
    )


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
