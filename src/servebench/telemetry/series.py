"""Know the canonical series: what is told of an engine, whatever its own metrics are called.

A counter only grows while the engine lives; a gauge is what holds at the moment of the reading. Counters of seconds
come with the number of requests they are about, so that mean = difference of one / difference of the other.
"""

from typing import Literal, NamedTuple

Kind = Literal["gauge", "counter"]


class Series(NamedTuple):
    """One canonical series; `unit` "1" is a share of 1."""

    name: str
    kind: Kind
    unit: str
    meaning: str


ENGINE_SERIES: tuple[Series, ...] = (
    Series("running", "gauge", "requests", "requests that the engine works on"),
    Series("waiting", "gauge", "requests", "requests in the engine's queue"),
    Series("kv_usage", "gauge", "1", "share of the KV cache in use, of the fullest replica"),
    Series("batch_size", "gauge", "requests", "requests in one step of the engine"),
    Series("preemptions", "counter", "requests", "requests that lost their KV blocks and began again"),
    Series("prefix_queries", "counter", "tokens", "prompt tokens looked up in the prefix cache"),
    Series("prefix_hits", "counter", "tokens", "prompt tokens found in the prefix cache"),
    Series("drafted_tokens", "counter", "tokens", "tokens proposed by speculative decoding"),
    Series("accepted_tokens", "counter", "tokens", "proposed tokens that were kept"),
    Series("prompt_tokens", "counter", "tokens", "prompt tokens taken in"),
    Series("output_tokens", "counter", "tokens", "tokens generated"),
    Series("aborted", "counter", "requests", "requests that ended because their client had left"),
    Series("ttft_s", "counter", "s", "received to first token, summed over requests"),
    Series("ttft_n", "counter", "requests", "requests in ttft_s"),
    Series("queue_s", "counter", "s", "time in the engine's queue, summed over requests"),
    Series("queue_n", "counter", "requests", "requests in queue_s"),
    Series("prefill_s", "counter", "s", "prompt processing, summed over requests"),
    Series("prefill_n", "counter", "requests", "requests in prefill_s"),
    Series("decode_s", "counter", "s", "generation after the first token, summed over requests"),
    Series("decode_n", "counter", "requests", "requests in decode_s"),
    Series("compute_s", "counter", "s", "work of the model, prefill and decode in one, summed over requests"),
    Series("compute_n", "counter", "requests", "requests in compute_s"),
    Series("decode_step_s", "counter", "s", "decoding steps, summed over steps of a batch"),
    Series("decode_step_n", "counter", "steps", "steps in decode_step_s"),
    Series("inferences", "counter", "inferences", "requests that the model computed, each as often as its batch says"),
    Series("executions", "counter", "batches", "batches that the model computed"),
    Series("cache_hits", "counter", "requests", "requests answered out of a cache of whole answers"),
    Series("cache_misses", "counter", "requests", "requests that were not in that cache"),
    Series("e2e_s", "counter", "s", "received to last token, summed over requests"),
    Series("e2e_n", "counter", "requests", "requests in e2e_s"),
)

HARDWARE_SERIES: tuple[Series, ...] = (
    Series("gpu_busy", "gauge", "1", "share of time in which a kernel ran, mean of the devices"),
    Series("gpu_memory", "gauge", "bytes", "device memory in use, all devices"),
    Series("gpu_power", "gauge", "W", "power drawn, all devices"),
    Series("cpu_idle_s", "counter", "s", "idle time, all cores of the host"),
    Series("cpu_s", "counter", "s", "time in all modes, all cores of the host"),
    Series("memory_available", "gauge", "bytes", "memory of the host that could still be used"),
    Series("package_joules", "counter", "J", "energy of the CPU packages"),
)

SERIES: dict[str, Series] = {series.name: series for series in (*ENGINE_SERIES, *HARDWARE_SERIES)}
