"""Know what each engine and exporter calls the canonical series.

Sources: pages captured from vLLM 0.32, Dynamo 1.6.1, llama.cpp, Triton, MLServer 1.7.1 and LiteLLM 1.108.7, the
metric references of SGLang and TGI, and the fields of the DCGM, nvidia-smi and node exporters.
"""

from typing import Literal, NamedTuple

Combine = Literal["sum", "max", "mean"]


class Rule(NamedTuple):
    """How one series is read: the first of `names` that the page holds, its samples with the labels `where` combined.

    `scale` turns the engine's unit into the series' own. Names after the first are older or rarer ones.
    """

    series: str
    names: tuple[str, ...]
    combine: Combine = "sum"
    scale: float = 1.0
    where: tuple[tuple[str, str], ...] = ()


class Dialect(NamedTuple):
    """One server's vocabulary: a page speaks it when a metric name begins with one of `marks`."""

    name: str
    marks: tuple[str, ...]
    rules: tuple[Rule, ...]
    hint: str = ""
    """What to switch on for what it does not show by default."""


def _timed(series: str, *names: str) -> tuple[Rule, Rule]:
    """Return the rules of a histogram of seconds: its sum and its count."""
    return (
        Rule(f"{series}_s", tuple(f"{name}_sum" for name in names)),
        Rule(f"{series}_n", tuple(f"{name}_count" for name in names)),
    )


_VLLM_CORE = (
    Rule("running", ("vllm:num_requests_running",)),
    Rule("batch_size", ("vllm:num_requests_running",)),
    Rule("waiting", ("vllm:num_requests_waiting",)),
    Rule("kv_usage", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), "max"),
    Rule("preemptions", ("vllm:num_preemptions_total",)),
    Rule("prefix_queries", ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")),
    Rule("prefix_hits", ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")),
    Rule("prompt_tokens", ("vllm:prompt_tokens_total",)),
    Rule("output_tokens", ("vllm:generation_tokens_total",)),
    Rule("aborted", ("vllm:request_success_total",), where=(("finished_reason", "abort"),)),
    *_timed("ttft", "vllm:time_to_first_token_seconds"),
    *_timed("queue", "vllm:request_queue_time_seconds"),
    *_timed("e2e", "vllm:e2e_request_latency_seconds"),
)

DIALECTS: tuple[Dialect, ...] = (
    Dialect("servebench-sim", ("servebench_sim_",), _VLLM_CORE),
    Dialect(
        "dynamo",
        ("dynamo_frontend_",),
        (
            Rule("running", ("dynamo_frontend_inflight_requests",)),
            Rule("waiting", ("dynamo_frontend_queued_requests",)),
            Rule("prefix_queries", ("dynamo_frontend_input_sequence_tokens_sum",)),
            Rule("prefix_hits", ("dynamo_frontend_cached_tokens_sum",)),
            Rule("prompt_tokens", ("dynamo_frontend_input_sequence_tokens_sum",)),
            Rule("output_tokens", ("dynamo_frontend_output_tokens_total",)),
            *_timed("ttft", "dynamo_frontend_time_to_first_token_seconds"),
            *_timed("e2e", "dynamo_frontend_request_duration_seconds"),
        ),
        hint="its workers show KV usage and preemptions on their own ports (DYN_SYSTEM_PORT): give those addresses too",
    ),
    Dialect(
        "vllm",
        ("vllm:",),
        (
            *_VLLM_CORE,
            *_timed("prefill", "vllm:request_prefill_time_seconds"),
            *_timed("decode", "vllm:request_decode_time_seconds"),
            Rule("drafted_tokens", ("vllm:spec_decode_num_draft_tokens_total",)),
            Rule("accepted_tokens", ("vllm:spec_decode_num_accepted_tokens_total",)),
        ),
        hint="speculative decoding shows its counters only when it is on",
    ),
    Dialect(
        "sglang",
        ("sglang:", "sglang_"),
        (
            Rule("running", ("sglang:num_running_reqs", "sglang_num_running_reqs")),
            Rule("batch_size", ("sglang:num_running_reqs", "sglang_num_running_reqs")),
            Rule("waiting", ("sglang:num_queue_reqs", "sglang_num_queue_reqs")),
            Rule("kv_usage", ("sglang:token_usage", "sglang_token_usage"), "max"),
            Rule("preemptions", ("sglang:num_retracted_requests_total",)),
            Rule("prefix_queries", ("sglang:prompt_tokens_total",)),
            Rule("prefix_hits", ("sglang:cached_tokens_total",)),
            Rule("prompt_tokens", ("sglang:prompt_tokens_total", "sglang_prompt_tokens_total")),
            Rule("output_tokens", ("sglang:generation_tokens_total", "sglang_generation_tokens_total")),
            *_timed("ttft", "sglang:time_to_first_token_seconds"),
            *_timed("queue", "sglang:queue_time_seconds"),
            *_timed("e2e", "sglang:e2e_request_latency_seconds"),
            Rule("prefill_s", ("sglang:per_stage_req_latency_seconds_sum",), where=(("stage", "prefill_forward"),)),
            Rule("prefill_n", ("sglang:per_stage_req_latency_seconds_count",), where=(("stage", "prefill_forward"),)),
        ),
        hint="start it with --enable-metrics",
    ),
    Dialect(
        "tgi",
        ("tgi_",),
        (
            Rule("running", ("tgi_batch_current_size",)),
            Rule("batch_size", ("tgi_batch_current_size",)),
            Rule("waiting", ("tgi_queue_size",)),
            Rule("prompt_tokens", ("tgi_request_input_length_sum",)),
            Rule("output_tokens", ("tgi_request_generated_tokens_sum",)),
            *_timed("queue", "tgi_request_queue_duration"),
            *_timed("e2e", "tgi_request_duration"),
            Rule("prefill_s", ("tgi_batch_forward_duration_sum",), where=(("method", "prefill"),)),
            Rule("prefill_n", ("tgi_batch_forward_duration_count",), where=(("method", "prefill"),)),
            Rule("decode_step_s", ("tgi_batch_forward_duration_sum",), where=(("method", "decode"),)),
            Rule("decode_step_n", ("tgi_batch_forward_duration_count",), where=(("method", "decode"),)),
        ),
        hint="its prefill and decoding times are those of batches, not of requests",
    ),
    Dialect(
        "llama.cpp",
        ("llamacpp:",),
        (
            Rule("running", ("llamacpp:requests_processing",)),
            Rule("waiting", ("llamacpp:requests_deferred",)),
            Rule("kv_usage", ("llamacpp:kv_cache_usage_ratio",), "max"),
            Rule("batch_size", ("llamacpp:n_busy_slots_per_decode",), "mean"),
            Rule("prefix_hits", ("llamacpp:prompt_tokens_cached_total",)),
            Rule("prompt_tokens", ("llamacpp:prompt_tokens_total",)),
            Rule("output_tokens", ("llamacpp:tokens_predicted_total",)),
            Rule("prefill_s", ("llamacpp:prompt_seconds_total",)),
            Rule("decode_s", ("llamacpp:tokens_predicted_seconds_total",)),
            Rule("drafted_tokens", ("llamacpp:spec_decode_num_draft_tokens_total",)),
            Rule("accepted_tokens", ("llamacpp:spec_decode_num_accepted_tokens_total",)),
        ),
        hint="start it with --metrics; newer versions do not show the use of the KV cache",
    ),
    Dialect(
        "triton",
        ("nv_inference_",),
        (
            Rule("waiting", ("nv_inference_pending_request_count",)),
            Rule("queue_s", ("nv_inference_queue_duration_us",), scale=1e-6),
            Rule("queue_n", ("nv_inference_request_success",)),
            Rule("compute_s", ("nv_inference_compute_infer_duration_us",), scale=1e-6),
            Rule("compute_n", ("nv_inference_request_success",)),
            Rule("e2e_s", ("nv_inference_request_duration_us",), scale=1e-6),
            Rule("e2e_n", ("nv_inference_request_success",)),
            *_timed("ttft", "nv_llm_time_to_first_token_seconds"),
            Rule("inferences", ("nv_inference_count",)),
            Rule("executions", ("nv_inference_exec_count",)),
            Rule("cache_hits", ("nv_cache_num_hits_per_model",)),
            Rule("cache_misses", ("nv_cache_num_misses_per_model",)),
        ),
        hint="its metrics have a port of their own (8002); cache_hits and cache_misses need its response cache",
    ),
    Dialect(
        "mlserver",
        ("model_infer_request_", "rest_server_request"),
        (
            Rule("running", ("rest_server_requests_in_progress",), where=(("method", "POST"),)),
            *_timed("e2e", "model_infer_request_duration"),
        ),
        hint="its metrics have a port of their own (8082)",
    ),
    Dialect(
        "litellm",
        ("litellm_",),
        (
            Rule("running", ("litellm_in_flight_requests",)),
            Rule("prompt_tokens", ("litellm_input_tokens_metric_total",)),
            Rule("output_tokens", ("litellm_output_tokens_metric_total",)),
            *_timed("ttft", "litellm_llm_api_time_to_first_token_metric"),
            *_timed("queue", "litellm_request_queue_time_seconds"),
            *_timed("e2e", "litellm_request_total_latency_metric"),
            Rule("cache_hits", ("litellm_cache_hits_metric_total",)),
            Rule("cache_misses", ("litellm_cache_misses_metric_total",)),
        ),
        hint="it shows a number only once there was something to count; cache_hits needs its cache",
    ),
    Dialect(
        "dcgm",
        ("DCGM_FI_",),
        (
            Rule("gpu_busy", ("DCGM_FI_DEV_GPU_UTIL",), "mean", scale=0.01),
            Rule("gpu_memory", ("DCGM_FI_DEV_FB_USED",), scale=float(1 << 20)),
            Rule("gpu_power", ("DCGM_FI_DEV_POWER_USAGE",)),
        ),
    ),
    Dialect(
        "nvidia-smi",
        ("nvidia_smi_",),
        (
            Rule("gpu_busy", ("nvidia_smi_utilization_gpu_ratio",), "mean"),
            Rule("gpu_memory", ("nvidia_smi_memory_used_bytes",)),
            Rule("gpu_power", ("nvidia_smi_power_draw_watts",)),
        ),
    ),
    Dialect(
        "node",
        ("node_",),
        (
            Rule("cpu_idle_s", ("node_cpu_seconds_total",), where=(("mode", "idle"),)),
            Rule("cpu_s", ("node_cpu_seconds_total",)),
            Rule("memory_available", ("node_memory_MemAvailable_bytes",)),
            Rule("package_joules", ("node_rapl_package_joules_total",)),
        ),
    ),
)
"""In the order in which a page is asked: the simulator also shows vllm: names, Dynamo may pass its workers' on."""

HARDWARE: frozenset[str] = frozenset({"dcgm", "nvidia-smi", "node"})
