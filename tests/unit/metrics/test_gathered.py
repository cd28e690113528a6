"""The columns of many parts become those of a run."""

from dataclasses import fields, replace

import numpy as np
import pytest

from servebench.metrics.columns import EventFacts, RequestColumns
from servebench.metrics.gathered import Gathered


def part(first: int, size: int, *, cached: bool = False) -> RequestColumns:
    known = {"sent_ns": np.arange(first, first + size, dtype=float), "ok": np.arange(first, first + size) % 2 == 0}
    facts = replace(EventFacts.none_for(size), tokens=np.arange(first, first + size, dtype=np.float64) * 10)
    extra = {"cached_tokens": np.full(size, 7.0)} if cached else {}
    return replace(RequestColumns.blank(size), **known, **extra, events=facts)


@pytest.mark.parametrize("expected", [0, 1, 5, 100])
def test_the_columns_of_all_parts_come_in_the_order_asked_for(expected: int) -> None:
    gathered = Gathered(expected)
    for first, size in ((0, 2), (2, 0), (2, 3)):
        gathered.add(part(first, size))
    found = gathered.in_order(np.array([4, 0, 3, 1, 2]))
    assert found.sent_ns.tolist() == [4, 0, 3, 1, 2]
    assert found.events.tokens.tolist() == [40, 0, 30, 10, 20]
    assert found.ok.tolist() == [True, True, False, False, True]


def test_a_column_that_is_first_known_in_a_later_part_is_unknown_before_it() -> None:
    gathered = Gathered(4)
    gathered.add(part(0, 2))
    gathered.add(part(2, 2, cached=True))
    assert gathered.in_order(np.arange(4)).cached_tokens.tolist() == pytest.approx([np.nan, np.nan, 7, 7], nan_ok=True)


def test_a_column_of_which_nothing_is_known_takes_no_memory() -> None:
    gathered = Gathered(1_000)
    gathered.add(part(0, 1_000))
    found = gathered.in_order(np.arange(1_000))
    assert np.isnan(found.cached_tokens).all()
    assert len(found.cached_tokens) == 1_000
    assert found.cached_tokens.strides == (0,)


def test_of_no_parts_there_are_columns_without_rows() -> None:
    found = Gathered().in_order(np.empty(0, np.int64))
    blank = RequestColumns.blank(0)
    for f in fields(RequestColumns):
        if f.name != "events":
            assert getattr(found, f.name).dtype == getattr(blank, f.name).dtype
    assert len(found) == 0
