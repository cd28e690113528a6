"""Know how the columns of many parts become those of a run, in memory once."""

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from servebench.metrics.columns import EventFacts, IntArray, RequestColumns, same_for_all

_OWN = tuple(f.name for f in fields(RequestColumns) if f.name != "events")
_FACTS = tuple(f.name for f in fields(EventFacts))
_UNKNOWN = np.float64("nan")
Column = npt.NDArray[Any]


class Gathered:
    """Requests of many parts, each part copied to its place as it comes; `rows` counts them.

    Columns that are kept part by part until all are there, and then put together, are in memory twice. `expected` is
    how many requests will come: room costs nothing until it is used, and more requests cost a copy.
    """

    def __init__(self, expected: int = 0) -> None:
        self.rows = 0
        self._room = expected
        self._columns: dict[str, Column] = {}

    def add(self, part: RequestColumns) -> None:
        """Take the requests of a part."""
        end = self.rows + len(part)
        if end > self._room:
            self._room = max(end, 2 * self._room)
            for name in self._columns:
                self._columns[name] = self._longer(self._columns[name])
        for name in _OWN:
            self._put(name, getattr(part, name), end)
        for name in _FACTS:
            self._put(name, getattr(part.events, name), end)
        self.rows = end

    def _longer(self, column: Column) -> Column:
        longer = np.empty(self._room, column.dtype)
        longer[: self.rows] = column[: self.rows]
        return longer

    def _put(self, name: str, values: Column, end: int) -> None:
        """Write values behind those that are there; a column of which nothing is known yet takes no room."""
        column = self._columns.get(name)
        if column is None:
            if values.dtype == np.float64 and np.isnan(values).all():
                return
            column = self._columns[name] = np.empty(self._room, values.dtype)
            column[: self.rows] = _UNKNOWN if values.dtype == np.float64 else False
        column[self.rows : end] = values

    def in_order(self, order: IntArray) -> RequestColumns:
        """Return the requests, numbered as they came, in an order of these numbers; once, as it gives the room back."""
        if not self.rows:
            return RequestColumns.blank(0)
        own, facts = ({name: self._taken(name, order) for name in names} for names in (_OWN, _FACTS))
        return RequestColumns(**own, events=EventFacts(**facts))

    def _taken(self, name: str, order: IntArray) -> Column:
        column = self._columns.pop(name, None)
        return same_for_all(_UNKNOWN, self.rows) if column is None else column[: self.rows][order]
