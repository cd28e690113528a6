"""Know how the master keeps what engines and hardware say of themselves: one page a second and source, as parts.

A greenlet for each source fetches; reading the text and writing parts happen in native threads, so that neither holds
up the hub. A page that is late or missing costs its second and a word, never the run.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import msgspec

from servebench.core.errors import HarnessError
from servebench.core.target import Target
from servebench.core.units import NS_PER_S
from servebench.loadgen.part_writer import PartWriter
from servebench.loadgen.scrape.pages import LIMIT_S, PageError, PlacesToAsk, fetch
from servebench.loadgen.scrape.view import EngineView, Point
from servebench.shards.engine_schema import EngineRow, engine_table
from servebench.shards.parts import PartIdentity, WrittenPart, write_table_part
from servebench.telemetry.exposition import Page, PageReader
from servebench.telemetry.reading import Reading, canonical, missing_text
from servebench.telemetry.rules import HARDWARE

PART_S = 10
RETRY_S = 10.0
"""How long a place that gave no page is left alone."""


class Scrape(NamedTuple):
    """One page of one source at a moment of the run clock."""

    t_ns: int
    source: str
    page: Page
    reading: Reading


@dataclass(slots=True)
class _Source:
    target: Target
    reader: PageReader = field(default_factory=PageReader)
    heard: bool = False
    """Whether it has given a page since the last word about it."""
    told: bool = False


class EngineScrape:
    """The pages of one run. `tell(text, data)` writes an event; `root` is the run's folder."""

    def __init__(self, places: PlacesToAsk, root: Path, tell: Callable[[str, dict[str, Any]], None]) -> None:
        self.view = EngineView()
        self._places, self._root, self._tell = places, root, tell
        self._identity: PartIdentity | None = None
        self._writer = PartWriter()
        self._kept: dict[str, list[Scrape]] = {"engine": [], "hardware": []}
        self._numbers = {"engine": 0, "hardware": 0}
        self._flushed_ns = time.monotonic_ns()
        self._sources = [_Source(target) for target in places.targets]
        self._greenlets: list[gevent.Greenlet[..., Any]] = []

    @property
    def failure(self) -> HarnessError | None:
        """First part that could not be written."""
        return self._writer.failure

    def start(self, identity: PartIdentity) -> None:
        """Begin to ask; once."""
        self._identity = identity
        self._greenlets = [gevent.spawn(self._follow, source) for source in self._sources]

    def stop(self) -> tuple[WrittenPart, ...]:
        """Ask once more, so that counters cover the whole run, write what is left and return the parts.

        Blocks the calling greenlet only, and not for long: LIMIT_S for a page, then the disk.
        """
        gevent.killall(self._greenlets)
        last = [gevent.spawn(self._ask, source) for source in self._sources if source.heard]
        gevent.joinall(last, timeout=LIMIT_S + 1)
        gevent.killall(last)
        self._greenlets = []
        self._flush()
        self._writer.close()
        return tuple(self._writer.parts)

    def figures(self) -> dict[str, Any] | None:
        """Return what a status line says of the engines; None while none was read."""
        return self.view.figures(time.monotonic())

    def _follow(self, source: _Source) -> None:
        due_s = time.monotonic()
        while True:
            heard = self._ask(source)
            due_s = max(due_s + 1.0, time.monotonic()) if heard else time.monotonic() + RETRY_S
            gevent.sleep(max(0.0, due_s - time.monotonic()))

    def _ask(self, source: _Source) -> bool:
        identity = self._identity
        began_ns = time.monotonic_ns()
        try:
            text = fetch(source.target)
            page, reading = gevent.get_hub().threadpool.apply(_read, (source.reader, text))
            if not page.samples:
                raise PageError("it holds no metric")  # noqa: TRY301 - the same word and the same wait as for no page
        except PageError as fault:
            self._silent(source, str(fault))
            return False
        if identity is None:
            return True
        ended_ns = time.monotonic_ns()
        middle_ns = (began_ns + ended_ns) // 2
        scrape = Scrape(middle_ns - identity.epoch_monotonic_ns, source.target.redacted, page, reading)
        self._speaks(source, scrape)
        point = Point(middle_ns / NS_PER_S, reading.dialect, reading.values)
        if self.view.take(scrape.source, point):
            self._tell(f"{scrape.source}: a counter fell, so the engine began again", {"source": scrape.source})
        self._kept["hardware" if reading.dialect in HARDWARE else "engine"].append(scrape)
        if ended_ns - self._flushed_ns >= PART_S * NS_PER_S:
            self._flush()
        return True

    def _speaks(self, source: _Source, scrape: Scrape) -> None:
        """Tell once whose page it is and what it lacks, and again when it comes back."""
        if source.heard:
            return
        source.heard, source.told = True, False
        reading = scrape.reading
        missing = missing_text(reading.missing, scrape.page)
        text = f"{scrape.source}: {len(scrape.page.samples)} numbers, dialect {reading.dialect or 'unknown'}"
        self._tell(
            f"{text}; missing: {missing}" if missing else text,
            {
                "source": scrape.source,
                "dialect": reading.dialect,
                "missing": [one.series for one in reading.missing],
                "older": reading.older,
            },
        )

    def _silent(self, source: _Source, why: str) -> None:
        if not source.told and (source.heard or self._places.given):
            self._tell(f"{source.target.redacted}: no metrics ({why})", {"source": source.target.redacted, "why": why})
            source.told = True
        source.heard = False

    def _flush(self) -> None:
        self._flushed_ns = time.monotonic_ns()
        for kind, scrapes in self._kept.items():
            if not scrapes or self._identity is None:
                continue
            if self._writer.full:
                self._writer.fail(HarnessError(f"{self._root / kind} is slower than one part in {PART_S} s"))
                continue
            self._kept[kind], number = [], self._numbers[kind]
            self._numbers[kind] += 1
            self._writer.submit(_job(self._root / kind, number, scrapes, self._identity))


def _job(folder: Path, number: int, scrapes: Sequence[Scrape], identity: PartIdentity) -> Callable[[], WrittenPart]:
    def write() -> WrittenPart:
        folder.mkdir(exist_ok=True)
        table = engine_table([row for scrape in scrapes for row in rows_of(scrape)], run_id=identity.run_id)
        return write_table_part(folder, number, table, identity)

    return write


def rows_of(scrape: Scrape) -> list[EngineRow]:
    """Return the rows of one page: its canonical series first, then every number as it was."""
    t_ns, source, dialect = scrape.t_ns, scrape.source, scrape.reading.dialect
    known = [
        EngineRow(t_ns, source, dialect, series, None, None, value) for series, value in scrape.reading.values.items()
    ]
    raw = [
        EngineRow(
            t_ns,
            source,
            dialect,
            None,
            sample.name,
            msgspec.json.encode(dict(sample.labels)).decode(),
            sample.value,
        )
        for sample in scrape.page.samples
    ]
    return known + raw


def _read(reader: PageReader, text: str) -> tuple[Page, Reading]:
    page = reader.read(text)
    return page, canonical(page)
