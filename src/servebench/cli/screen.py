"""Know the lines of the live screen: pure text for a width, at most 16 lines, three digits a figure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich.cells import cell_len, set_cell_size

from servebench.cli.display import CPU_LIMIT, HUB_LAG_LIMIT_MS
from servebench.cli.encoding import in_ascii
from servebench.cli.figures import UNDEFINED, bar, count, figure, minutes, sparkline
from servebench.cli.status import ClientState, Quantiles, ServerState, Status
from servebench.core.units import NS_PER_MS
from servebench.workload.model import Objective

MAX_LINES = 16
HISTORY = 120
_CLOSE = 0.9
"""From this share of a limit on, an objective is shown as close."""
_SPARK = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One objective: quantile word such as `p95`, limit in ms (or ms per token)."""

    quantile: str
    limit_ms: float


@dataclass(slots=True, kw_only=True)
class View:
    """What the screen shows: who, the newest status, and the last two minutes of what has a sparkline."""

    name: str
    url: str
    model: str | None
    drain_s: float
    limits: dict[str, Limit] = field(default_factory=dict)
    """Objective by metric name (ttft, tpot, chunk_gap)."""
    status: Status = field(default_factory=Status)
    note: str = ""
    stopping: bool = False
    series: dict[str, deque[float | None]] = field(default_factory=dict)

    def take(self, status: Status) -> None:
        """Keep a status and extend the sparklines."""
        self.status = status
        newest = {
            "sent": status.sent_per_s,
            "ttft": status.ttft_ms.p95,
            "tpot": status.tpot_ms.p95,
            "chunk_gap": status.chunk_gap_ms.p95,
        }
        for name, value in newest.items():
            self.series.setdefault(name, deque(maxlen=HISTORY)).append(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """Where lines are drawn: columns, whether block characters can be shown, and what time it is."""

    width: int
    unicode: bool
    now: datetime


def limits_of(objectives: Sequence[Objective]) -> dict[str, Limit]:
    """Return the objectives that the screen can judge while the run goes on; of several for one metric, the last."""
    return {
        objective.metric: Limit(quantile=f"p{100 * objective.quantile:g}", limit_ms=objective.limit / NS_PER_MS)
        for objective in objectives
        if objective.quantile is not None
    }


def screen_lines(view: View, canvas: Canvas) -> list[str]:
    """Return the screen, each line at most `canvas.width` cells wide.

    Below 80 columns sparklines go first, then the largest values; below 60 one line is left.
    """
    status = view.status
    if canvas.width < 60:
        return [_drawn(_one_line(status), canvas)]
    lines = [_title(view, canvas)]
    if status.state in {"waiting", "preparing"}:
        lines.append(_before_load(status))
    else:
        lines += [*_bars(status, canvas), *_load(view, canvas), *_latency(view, canvas), *_outcomes(view, canvas)]
    if view.note:
        lines.append(f"NOTE      {view.note}")
    lines.append(_last_line(view))
    return [_drawn(line, canvas) for line in lines[:MAX_LINES]]


def client_line(client: ClientState, *, unicode: bool) -> str:
    """Return whether the load generator itself is clean, with the figures that say so."""
    lag, cpu = client.hub_lag_ms_p99, client.cpu
    if client == ClientState():
        return "no report yet"
    spoiled = (lag is not None and lag > HUB_LAG_LIMIT_MS) or (cpu is not None and cpu > CPU_LIMIT)
    good = "✓" if unicode else "ok"
    word = "! busy" if spoiled else f"{good} clean"
    parts = [
        word,
        f"lag p99: dispatch {_short(client.dispatch_lag_ms_p99)} ms, read {_short(client.read_delay_ms_p99)} ms",
        f"CPU {UNDEFINED if cpu is None else f'{100 * cpu:.0f}'} %",
    ]
    return "   ".join(parts)


def server_line(server: ServerState) -> str:
    """Return the engine's own figures and how old they are."""
    cache = UNDEFINED if server.kv_usage is None else f"{100 * server.kv_usage:.0f}"
    told = f"SERVER    running {_whole(server.running)}   waiting {_whole(server.waiting)}   KV cache {cache} %"
    age = UNDEFINED if server.age_s is None else f"{server.age_s:.0f}"
    whose = f"{server.dialect} metrics, {age} s old"
    return f"{told}{whose:>{max(len(whose) + 2, 80 - len(told))}}"


def objective_word(limit: Limit | None, quantiles: Quantiles, *, unicode: bool) -> str:
    """Return the objective with its state: met, close (within 10 %), missed; no state before the quantile exists."""
    if limit is None:
        return figure(None)
    shown = f"{limit.quantile} < {limit.limit_ms:g} ms"
    value = {"p50": quantiles.p50, "p95": quantiles.p95, "max": quantiles.max}.get(limit.quantile)
    if value is None:
        return shown
    if value >= limit.limit_ms:
        return f"{shown} {'✗' if unicode else 'x'}missed"
    return f"{shown} ~close" if value >= _CLOSE * limit.limit_ms else f"{shown} {'✓' if unicode else 'ok '}met"


def _title(view: View, canvas: Canvas) -> str:
    workers = view.status.workers
    tail = [view.model, None if workers is None else f"{workers} worker{'s' if workers != 1 else ''}"]
    parts = [view.name, view.url, *[part for part in tail if part]]
    # The name comes first and may be long: it gives way before the address does.
    spare = canvas.width - sum(cell_len(part) + 3 for part in parts[1:])
    return "   ".join([_fit(parts[0], max(12, spare)), *parts[1:]])


def _before_load(status: Status) -> str:
    ready = "" if status.workers is None else f" {status.workers} connected"
    return f"waiting for workers:{ready}" if status.state == "waiting" else f"preparing the schedule:{ready}"


def _bars(status: Status, canvas: Canvas) -> list[str]:
    width = 29 if canvas.width >= 80 else 15
    lines = []
    if status.phase is not None:
        share = 1.0 if _all_sent(status) else _share(status.phase_t_s, status.phase_duration_s)
        which = ""
        if status.phase_index is not None and status.phase_count is not None:
            which = f" ({status.phase_index + 1} of {status.phase_count})"
        times = f"{minutes(status.phase_t_s)} of {minutes(status.phase_duration_s)}"
        drawn = bar(share, width, unicode=canvas.unicode)
        lines.append(f"phase  {drawn} {_percent(share)}  {status.phase}{which}, {times}")
    share = 1.0 if _all_sent(status) else _share(status.t_s, status.duration_s)
    drawn = bar(share, width, unicode=canvas.unicode)
    lines.append(f"run    {drawn} {_percent(share)}  {_remaining(status, canvas.now)}")
    return lines


def _all_sent(status: Status) -> bool:
    """Say whether a run is over that sent all it had; its last status may be from before its last phase ended."""
    return status.state == "closed" and status.sent is not None and status.sent == status.planned_total


def _remaining(status: Status, now: datetime) -> str:
    if status.state != "running":
        return {"draining": "draining: waiting for open answers", "closed": "closed"}.get(status.state, status.state)
    if status.t_s is None or status.duration_s is None:
        return f"{minutes(status.t_s)} since the start"
    left = max(0.0, status.duration_s - status.t_s)
    if left == 0:
        return "waiting for open answers"
    ends = now + timedelta(seconds=left)
    return f"{minutes(left)} left, ends {ends:%H:%M:%S} {ends.tzname() or ''}".rstrip()


def _load(view: View, canvas: Canvas) -> list[str]:
    status = view.status
    rates = (
        f"LOAD      planned {figure(status.planned_per_s)} req/s   sent {figure(status.sent_per_s)}"
        f"   answered {figure(status.answered_per_s)}"
    )
    total = "" if status.planned_total is None else f" of {count(status.planned_total)}"
    counts = (
        f"          sent {count(status.sent)}{total}   in flight {count(status.inflight)}"
        f"   late {count(status.late)}   shed {count(status.shed)}"
    )
    if status.lost is not None:
        counts += f"   lost {count(status.lost)}"
    return [_with_spark(rates, view, "sent", canvas), counts]


def _latency(view: View, canvas: Canvas) -> list[str]:
    status = view.status
    largest = canvas.width >= 68
    heads = f"{'p50':>7}{'p95':>7}" + (f"{'max':>7}" if largest else "")
    lines = [f"{f'LATENCY   60 s, n {count(status.ttft_ms.n)}':<22}{heads}   objective"]
    rows = (
        ("TTFT", "ttft", "ms", status.ttft_ms),
        ("TPOT", "tpot", "ms/token", status.tpot_ms),
        ("chunk gap", "chunk_gap", "ms", status.chunk_gap_ms),
    )
    for title, name, unit, quantiles in rows:
        if not quantiles.n:
            lines.append(f"  {title:<11}{unit:<9}waiting for the first answer")
            continue
        shown = (quantiles.p50, quantiles.p95, *([quantiles.max] if largest else []))
        figures = "".join(f"{_narrow(value):>7}" for value in shown)
        goal = objective_word(view.limits.get(name), quantiles, unicode=canvas.unicode)
        lines.append(_with_spark(f"  {title:<11}{unit:<9}{figures}   {goal}", view, name, canvas))
    return lines


def _outcomes(view: View, canvas: Canvas) -> list[str]:
    status = view.status
    tokens = (
        f"TOKENS    out {figure(status.out_tokens_per_s)} tok/s   in {figure(status.in_tokens_per_s)} tok/s"
        "   (answered, last 10 s)"
    )
    errors = [f"{name} {count(number)}" for name, number in sorted(status.errors.items(), key=lambda e: -e[1])[:3]]
    if len(status.errors) > 3:
        errors.append(f"{len(status.errors) - 3} more kinds")
    share = None if not status.answered else 100 * status.failed / status.answered
    shown = "   ".join([f"ok {count(status.ok)}", *errors, f"error {UNDEFINED if share is None else f'{share:.3g}'} %"])
    server = [server_line(status.server)] if status.server is not None and canvas.width >= 68 else []
    client = client_line(status.client, unicode=canvas.unicode)
    return [tokens, f"OUTCOMES  {shown}", *server, f"CLIENT    {client}"]


def _last_line(view: View) -> str:
    if view.status.state == "closed":
        return "Every answer is in; merging and reporting."
    if view.stopping:
        return "Ctrl-C again: stop now; open requests become cancelled."
    flying = view.status.inflight
    what = "open requests" if flying is None else f"{flying:,} request{'s' if flying != 1 else ''}"
    return f"Ctrl-C: stop sending, let {what} finish ({view.drain_s:g} s at most), write the report."


def _one_line(status: Status) -> str:
    if status.state in {"waiting", "preparing"}:
        return _before_load(status)
    return (
        f"{status.phase or status.state} {_percent(_share(status.t_s, status.duration_s)).strip()}"
        f" sent {count(status.sent)} in flight {count(status.inflight)} err {status.failed}"
        f" TTFT p95 {figure(status.ttft_ms.p95)} ms"
    )


def _with_spark(line: str, view: View, name: str, canvas: Canvas) -> str:
    """Append the sparkline in the last 12 columns where the line leaves room for it."""
    if canvas.width < 80 or cell_len(line) > 80 - _SPARK - 1:
        return line
    drawn = sparkline(view.series.get(name, ()), _SPARK, unicode=canvas.unicode)
    return f"{line:<{80 - _SPARK}}{drawn}"


def _narrow(value: float | None) -> str:
    """Return a figure of at most 6 cells: three digits below a hundredth would run into the column beside it."""
    if value is None or not 0 < value < 0.01:
        return figure(value)
    return "<0.001" if value < 0.001 else f"{value:.4f}"


def _short(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _whole(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:,.0f}"


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else min(1.0, max(0.0, part / whole))


def _percent(share: float | None) -> str:
    return f"  {UNDEFINED} %" if share is None else f"{int(100 * share):>3} %"


def _drawn(line: str, canvas: Canvas) -> str:
    """Return a line as it may be put on the terminal: what it holds of others' names can neither steer nor widen it."""
    safe = "".join(character if character.isprintable() else "?" for character in line)
    return _fit(safe if canvas.unicode else in_ascii(safe), canvas.width)


def _fit(line: str, width: int) -> str:
    return line if cell_len(line) <= width else set_cell_size(line, width)
