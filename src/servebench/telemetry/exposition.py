"""Know Prometheus text: what a server's /metrics page says at one moment, as named and labelled numbers.

A page is read once a second for hours, and from one second to the next only its numbers change. The reader therefore
keeps what the part of a line before its number means, and `prometheus_client.parser` sees each such head once.
"""

from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

MAX_HEADS = 50_000
"""A page whose labels change with every request must not fill the memory: past this the reader starts over."""


class Sample(NamedTuple):
    """One number of a page. `labels` is sorted by name."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Page(NamedTuple):
    """What a page said; `unread` counts lines that are no Prometheus text."""

    samples: tuple[Sample, ...]
    unread: int


_Head = tuple[str, tuple[tuple[str, str], ...]]


class PageReader:
    """Reads the pages of one server; keeps the heads of the lines that it has seen."""

    def __init__(self) -> None:
        self._heads: dict[str, _Head] = {}

    def read(self, text: str) -> Page:
        """Return the samples of a page in its order. Time stamps and exemplars of lines are not kept."""
        samples: list[Sample] = []
        unread = 0
        for raw in text.split("\n"):  # the format knows no other line end
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            sample = self._known(line) or self._parse(line)
            if sample is None:
                unread += 1
            else:
                samples.append(sample)
        return Page(tuple(samples), unread)

    def _known(self, line: str) -> Sample | None:
        head, _, number = line.rpartition(" ")
        known = self._heads.get(head)
        try:
            return None if known is None else Sample(*known, float(number))
        except ValueError:
            return None

    def _parse(self, line: str) -> Sample | None:
        bare = line.partition(" # ")[0]  # OpenMetrics writes an exemplar behind the number
        try:
            families = list(text_string_to_metric_families(bare + "\n"))
        except (ValueError, IndexError, KeyError):
            return None
        found = [sample for family in families for sample in family.samples]
        if len(found) != 1:
            return None
        labels = tuple(sorted(found[0].labels.items()))
        head, _, number = bare.rpartition(" ")
        # Only a head that is a whole name with its labels is kept: with a time stamp behind it, it would hold a number.
        if found[0].timestamp is None and number:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[head] = (found[0].name, labels)
        return Sample(found[0].name, labels, float(found[0].value))


def read_page(text: str) -> Page:
    """Return the samples of one page, for callers that read it once."""
    return PageReader().read(text)
