"""Know what other load tools call the same things and how they compute them, so one run answers in their words.

Each quantity says why its number differs from ours; "" = it does not. The formulas are those of the versions named;
what a tool does to percentiles (rounding, other rules) is part of its dialect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from servebench.metrics.columns import FloatArray, RequestColumns
from servebench.metrics.formulas import tpot_ns, ttft_ns

GapRule = Literal["choice", "token", "token and zeros"]
"""Events between which gaps are taken: all with a choice, all with text, or these and a zero per further token."""
Totals = Literal["requests", "output tokens", "input tokens", "all tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One number of a tool. `key` is what it is compared with: ttft, tpot, gap, e2e, requests, output or tokens.

    Exactly one of `of` (one value a request, ns or 1/s, NaN = left out), `gaps` (pooled ns) and `total` (divided by the
    tool's duration) is set.
    """

    key: str
    name: str
    unit: str
    because: str = ""
    of: Callable[[RequestColumns], FloatArray] | None = None
    gaps: GapRule | None = None
    total: Totals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one tool speaks. `statistics` of its latencies by their own names; None = mean.

    `rounded`: percentiles are those of Locust's histogram of rounded times.
    """

    name: str
    version: str
    statistics: Mapping[str, float | None]
    quantities: tuple[Quantity, ...]
    rounded: bool = False


def _ok(c: RequestColumns, values: FloatArray) -> FloatArray:
    return np.where(c.ok, values, np.nan)


def _per(c: RequestColumns, span: FloatArray, tokens: FloatArray) -> FloatArray:
    """Return span / tokens of ok requests with at least one such token."""
    found = np.full(len(c), np.nan)
    np.divide(span, tokens, out=found, where=c.ok & (tokens > 0))
    return found


def _e2e(c: RequestColumns) -> FloatArray:
    return _ok(c, c.end_ns - c.sent_ns)


def _first_choice(c: RequestColumns) -> FloatArray:
    return _ok(c, c.events.first_choice_ns - c.sent_ns)


def _to_last_choice(c: RequestColumns) -> FloatArray:
    return _ok(c, c.events.last_choice_ns - c.sent_ns)


def _to_last_token(c: RequestColumns) -> FloatArray:
    return _ok(c, c.events.last_token_ns - c.sent_ns)


def _after_choice(c: RequestColumns) -> FloatArray:
    return _per(c, c.events.last_choice_ns - c.events.first_choice_ns, c.output_tokens - 1)


def _after_token(c: RequestColumns) -> FloatArray:
    return _per(c, c.end_ns - c.events.first_token_ns, c.output_tokens - 1)


def _with_ttft(c: RequestColumns) -> FloatArray:
    return _per(c, c.events.last_token_ns - c.sent_ns, c.output_tokens)


def _after_first_chunk(c: RequestColumns) -> FloatArray:
    first = np.where(np.isnan(c.events.first_tokens), 1.0, c.events.first_tokens)
    return _per(c, c.events.last_token_ns - c.events.first_token_ns, c.output_tokens - first)


def _start(c: RequestColumns) -> FloatArray:
    """Return when a tool that connects for every request starts its clock."""
    return np.where(np.isnan(c.connect_start_ns), c.sent_ns, c.connect_start_ns)


def _ttft_connected(c: RequestColumns) -> FloatArray:
    return _ok(c, c.events.first_token_ns - _start(c))


def _closing(c: RequestColumns) -> FloatArray:
    """Return when a tool that reads no further than the token counts stops its clock."""
    return np.where(np.isnan(c.events.closing_ns), c.end_ns, c.events.closing_ns)


def _e2e_connected(c: RequestColumns) -> FloatArray:
    return _ok(c, _closing(c) - _start(c))


def _after_token_to_usage(c: RequestColumns) -> FloatArray:
    return _per(c, _closing(c) - c.events.first_token_ns, c.output_tokens - 1)


def _first_answer(c: RequestColumns) -> FloatArray:
    return _ok(c, c.events.first_answer_ns - c.sent_ns)


def _per_answer(c: RequestColumns) -> FloatArray:
    return _per(c, c.events.last_token_ns - c.events.first_answer_ns, c.output_tokens - 1)


def _tail_per_token(c: RequestColumns) -> FloatArray:
    return _per(c, c.end_ns - c.events.first_token_ns, c.output_tokens)


def _head(c: RequestColumns) -> FloatArray:
    return np.where(c.ok | c.failed, c.headers_ns - c.sent_ns, np.nan)


def _whole(c: RequestColumns) -> FloatArray:
    return np.where(c.ok | c.failed, c.end_ns - c.sent_ns, np.nan)


_ROLE = "the clock stops at the first event with a choice, a role-only one too"
_TAIL = "counts up to the end of the response, usage and [DONE] included"
_DRAIN = "divided by first sending to last end, ramp and drain included; tokens of failed requests left out"
_LATE_START = "divided by first sending to last end, ramp and drain included"
_CONNECT = "every request connects anew there, and connecting is inside; here it is where we connected"

_VLLM_STATISTICS = {"mean": None, "median": 0.5, "p99": 0.99}
_RATES = (
    Quantity(key="requests", name="request_throughput", unit="1/s", because=_LATE_START, total="requests"),
    Quantity(key="output", name="output_throughput", unit="tok/s", because=_DRAIN, total="output tokens"),
    Quantity(key="tokens", name="total_token_throughput", unit="tok/s", because=_DRAIN, total="all tokens"),
)

DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="vllm",
        version="vllm bench serve, 2026-08",
        statistics=_VLLM_STATISTICS,
        quantities=(
            Quantity(key="ttft", name="TTFT", unit="ms", because=_ROLE, of=_first_choice),
            Quantity(
                key="tpot",
                name="TPOT",
                unit="ms/token",
                because="runs from that first event to the last one with a choice, the finish reason included",
                of=_after_choice,
            ),
            Quantity(
                key="gap",
                name="ITL",
                unit="ms",
                because="gaps before and after events without text (role, finish reason) count",
                gaps="choice",
            ),
            Quantity(
                key="e2e",
                name="E2EL",
                unit="ms",
                because="ends with the last event with a choice, before usage and [DONE]",
                of=_to_last_choice,
            ),
            *_RATES,
        ),
    ),
    Dialect(
        name="sglang",
        version="sglang bench_serving 0.5.23",
        statistics={"mean": None, "median": 0.5, "p99": 0.99},
        quantities=(
            Quantity(key="ttft", name="TTFT", unit="ms", of=ttft_ns),
            Quantity(key="tpot", name="TPOT", unit="ms/token", because=_TAIL, of=_after_token),
            Quantity(key="gap", name="ITL", unit="ms", gaps="token"),
            Quantity(key="e2e", name="E2E latency", unit="ms", of=_e2e),
            *_RATES,
        ),
    ),
    Dialect(
        name="guidellm",
        version="guidellm 0.8.1",
        statistics={"mean": None, "median": 0.5, "p95": 0.95},
        quantities=(
            Quantity(key="ttft", name="time_to_first_token_ms", unit="ms", of=ttft_ns),
            Quantity(
                key="tpot",
                name="time_per_output_token_ms",
                unit="ms/token",
                because="starts at sending and divides by all tokens, so TTFT is inside",
                of=_with_ttft,
            ),
            Quantity(
                key="gap",
                name="inter_token_latency_ms",
                unit="ms",
                because="one mean a request (our tpot), so single long gaps do not show",
                of=tpot_ns,
            ),
            Quantity(key="e2e", name="request_latency", unit="ms", of=_e2e),
            Quantity(key="requests", name="requests_per_second", unit="1/s", because=_LATE_START, total="requests"),
            Quantity(
                key="output", name="output_tokens_per_second", unit="tok/s", because=_DRAIN, total="output tokens"
            ),
        ),
    ),
    Dialect(
        name="aiperf",
        version="aiperf 0.13.0",
        statistics={"avg": None, "p50": 0.5, "p95": 0.95, "p99": 0.99},
        quantities=(
            Quantity(key="ttft", name="time_to_first_token", unit="ms", of=ttft_ns),
            Quantity(
                key="tpot",
                name="inter_token_latency",
                unit="ms/token",
                because="where the server says how many tokens the first chunk held, these do not count",
                of=_after_first_chunk,
            ),
            Quantity(key="gap", name="inter_chunk_latency", unit="ms", gaps="token"),
            Quantity(
                key="e2e",
                name="request_latency",
                unit="ms",
                because="ends with the last content, before usage and [DONE]",
                of=_to_last_token,
            ),
            Quantity(key="requests", name="request_throughput", unit="1/s", because=_LATE_START, total="requests"),
            Quantity(key="output", name="output_token_throughput", unit="tok/s", because=_DRAIN, total="output tokens"),
        ),
    ),
    Dialect(
        name="genai-bench",
        version="genai-bench 0.0.5",
        statistics={"mean": None, "p50": 0.5, "p95": 0.95, "p99": 0.99},
        quantities=(
            Quantity(key="ttft", name="ttft", unit="ms", because=_CONNECT, of=_ttft_connected),
            Quantity(
                key="tpot",
                name="tpot",
                unit="ms/token",
                because="counts up to the usage event, or [DONE] where there is none",
                of=_after_token_to_usage,
            ),
            Quantity(
                key="e2e",
                name="e2e_latency",
                unit="ms",
                because=f"ends with the usage event, before [DONE]; {_CONNECT}",
                of=_e2e_connected,
            ),
            Quantity(key="requests", name="requests_per_second", unit="1/s", because=_LATE_START, total="requests"),
            Quantity(
                key="output",
                name="mean_output_throughput_tokens_per_s",
                unit="tok/s",
                because=_DRAIN,
                total="output tokens",
            ),
        ),
    ),
    Dialect(
        name="inference-perf",
        version="inference-perf 0.7.0",
        statistics={"mean": None, "median": 0.5, "p90": 0.9, "p99": 0.99},
        quantities=(
            Quantity(
                key="ttft",
                name="time_to_first_token",
                unit="ms",
                because="reasoning is ignored: the clock stops at the first answer token",
                of=_first_answer,
            ),
            Quantity(
                key="tpot",
                name="time_per_output_token",
                unit="ms/token",
                because="starts at the first answer token, while reasoning tokens are among those it divides by",
                of=_per_answer,
            ),
            Quantity(
                key="gap",
                name="inter_token_latency",
                unit="ms",
                because="tokens that came in one event are zeros between them",
                gaps="token and zeros",
            ),
            Quantity(key="e2e", name="request_latency", unit="ms", of=_e2e),
            Quantity(key="requests", name="requests_per_sec", unit="1/s", because=_LATE_START, total="requests"),
            Quantity(key="output", name="output_tokens_per_sec", unit="tok/s", because=_DRAIN, total="output tokens"),
        ),
    ),
    Dialect(
        name="fireworks",
        version="fw-ai/benchmark 2026-06",
        statistics={"mean": None, "p50": 0.5, "p90": 0.9, "p99": 0.99},
        rounded=True,
        quantities=(
            Quantity(key="ttft", name="time_to_first_token", unit="ms", because="rounded by Locust", of=ttft_ns),
            Quantity(
                key="tpot",
                name="latency_per_token",
                unit="ms/token",
                because="divides by all tokens and counts up to the end of the response; rounded by Locust",
                of=_tail_per_token,
            ),
            Quantity(key="e2e", name="total_latency", unit="ms", because="rounded by Locust", of=_e2e),
            Quantity(key="requests", name="qps", unit="1/s", because=_LATE_START, total="requests"),
        ),
    ),
    Dialect(
        name="locust",
        version="locust 2.47.0, stream=True",
        statistics={"Average": None, "50%": 0.5, "95%": 0.95, "99%": 0.99},
        rounded=True,
        quantities=(
            Quantity(
                key="ttft",
                name="response time (streamed)",
                unit="ms",
                because="stops at the response head, failures counted in, rounded to two digits",
                of=_head,
            ),
            Quantity(
                key="e2e",
                name="response time (whole body)",
                unit="ms",
                because="failures counted in, rounded to two digits",
                of=_whole,
            ),
            Quantity(key="requests", name="RPS", unit="1/s", because=_LATE_START, total="requests"),
        ),
    ),
)

DIALECT_BY_NAME: Mapping[str, Dialect] = {dialect.name: dialect for dialect in DIALECTS}


def locust_rounded(ms: FloatArray) -> FloatArray:
    """Return times as Locust's histogram keeps them: whole below 100 ms, else two significant digits."""
    digits = np.where(ms < 100, 0, np.where(ms < 1_000, 1, np.where(ms < 10_000, 2, 3)))
    step = 10.0**digits
    rounded: FloatArray = np.round(ms / step) * step
    return rounded


def locust_percentile(rounded: FloatArray, q: float) -> float:
    """Return the percentile by Locust's rule: the largest value that at most n - int(n q) others reach; NaN of none."""
    if not len(rounded):
        return float("nan")
    ordered = np.sort(rounded)[::-1]
    values, counts = np.unique(ordered, return_counts=True)
    values, seen = values[::-1], np.cumsum(counts[::-1])
    place = int(np.argmax(len(ordered) - seen <= int(len(ordered) * q)))
    return float(values[place])
