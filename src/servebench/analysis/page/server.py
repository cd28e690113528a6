"""Know the tables of the report that set the server beside the client."""

from servebench.analysis.engine import Source
from servebench.analysis.engine_counts import COUNTS
from servebench.analysis.engine_side import ServerSide
from servebench.analysis.engine_split import ORDER, Split
from servebench.analysis.numbers import UNDEFINED, count, significant
from servebench.analysis.page.model import PageTable

MOST_BESIDE = 0.05
"""Requests of others are worth a word from this share of the client's own on."""


def server_tables(side: ServerSide) -> tuple[PageTable, ...]:
    """Return the split of the time and its sources, TTFT of both sides, counts, and the pages that were read."""
    split = (_split(side), _basis(side), *_ttft(side), *_counts(side)) if side.splits else ()
    return (*split, *_pages(side))


def _level(split: Split) -> tuple[str, str]:
    return split.level.phase, UNDEFINED if split.level.step is None else str(split.level.step + 1)


def _split(side: ServerSide) -> PageTable:
    names = [name for name in ORDER if any(split.ms(name) is not None for split in side.splits)]
    rows = tuple(
        (
            *_level(split),
            significant(split.load_per_s),
            count(split.n),
            significant(split.total_ms),
            *(significant(split.ms(name)) for name in names),
        )
        for split in side.splits
    )
    return PageTable(
        name="time-split",
        title="Where the time goes, by load level",
        head=("phase", "level", "sent /s", "n", "E2E, ms", *(f"{name}, ms" for name in names)),
        rows=rows,
        left=2,
        note="Means of the ok requests that ended in the level, from their intended time; the parts add up to E2E. "
        f"{others(side)}",
    )


def others(side: ServerSide) -> str:
    """Say whether the engines finished other requests than the client's, "" where they did not or do not tell."""
    told = [split for split in side.splits if split.engine_n is not None]
    engine, client = sum(split.engine_n or 0 for split in told), sum(split.n for split in told)
    if not told or abs(engine - client) <= MOST_BESIDE * client:
        return ""
    return (
        f"The engines ended {count(round(engine))} requests in that time and the client {count(client)} ok ones: their "
        "means hold requests that are not in E2E."
    )


def _basis(side: ServerSide) -> PageTable:
    """Return, for each part, whether it was measured, and out of what."""
    found = {(part.name, part.how.value, part.basis): None for split in side.splits for part in split.parts}
    rows = sorted(found, key=lambda row: ORDER.index(row[0]))
    return PageTable(
        name="time-basis",
        title="What of that is measured, and what inferred",
        head=("part", "how", "from"),
        rows=tuple(rows),
        left=3,
    )


def _ttft(side: ServerSide) -> tuple[PageTable, ...]:
    """Return mean TTFT of client and server; none where no server told its own."""
    rows = []
    for split in side.splits:
        client, server = split.client_ttft_ms, split.server_ttft_ms
        if server is None:
            continue
        between = None if client is None else client - server
        rows.append((*_level(split), significant(client), significant(server), significant(between)))
    if not rows:
        return ()
    return (
        PageTable(
            name="ttft-sides",
            title="TTFT of client and server",
            head=("phase", "level", "client, ms", "server, ms", "network and client, ms"),
            rows=tuple(rows),
            left=2,
            note="Means over requests whose first token came in the level; network and client make the difference.",
        ),
    )


def _counts(side: ServerSide) -> tuple[PageTable, ...]:
    """Return what the engines counted in each level; none where they count nothing of it."""
    read = [(one, [one.of(side.telemetry, split.window) for split in side.splits]) for one in COUNTS]
    told = [(one, values) for one, values in read if any(value is not None for value in values)]
    if not told:
        return ()
    rows = ((*_level(split), *(one.shown(values[k]) for one, values in told)) for k, split in enumerate(side.splits))
    return (
        PageTable(
            name="server-counts",
            title="What the server counted, by load level",
            head=("phase", "level", *(one.title for one, _ in told)),
            rows=tuple(rows),
            left=2,
            note="From the first to the last reading of its counters in the level, other clients' requests included.",
        ),
    )


def _pages(side: ServerSide) -> tuple[PageTable, ...]:
    known = side.telemetry
    rows = [_page(source) for source in (*known.engines, *known.hardware)]
    rows += [(address, "no metrics", UNDEFINED, UNDEFINED, why) for address, why in dict(known.silent).items()]
    if not rows:
        return ()
    return (
        PageTable(
            name="pages",
            title="Metric pages that were read",
            head=("page", "dialect", "readings", "series", "missing, with the names that were looked for"),
            rows=tuple(rows),
            left=2,
            text=4,
        ),
    )


def _page(source: Source) -> tuple[str, ...]:
    readings = max((len(track.t_ns) for track in source.tracks.values()), default=0)
    missing = "; ".join(f"{series} ({' or '.join(names)})" for series, names in source.missing) or "nothing"
    if source.dialect is None:
        missing = "all: no vocabulary that servebench knows; raw numbers are kept"
    hint = f". {source.hint}" if source.missing and source.hint else ""
    return source.address, source.dialect or "unknown", count(readings), count(len(source.tracks)), missing + hint
