"""Know the tables of the report."""

from servebench.analysis.arrivals import SCALES_S
from servebench.analysis.digest import Digest
from servebench.analysis.numbers import UNDEFINED, bounds, clock, count, significant
from servebench.analysis.page.model import PageTable
from servebench.analysis.render import SHOWN, for_people, shown_unit
from servebench.analysis.steps import metric_named
from servebench.analysis.table_rows import QUANTILES
from servebench.analysis.tables import POOLED
from servebench.analysis.words import STATE_GLYPHS
from servebench.metrics import METRIC_BY_NAME, needed

_ENDS = ("p95_lo", "p95_hi")
OBJECTIVES_NOTE = (
    "Met or missed when the whole interval lies on one side of the limit, else undecided: run longer. Effective n: how "
    "many independent requests the n are worth, as neighbours share the state of the server."
)


def tables(found: Digest) -> tuple[PageTable, ...]:
    """Return the tables in order of the page."""
    return (
        _percentiles(found),
        _curve(found),
        _phases(found),
        *_arrivals(found),
        _outcomes(found),
        *_objectives(found),
    )


def _percentiles(found: Digest) -> PageTable:
    rows = []
    shown = for_people(found.table)
    one_phase = len({row.group for row in shown} - {(POOLED,)}) == 1  # then the pooled rows say the same again
    for row in shown:
        if one_phase and row.group == (POOLED,):
            continue
        unit, divisor = shown_unit(row)
        numbers = [None if (value := getattr(row, name)) is None else value / divisor for name in (*SHOWN, *_ENDS)]
        title = metric_named(row.metric).title
        interval = bounds(numbers.pop(-2), numbers.pop())
        rows.append((title, unit, *row.group, count(row.n), *map(significant, numbers), interval))
    return PageTable(
        name="percentiles",
        title="Percentiles by phase",
        head=("metric", "unit", "phase", "n", *SHOWN, "p95, 95 % interval"),
        rows=tuple(rows),
        left=3,
        pooled=True,
        note=f"Latency of ok requests. {UNDEFINED}: undefined, or too few samples: {_needs()}. "
        "Metrics of minor interest are in tables/percentiles.csv.",
    )


def _needs() -> str:
    """Return how many samples each shown quantile needs."""
    shown = [(name, q) for name, q in QUANTILES if name in SHOWN and name != "p50"]
    return ", ".join(f"{name} needs {count(needed(q))}" for name, q in shown)


def _curve(found: Digest) -> PageTable:
    names = (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "request"))
    rows = []
    for point in found.curve:
        level = UNDEFINED if point.level.step is None else str(point.level.step + 1)
        rates = (point.level.offered_per_s, point.sent_per_s, point.achieved_per_s, point.in_flight_mean)
        latency = [
            significant(value) for name, _ in names for value in (point.latency[name].p50, point.latency[name].p95)
        ]
        rows.append(
            (point.level.phase, level, *map(significant, rates), count(point.ok), count(point.failed), *latency)
        )
    latency_head = [f"{title} {q}, {METRIC_BY_NAME[name].unit}" for name, title in names for q in ("p50", "p95")]
    return PageTable(
        name="curve",
        title="Throughput and latency under load",
        head=("phase", "level", "offered /s", "sent /s", "answered /s", "in flight", "ok", "failed", *latency_head),
        rows=tuple(rows),
    )


def _phases(found: Digest) -> PageTable:
    rows = tuple(
        (
            phase.name,
            phase.shape,
            "yes" if phase.measured else "no, warm-up",
            f"{clock(phase.window.start_ns / 1e9)} to {clock(phase.window.end_ns / 1e9)}",
            *(count(number) for number in (phase.planned, phase.sent, phase.ok, phase.failed, phase.cancelled)),
            *(count(number) for number in (phase.late, phase.shed, phase.lost)),
        )
        for phase in found.phases
    )
    head = (
        "phase",
        "shape",
        "measured",
        "time",
        "planned",
        "sent",
        "ok",
        "failed",
        "cancelled",
        "late",
        "shed",
        "lost",
    )
    return PageTable(name="phases", title="Phases", head=head, rows=rows, left=3)


def _arrivals(found: Digest) -> tuple[PageTable, ...]:
    if not found.findings.arrivals:
        return ()
    rows = []
    for item in found.findings.arrivals:
        pairs = zip(
            (item.planned.per_s, item.planned.cv, *item.planned.idc),
            (item.sent.per_s, item.sent.cv, *item.sent.idc),
            strict=True,
        )
        cells = [f"{significant(planned)} / {significant(sent)}" for planned, sent in pairs]
        rows.append((item.phase, *cells, count(item.worst), significant(item.lag_p99_ms)))
    scales = (f"dispersion at {scale} s" for scale in SCALES_S)
    return (
        PageTable(
            name="arrivals",
            title="Load as planned / as sent",
            head=("phase", "requests /s", "CV of gaps", *scales, "largest difference", "send lag p99, ms"),
            rows=tuple(rows),
            note="CV 1: as irregular as a Poisson stream. Dispersion: variance over mean of the counts per window.",
        ),
    )


def _outcomes(found: Digest) -> PageTable:
    total = sum(item.n for item in found.outcomes)
    rows = tuple(
        (
            item.outcome,
            item.error_class or UNDEFINED,
            count(item.n),
            f"{significant(100 * item.n / total)} %",
            item.example or "",
        )
        for item in found.outcomes
    )
    return PageTable(
        name="outcomes",
        title="Outcomes of measured requests",
        head=("outcome", "class", "n", "share", "what was said, once"),
        rows=rows,
        left=2,
        text=4,
    )


def _objectives(found: Digest) -> tuple[PageTable, ...]:
    if not found.objectives:
        return ()
    rows = tuple(
        (
            result.sentence,
            significant(result.measured),
            bounds(result.lo, result.hi),
            result.metric.unit,
            count(result.n),
            count(round(result.n_eff)),
            f"{STATE_GLYPHS[result.state]} {result.state}",
        )
        for result in found.objectives
    )
    head = ("objective", "measured", "95 % interval", "unit", "n", "effective n", "state")
    return (PageTable(name="objectives", title="Objectives", head=head, rows=rows, note=OBJECTIVES_NOTE),)
