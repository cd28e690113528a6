"""Know which dashboards there are: their panels from what is exported, their words from the registry."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from servebench.metrics.exported import EXPORTED_BY_NAME, LATENCIES, latency_name
from servebench.metrics.registry import METRIC_BY_NAME

_RATE = "[$__rate_interval]"
_NO_DATA = "no data: is the master's metrics port scraped, and has a run begun?"
_NO_ENGINE = "no data: the engine shows no such metric, or its page was not found (SERVEBENCH_METRICS_URLS)"
_JOB = '{job=~"$job",instance=~"$instance"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One line of a panel. `expr` is PromQL."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `unit` is Grafana's name for it; `kind` timeseries, stat or heatmap."""

    title: str
    about: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    stacked: bool = False
    no_data: str = _NO_DATA


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard: rows of panels. `window` is the time range it opens with."""

    uid: str
    title: str
    window: str
    refresh: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def selected(name: str, more: str = "") -> str:
    """Return the selector of an exported family, limited to the chosen job and instance.

    Raises KeyError for a family that is not exported.
    """
    full = EXPORTED_BY_NAME[name].full_name
    return f'{full}{{job=~"$job",instance=~"$instance"{"," if more else ""}{more}}}'


def rate(name: str, by: str = "", more: str = "") -> str:
    """Return the sum of a counter's rates, by a label."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({selected(name, more)}{_RATE}))"


def quantile(metric: str, q: float) -> str:
    """Return a quantile of a latency over the rate interval, in seconds."""
    family = EXPORTED_BY_NAME[latency_name(metric)].full_name
    return f"histogram_quantile({q}, sum by (le) (rate({family}_bucket{_JOB}{_RATE})))"


def gauge(name: str, fold: str = "sum") -> str:
    """Return a gauge folded over what its labels tell apart."""
    return f"{fold} ({selected(name)})"


def _latency(metric: str, quantiles: Sequence[float] = (0.5, 0.95, 0.99)) -> Panel:
    told = METRIC_BY_NAME[metric]
    about = f"From {told.start_event} to {told.stop_event}. Undefined when {told.undefined_when}."
    queries = tuple(Query(expr=quantile(metric, q), legend=f"p{100 * q:g}") for q in quantiles)
    return Panel(title=told.title, about=about, unit="s", queries=queries)


def _heatmap(metric: str) -> Panel:
    told = METRIC_BY_NAME[metric]
    family = EXPORTED_BY_NAME[latency_name(metric)].full_name
    query = Query(expr=f"sum by (le) (rate({family}_bucket{_JOB}{_RATE}))", legend="{{le}}")
    return Panel(title=f"{told.title}, distribution", about=told.formula, unit="s", queries=(query,), kind="heatmap")


def _simple(title: str, unit: str, *queries: tuple[str, str], stacked: bool = False, about: str = "") -> Panel:
    lines = tuple(Query(expr=expr, legend=legend) for expr, legend in queries)
    return Panel(title=title, about=about or title, unit=unit, queries=lines, stacked=stacked)


def _gauge_panel(name: str, title: str, unit: str, fold: str = "sum") -> Panel:
    about = EXPORTED_BY_NAME[name].help
    return _simple(title, unit, (gauge(name, fold), title), about=about)


def _by_worker(name: str, title: str, unit: str) -> Panel:
    return _simple(title, unit, (selected(name), "{{worker}}"), about=EXPORTED_BY_NAME[name].help)


_BAD = 'outcome!~"ok|cancelled|shed|skipped"'
_ENDED = 'outcome!~"cancelled|shed|skipped"'
_ERROR_SHARE = f"{rate('requests', more=_BAD)} / {rate('requests', more=_ENDED)}"
_LOAD = _simple(
    "Offered, dispatched, ended",
    "reqps",
    (gauge("offered_requests_per_second"), "offered"),
    (rate("requests_dispatched"), "dispatched"),
    (rate("requests"), "ended"),
)
_TOKENS = _simple(
    "Tokens of ended requests",
    "short",
    (rate("output_tokens"), "out"),
    (rate("input_tokens"), "in"),
    (rate("cached_tokens"), "cached"),
    about=METRIC_BY_NAME["output_token_throughput"].formula,
)
_OUTCOMES = _simple("Outcomes", "reqps", (rate("requests", "outcome"), "{{outcome}}"), stacked=True)
_ERRORS = _simple("Errors by class", "reqps", (rate("errors", "error_class"), "{{error_class}}"), stacked=True)
_QUEUE = _simple(
    "In flight; engine running, waiting",
    "short",
    (gauge("requests_in_flight"), "in flight"),
    (gauge("engine_running"), "running"),
    (gauge("engine_waiting"), "waiting"),
)
_WORKERS = _simple(
    "Workers", "short", (gauge("workers"), "sharing the load"), (gauge("workers_lost"), "lost since the start")
)
_CLIENT = (
    _by_worker("client_cpu_ratio", "CPU of each worker", "percentunit"),
    _by_worker("client_hub_lag_seconds", "Hub lag p99", "s"),
    _by_worker("client_dispatch_lag_seconds", "Dispatch lag p99", "s"),
    _by_worker("client_read_delay_seconds", "Read delay p99", "s"),
)


def _engine_panels() -> tuple[Panel, ...]:
    panels = (
        _gauge_panel("engine_kv_cache_usage_ratio", "KV cache in use", "percentunit", "max"),
        _gauge_panel("engine_prefix_hit_ratio", "Prefix cache hits", "percentunit", "avg"),
        _gauge_panel("engine_queue_seconds", "Engine queue, mean", "s", "max"),
        _gauge_panel("engine_preemptions_per_second", "Preemptions", "short"),
    )
    return tuple(replace(panel, no_data=_NO_ENGINE) for panel in panels)


def _tiles() -> tuple[Panel, ...]:
    tiles = (
        _simple("Offered", "reqps", (gauge("offered_requests_per_second"), "")),
        _simple("In flight", "short", (gauge("requests_in_flight"), "")),
        _simple("TTFT p95", "s", (quantile("ttft", 0.95), "")),
        _simple("TPOT p95", "s", (quantile("tpot", 0.95), "")),
        _simple("Output tokens", "short", (rate("output_tokens"), "")),
        _simple("Errors", "percentunit", (_ERROR_SHARE, "")),
    )
    return tuple(replace(tile, kind="stat") for tile in tiles)


BOARDS: tuple[Board, ...] = (
    Board(
        uid="servebench-live",
        title="servebench: live run",
        window="now-15m",
        refresh="5s",
        rows=(
            ("Now", _tiles()),
            ("Load", (_LOAD, _QUEUE)),
            ("Latency", (_heatmap("ttft"), *(_latency(name) for name in LATENCIES))),
            ("Tokens and outcomes", (_TOKENS, _OUTCOMES, _ERRORS)),
            ("Client", (*_CLIENT, _WORKERS)),
            ("Engine", _engine_panels()),
        ),
    ),
    Board(
        uid="servebench-soak",
        title="servebench: soak",
        window="now-12h",
        refresh="1m",
        rows=(
            ("Drift", (_latency("ttft", (0.5, 0.99)), _latency("tpot", (0.5, 0.99)), _latency("e2e", (0.5, 0.99)))),
            ("Load", (_LOAD, _TOKENS)),
            ("What went wrong", (_OUTCOMES, _ERRORS, _WORKERS)),
            ("Client", _CLIENT[:2]),
        ),
    ),
    Board(
        uid="servebench-engine",
        title="servebench: engine beside client",
        window="now-30m",
        refresh="5s",
        rows=(("Queue", (_QUEUE, _latency("ttft"))), ("Engine", _engine_panels()), ("Client", _CLIENT)),
    ),
)
