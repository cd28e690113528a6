"""Know every metric: its two events, unit, formula, when it is undefined, and what other tools call it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["request", "chunk", "rate", "share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `unit` is for people, `base_unit` for storage; `aka` maps another tool to its name for this.

    kind: `request` one value a request, `chunk` one a gap, `rate` one a window, `share` one a set of requests.
    `source` is the column or columns it is computed from.
    """

    name: str
    title: str
    unit: str
    base_unit: str
    start_event: str
    stop_event: str
    formula: str
    undefined_when: str
    kind: Kind
    source: str
    aka: Mapping[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Return how many base units one display unit holds."""
        return _BASE_PER_DISPLAY[self.unit]


_BASE_PER_DISPLAY = {"ms": 1e6, "ms/token": 1e6, "1/s": 1.0, "tok/s": 1.0, "%": 0.01}

_NOT_OK = "the request is not ok"

METRICS: tuple[Metric, ...] = (
    Metric(
        name="ttft",
        title="TTFT",
        unit="ms",
        base_unit="ns",
        start_event="first byte of the request sent",
        stop_event="first token event (content, reasoning, tool call or refusal)",
        formula="first token event - sent",
        undefined_when=f"{_NOT_OK}, or the answer came in one piece",
        kind="request",
        source="sent_ns, chunk_ns, chunk_kind",
        aka={
            "guidellm": "time_to_first_token_ms",
            "aiperf": "time_to_first_token",
            "genai-bench": "ttft",
            "inference-perf": "time_to_first_token",
            "vllm": "TTFT (a role-only event counts there)",
            "sglang": "TTFT",
        },
    ),
    Metric(
        name="ttft_intended",
        title="TTFT from intended",
        unit="ms",
        base_unit="ns",
        start_event="intended time of the schedule",
        stop_event="first token event",
        formula="first token event - intended",
        undefined_when=f"{_NOT_OK}, the answer came in one piece, or the load is closed",
        kind="request",
        source="intended_ns, chunk_ns, chunk_kind",
    ),
    Metric(
        name="ttfo",
        title="first answer token",
        unit="ms",
        base_unit="ns",
        start_event="first byte of the request sent",
        stop_event="first token event that is not reasoning",
        formula="first answer token event - sent",
        undefined_when=f"{_NOT_OK}, or it only reasoned",
        kind="request",
        source="sent_ns, chunk_ns, chunk_kind",
        aka={"guidellm": "TTFO", "aiperf": "time_to_first_output_token"},
    ),
    Metric(
        name="tpot",
        title="TPOT",
        unit="ms/token",
        base_unit="ns/token",
        start_event="first token event",
        stop_event="last token event",
        formula="(last token event - first token event) / (output_tokens - 1)",
        undefined_when=f"{_NOT_OK}, fewer than two output tokens, or no two token events at different times",
        kind="request",
        source="chunk_ns, chunk_kind, output_tokens",
        aka={
            "guidellm": "inter_token_latency_ms",
            "aiperf": "inter_token_latency",
            "genai-bench": "tpot (up to the end of the response)",
            "inference-perf": "time_per_output_token",
            "vllm": "TPOT (up to the end of the response)",
            "sglang": "TPOT (up to the end of the response)",
        },
    ),
    Metric(
        name="chunk_gap",
        title="chunk gap",
        unit="ms",
        base_unit="ns",
        start_event="token event",
        stop_event="next token event of the same choice",
        formula="differences of successive token events, zeros kept",
        undefined_when=f"{_NOT_OK}, or the choice has fewer than two token events",
        kind="chunk",
        source="chunk_ns, chunk_kind, chunk_choice",
        aka={
            "aiperf": "inter_chunk_latency",
            "inference-perf": "inter_token_latency (tokens of one chunk count as zeros there)",
            "vllm": "ITL",
            "sglang": "ITL (split by token count there)",
        },
    ),
    Metric(
        name="e2e",
        title="request",
        unit="ms",
        base_unit="ns",
        start_event="first byte of the request sent",
        stop_event="terminal event of the stream, else end of the body",
        formula="end - sent",
        undefined_when=_NOT_OK,
        kind="request",
        source="sent_ns, end_ns",
        aka={
            "guidellm": "request_latency",
            "aiperf": "request_latency (up to the last content)",
            "genai-bench": "e2e_latency",
            "inference-perf": "request_latency",
            "vllm": "E2EL (up to the last choices event)",
            "sglang": "E2E latency",
        },
    ),
    Metric(
        name="e2e_intended",
        title="request from intended",
        unit="ms",
        base_unit="ns",
        start_event="intended time of the schedule",
        stop_event="terminal event of the stream, else end of the body",
        formula="end - intended",
        undefined_when=f"{_NOT_OK}, or the load is closed",
        kind="request",
        source="intended_ns, end_ns",
    ),
    Metric(
        name="time_to_last_token",
        title="last token",
        unit="ms",
        base_unit="ns",
        start_event="first byte of the request sent",
        stop_event="last token event",
        formula="last token event - sent",
        undefined_when=f"{_NOT_OK}, or the answer came in one piece",
        kind="request",
        source="sent_ns, chunk_ns, chunk_kind",
    ),
    Metric(
        name="dispatch_lag",
        title="dispatch lag",
        unit="ms",
        base_unit="ns",
        start_event="intended time of the schedule",
        stop_event="dispatcher hands the request over",
        formula="dispatched - intended, of every request whatever its outcome",
        undefined_when="the load is closed, or the request was never dispatched",
        kind="request",
        source="intended_ns, dispatched_ns",
    ),
    Metric(
        name="send_lag",
        title="send lag",
        unit="ms",
        base_unit="ns",
        start_event="intended time of the schedule",
        stop_event="first byte of the request sent; connecting and TLS lie before it",
        formula="sent - intended, of every request whatever its outcome",
        undefined_when="the load is closed, or the request was never sent",
        kind="request",
        source="intended_ns, sent_ns",
    ),
    Metric(
        name="request_throughput",
        title="answered",
        unit="1/s",
        base_unit="1/s",
        start_event="start of the window",
        stop_event="end of the window",
        formula="ok requests that end in the window / its length",
        undefined_when="the window has no length",
        kind="rate",
        source="outcome, end_ns",
        aka={
            "guidellm": "requests_per_second",
            "aiperf": "request_throughput",
            "inference-perf": "requests_per_sec",
            "vllm": "request_throughput",
            "sglang": "request_throughput",
        },
    ),
    Metric(
        name="output_token_throughput",
        title="output",
        unit="tok/s",
        base_unit="tok/s",
        start_event="start of the window",
        stop_event="end of the window",
        formula="output tokens that arrive in the window / its length, those of failed and cancelled requests too",
        undefined_when="the window has no length",
        kind="rate",
        source="chunk_ns, chunk_kind, chunk_tokens, output_tokens",
        aka={
            "guidellm": "output_tokens_per_second",
            "aiperf": "output_token_throughput",
            "vllm": "output_throughput (ok requests, whole duration)",
            "sglang": "output_throughput",
        },
    ),
    Metric(
        name="input_token_throughput",
        title="input",
        unit="tok/s",
        base_unit="tok/s",
        start_event="start of the window",
        stop_event="end of the window",
        formula="input tokens of ok requests that end in the window / its length",
        undefined_when="the window has no length",
        kind="rate",
        source="input_tokens, end_ns, outcome",
        aka={"sglang": "input_throughput", "guidellm": "prompt_tokens_per_second"},
    ),
    Metric(
        name="total_token_throughput",
        title="input and output",
        unit="tok/s",
        base_unit="tok/s",
        start_event="start of the window",
        stop_event="end of the window",
        formula="input_token_throughput + output_token_throughput",
        undefined_when="the window has no length",
        kind="rate",
        source="input_tokens, output_tokens, chunk_ns, end_ns",
        aka={"vllm": "total_token_throughput", "aiperf": "total_token_throughput"},
    ),
    Metric(
        name="error_rate",
        title="error rate",
        unit="%",
        base_unit="1",
        start_event="does not apply",
        stop_event="does not apply",
        formula="failed / (ok + failed); cancelled, shed and skipped requests are counted apart",
        undefined_when="no request ended as ok or failed",
        kind="share",
        source="outcome",
    ),
)

METRIC_BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
